"""A process with limits does jobs, is replaced when it was killed, and ends with its owner."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
from pathlib import Path

import pytest

from metatemplate.errors import RendererBusy
from metatemplate.limited_process.process import (
    JobNotDone,
    JobTooSlow,
    LimitedProcess,
    ProcessEnded,
    ProcessKilled,
    Reply,
)

CPU = 0.5


def make_process(max_waiting: int = 4) -> LimitedProcess:
    return LimitedProcess("tests.metatemplate.limited_process.jobs", "does tests", max_waiting=max_waiting)


def started(process: LimitedProcess) -> subprocess.Popen[bytes]:
    child = process._process
    assert child is not None
    return child


def test_a_job_is_done_in_another_process_that_serves_the_next_job_too() -> None:
    process = make_process()
    first, text = process.call({"do": "naïve \ud800"}, CPU)
    second, _ = process.call({"do": "again"}, CPU)
    assert text == "naïve \ud800"
    assert first["pid"] == second["pid"] != os.getpid()
    assert 0 <= first["seconds"] < CPU


def test_the_process_is_started_by_the_first_job() -> None:
    process = make_process()
    assert process._process is None
    process.call({"do": "x"}, CPU)
    assert started(process).poll() is None


FAILURES: dict[str, tuple[str, type[JobNotDone], str]] = {  # name: (job, error, its message)
    "a job without an end": ("loop", JobTooSlow, "the job took longer than 0.5 s of processor time and was stopped"),
    "a job that needs too much memory": (
        "allocate",
        ProcessEnded,
        "the process that does tests was stopped: it used too much memory or time",
    ),
    "a job that ends the process": (
        "raise",
        ProcessEnded,
        "the process that does tests was stopped: it used too much memory or time",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_job_that_is_not_done_is_an_error_and_the_next_job_is_done(name: str) -> None:
    job, kind, message = FAILURES[name]
    process = make_process()
    with pytest.raises(kind) as raised:
        process.call({"do": job}, CPU)
    assert str(raised.value) == message
    assert process.call({"do": "next"}, CPU)[1] == "next"


@pytest.mark.parametrize("was_used", [False, True], ids=["a new process", "a process that has done a job"])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_job_whose_process_is_killed_is_tried_once_more(name: str, was_used: bool, tmp_path: Path) -> None:
    process, log = make_process(), tmp_path / "pids"
    if was_used:
        process.call({"do": "x"}, CPU)
    reply, _ = process.call({"do": "be killed", "signal": name, "times": 1, "log": str(log)}, CPU)
    first, second = log.read_text().split()
    assert first != second == str(reply["pid"])


def test_a_job_whose_process_is_killed_twice_is_an_error_of_its_own_and_the_next_job_is_done(tmp_path: Path) -> None:
    process, log = make_process(), tmp_path / "pids"
    with pytest.raises(ProcessKilled) as raised:
        process.call({"do": "be killed", "signal": "SIGKILL", "times": 9, "log": str(log)}, CPU)
    assert str(raised.value) == "the process that does tests was killed"
    assert len(log.read_text().split()) == 2
    assert process.call({"do": "next"}, CPU)[1] == "next"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT"])
def test_a_job_that_crashes_its_process_is_not_tried_again(name: str, tmp_path: Path) -> None:
    process, log = make_process(), tmp_path / "pids"
    with pytest.raises(ProcessEnded):
        process.call({"do": "be killed", "signal": name, "times": 9, "log": str(log)}, CPU)
    assert len(log.read_text().split()) == 1


def test_a_killed_process_is_replaced() -> None:
    process = make_process()
    process.call({"do": "x"}, CPU)
    first = started(process)
    first.kill()
    assert process.call({"do": "next"}, CPU)[1] == "next"
    assert started(process) is not first


def test_an_idle_process_is_stopped_and_a_later_job_starts_another() -> None:
    process = make_process()
    process.call({"do": "x"}, CPU)
    first = started(process)
    process.stop_after(60)
    process.stop_after(0.01)
    first.wait(30)
    assert process.call({"do": "next"}, CPU)[1] == "next"


def test_the_process_ends_with_its_owner_before_the_idle_time() -> None:
    process = make_process()
    process.call({"do": "x"}, CPU)
    child = started(process)
    process.stop_after(60)
    del process
    gc.collect()
    assert child.poll() is not None


def test_a_stopped_process_has_ended() -> None:
    process = make_process()
    process.call({"do": "x"}, CPU)
    child = started(process)
    process.stop()
    process.stop()
    assert child.poll() is not None


def test_a_call_beyond_the_queue_is_refused_and_the_others_are_done_in_order() -> None:
    process = make_process(max_waiting=3)

    async def call_at_once() -> list[Reply | BaseException]:
        calls = [process.in_thread(process.call, {"do": str(number)}, CPU) for number in range(4)]
        return await asyncio.gather(*calls, return_exceptions=True)

    *done, refused = asyncio.run(call_at_once())
    assert [reply[1] for reply in done if isinstance(reply, tuple)] == ["0", "1", "2"]
    assert isinstance(refused, RendererBusy)
    assert refused.message == "3 calls wait for the process that does tests; retry later"
