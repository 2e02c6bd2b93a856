"""Throw-away environments: a virtual environment or an npm folder with some pinned packages.

pip installs them, with the settings of the user's pip: they decide which build of torch comes along, and uv does not
read them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSTALLED = "installed.txt"
"""A file in each finished environment that holds the packages it was made for."""
SECONDS = 1800.0
"""The time that one try of an installation may take; llama.cpp is compiled, and the next try goes on."""


PIP = ("bin/python", "-m", "pip", "--quiet")


class InstallFailed(Exception):
    """A command of an installation failed: which, and the last line it wrote."""


@dataclass(frozen=True, slots=True)
class Packages:
    """The contents of an environment."""

    names: tuple[str, ...]
    """Requirements of pip, or of npm."""
    node: bool = False
    """npm instead of pip."""
    unwanted: tuple[str, ...] = ()
    """Distributions that come along with the others and are uninstalled."""
    build_tools: tuple[str, ...] = ()
    """Requirements for compiling the first of ``names``. Its build folder is kept until the environment is finished."""

    def is_installed(self, folder: Path) -> bool:
        """Whether ``folder`` holds a finished environment with exactly these packages."""
        mark = folder / INSTALLED
        return mark.is_file() and mark.read_text(encoding="utf-8") == self._mark()

    def install(self, folder: Path, seconds: float = SECONDS) -> None:
        """Make the environment in ``folder``, at the lowest priority; ``InstallFailed`` if it is not finished."""
        end = time.monotonic() + seconds
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.node:
            (folder / "package.json").write_text("{}", encoding="ascii")
            npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            run([*npm, *self.names], folder, end)
        else:
            run([sys.executable, "-m", "venv", "."], folder, end)
            build = folder.with_name(f"{folder.name}.build")
            names = [*self._compiled(folder, build, end), *self.names[1:]] if self.build_tools else self.names
            run([*PIP, "install", *names], folder, end)
            if self.unwanted:
                run([*PIP, "uninstall", "--yes", *self.unwanted], folder, end)
            shutil.rmtree(build, ignore_errors=True)
        (folder / INSTALLED).write_text(self._mark(), encoding="utf-8")

    def _compiled(self, folder: Path, build: Path, end: float) -> list[str]:
        """Return the arguments with which pip compiles the first of ``names`` in ``build``, where an earlier try began.

        pip would unpack the source into a new folder each time, and a build folder belongs to one folder of sources.
        """
        source, mark = build / "source", build / "names.txt"
        run([*PIP, "install", *self.build_tools], folder, end)
        if not mark.is_file() or mark.read_text(encoding="utf-8") != self._mark():
            shutil.rmtree(build, ignore_errors=True)
            download = ["download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(build)]
            run([*PIP, *download, self.names[0]], folder, end)
            [archive] = build.glob("*.tar.gz")
            shutil.unpack_archive(archive, source)
            mark.write_text(self._mark(), encoding="utf-8")
        [project] = source.iterdir()
        name = self.names[0].partition("==")[0]
        return [
            "--no-build-isolation",
            f"--config-settings=build-dir={build / 'objects'}",
            f"{name} @ {project.as_uri()}",
        ]

    def _mark(self) -> str:
        return "\n".join((*self.names, *(f"without {name}" for name in self.unwanted))) + "\n"


def run(command: Sequence[str], folder: Path, end: float) -> None:
    """Run a command, and kill it and everything it has started at ``end``, a time of ``time.monotonic``."""
    process = subprocess.Popen(
        ["nice", "-n", "15", *command],
        cwd=folder,
        env={"CMAKE_BUILD_PARALLEL_LEVEL": "2", **os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own: compilers would outlive pip
    )
    try:
        output, errors = process.communicate(timeout=end - time.monotonic())
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise InstallFailed(f"{' '.join(command)}: the time is over; the next try resumes what was compiled") from None
    if process.returncode:
        words = (errors or output).strip().splitlines()[-1:]
        raise InstallFailed(f"{' '.join(command)}: {' '.join(words)[-300:]}")
