"""``gateway VERB`` in this process, with the exit code and output that a process would have."""

from __future__ import annotations

import io
import os
import shutil
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess
from subprocess import run as run_process

import pytest

from gateway.cli import main
from tests.journeys.process import environment
from tests.support.serving import WAIT_SECONDS


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def command(
    folder: Path, *arguments: str, stdin: bytes = b"", terminal: bool = False, together: bool = False, **env: str
) -> CompletedProcess[bytes]:
    """Run a verb in a folder.

    ``terminal``: standard output and standard error are terminals. ``together``: standard error goes to standard
    output, in the order in which the verb writes.
    """
    out, err = io.BytesIO(), io.BytesIO()
    stdout = (_Terminal if terminal else io.TextIOWrapper)(out, "utf-8", newline="")
    stderr = stdout
    if not together:
        stderr = (_Terminal if terminal else io.TextIOWrapper)(err, "utf-8", "backslashreplace", newline="")
    before, sys.stdin = (dict(os.environ), sys.stdin), io.TextIOWrapper(io.BytesIO(stdin))
    try:
        _set_environment(environment(**env))
        with chdir(folder), redirect_stdout(stdout), redirect_stderr(stderr):
            code = main(list(arguments))
    finally:
        variables, sys.stdin = before
        _set_environment(variables)
    stdout.flush()
    stderr.flush()
    return CompletedProcess(["gateway", *arguments], code, out.getvalue(), err.getvalue())


def on_a_full_disk(folder: Path, *arguments: str, **env: str) -> tuple[int, str]:
    """Run a verb in a process whose standard output is on a full disk. Returns its exit code and standard error."""
    with Path("/dev/full").open("wb") as full:
        ended = run_process(
            [sys.executable, "-m", "gateway", *arguments],
            cwd=folder,
            env=environment(**env),
            stdin=DEVNULL,
            stdout=full,
            stderr=PIPE,
            timeout=WAIT_SECONDS,
            check=False,
        )
    return ended.returncode, ended.stderr.decode()


def bound_by_modes(folder: Path, *arguments: str) -> CompletedProcess[bytes]:
    """Run a verb in a process that cannot write files of mode 0444, also if root runs the tests."""
    words = [sys.executable, "-m", "gateway", *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv (apt-get install util-linux), because root may write all files")
        words = ["setpriv", "--bounding-set=-dac_override", *words]
    return run_process(words, cwd=folder, env=environment(), capture_output=True, timeout=WAIT_SECONDS, check=False)


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
