"""``gateway VERB`` in this process, with the exit code and output that a process would have."""

from __future__ import annotations

import io
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

from gateway.cli import main


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def command(folder: Path, *arguments: str, stdin: bytes = b"", terminal: bool = False) -> CompletedProcess[bytes]:
    """Run a verb in a folder; ``terminal``: standard output is one."""
    out, err = io.BytesIO(), io.BytesIO()
    stdout = (_Terminal if terminal else io.TextIOWrapper)(out, "utf-8", newline="")
    stderr = io.TextIOWrapper(err, "utf-8", "backslashreplace", newline="")
    kept, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with chdir(folder), redirect_stdout(stdout), redirect_stderr(stderr):
            code = main(list(arguments))
    except SystemExit as error:  # argparse: help, or a wrong command line
        assert isinstance(error.code, int)
        code = error.code
    finally:
        sys.stdin = kept
    stdout.flush()
    stderr.flush()
    return CompletedProcess(["gateway", *arguments], code, out.getvalue(), err.getvalue())
