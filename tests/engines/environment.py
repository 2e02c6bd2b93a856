"""Throw-away environments: a virtual environment or an npm folder with some pinned packages.

pip installs them, with the settings of the user's pip: they decide which build of torch comes along, and uv does not
read them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSTALLED = "installed.txt"
"""A file in each finished environment that holds the packages it was made for."""
SECONDS = 1800.0
"""The time that one command of an installation may take; llama.cpp is compiled."""


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

    def is_installed(self, folder: Path) -> bool:
        """Whether ``folder`` holds a finished environment with exactly these packages."""
        mark = folder / INSTALLED
        return mark.is_file() and mark.read_text(encoding="utf-8") == self._mark()

    def install(self, folder: Path) -> None:
        """Make the environment in ``folder``, at the lowest priority; ``InstallFailed`` if a command fails."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.node:
            (folder / "package.json").write_text("{}", encoding="ascii")
            npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            _run([*npm, *self.names], folder)
        else:
            _run([sys.executable, "-m", "venv", "."], folder)
            _run(["bin/python", "-m", "pip", "install", "--quiet", *self.names], folder)
            if self.unwanted:
                _run(["bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", *self.unwanted], folder)
        (folder / INSTALLED).write_text(self._mark(), encoding="utf-8")

    def _mark(self) -> str:
        return "\n".join((*self.names, *(f"without {name}" for name in self.unwanted))) + "\n"


def _run(command: Sequence[str], folder: Path) -> None:
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": "2", **os.environ}
    try:
        done = subprocess.run(
            ["nice", "-n", "15", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InstallFailed(f"{' '.join(command)}: not finished after {SECONDS:.0f} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise InstallFailed(f"{' '.join(command)}: {' '.join(words)[-300:]}")
