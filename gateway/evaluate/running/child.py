"""Runs a command in a process group of its own, with the terminal and the signals that this process gets."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that the command gets in place of this process."""


async def run_child(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end. Return its exit code, which is 128 + N after signal N, as in a shell.

    Signals that this process ignores, as under ``nohup``, are ignored by the command too. Raises ``OSError`` if the
    command cannot be started.
    """
    loop = asyncio.get_running_loop()
    child: subprocess.Popen[bytes]
    passed_on = [one for one in PASSED_ON if signal.getsignal(one) is not signal.SIG_IGN]
    for one in passed_on:  # the loop calls them after this step, in which the command starts: no signal is lost
        loop.add_signal_handler(one, lambda number: _signal_group(child.pid, number), one)
    try:
        child = subprocess.Popen(command, env=environment, process_group=0)  # noqa: ASYNC220  # takes a millisecond
        child.returncode = os.waitstatus_to_exitcode(await _wait(child.pid))
    finally:
        for one in passed_on:
            loop.remove_signal_handler(one)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


async def _wait(group: int) -> int:
    """Wait for the end of the command, and return its status. While it runs, its group has the terminal.

    If the command is stopped (Ctrl-Z), the group of this process is stopped too, until the shell continues it.
    """
    own, terminal = os.getpgrp(), next((one for one in range(3) if os.isatty(one)), -1)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it would stop this process when it takes the terminal back
    while True:
        _pass_terminal(terminal, own, group)
        _signal_group(group, signal.SIGCONT)  # it may have read from the terminal too early, which stopped it
        _, status = await asyncio.to_thread(os.waitpid, group, os.WUNTRACED if terminal >= 0 else 0)
        _pass_terminal(terminal, group, own)
        if not os.WIFSTOPPED(status):
            return status
        os.kill(0, signal.SIGTSTP)


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _pass_terminal(terminal: int, giver: int, taker: int) -> None:
    """Make ``taker`` the foreground process group of a terminal, if ``giver`` is. ``terminal``: -1 if there is none."""
    with suppress(OSError):
        if os.tcgetpgrp(terminal) == giver:
            os.tcsetpgrp(terminal, taker)
