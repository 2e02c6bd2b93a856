"""Does a template's own process serve each caller its own answer, whatever happened to the one before?"""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
import time
import weakref
from datetime import UTC, datetime

import pytest

from gateway.core.errors import TemplateError
from gateway.template.huggingface.sandbox.subprocess_renderer import Confined

CENTERED = "{{ messages[0].content.center(5) }}"


def said(worker: Confined, content: str, script: int = 0) -> str:
    return worker.render(script, {"messages": [{"role": "user", "content": content}]}).text


def test_more_than_a_thousand_open_files_do_no_harm() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1300:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1300), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert said(Confined("t", (CENTERED,), ""), "a") == "  a  "
    finally:
        for one in files:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Interrupt(BaseException):
    """What a signal handler may raise at any point."""


def test_an_interrupted_caller_leaves_no_answer_to_the_next() -> None:
    worker = Confined(
        "t", (CENTERED, "{% for i in range(9999) %}{% for j in range(400) %}{% endfor %}{% endfor %}mine"), ""
    )
    said(worker, "a")

    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupt):
            said(worker, "secret", script=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert said(worker, "b") == "  b  "


def test_a_process_that_died_while_idle_is_started_anew() -> None:
    worker = Confined("t", (CENTERED,), "")
    said(worker, "a")
    process = worker._process
    assert process is not None
    process.kill()
    process.wait()
    assert said(worker, "b") == "  b  "


def test_a_process_that_dies_unseen_is_started_anew() -> None:
    worker = Confined("t", (CENTERED,), "")
    said(worker, "a")
    first = worker._process
    assert first is not None
    first.kill()  # not waited for: it may look alive, and breaks when it is written to
    assert said(worker, "b") == "  b  "
    assert worker._process is not first


def test_a_process_that_reads_nothing_does_not_hold_its_caller() -> None:
    worker = Confined("t", (CENTERED,), "")
    said(worker, "a")
    process = worker._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    watch = threading.Timer(30, process.kill)
    watch.start()  # or this test would hang where the deadline is missing
    with pytest.raises(TemplateError, match="took longer"):
        said(worker, "a" * 1_000_000)  # more than a pipe holds
    watch.cancel()
    assert time.monotonic() - began < 25  # it would be for ever
    assert said(worker, "b") == "  b  "


def test_a_process_that_cannot_be_started_is_told() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    worker = Confined("t", (CENTERED,), "")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no room for a pipe
    try:
        with pytest.raises(TemplateError, match="could not be started: Too many open files"):
            said(worker, "a")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert said(worker, "a") == "  a  "


def test_a_worker_leads_a_session_of_its_own() -> None:
    worker = Confined("t", (CENTERED,), "")
    said(worker, "a")
    assert worker._process is not None
    assert os.getsid(worker._process.pid) == worker._process.pid  # a Ctrl-C at the terminal is not for it


def test_killed_processes_are_forgotten() -> None:
    worker = Confined("t", ("{{ 'x'.center(2000000000) }}", CENTERED), "")
    said(worker, "a", script=1)
    assert worker._process is not None
    gone = weakref.ref(worker._process)
    worker._process.kill()
    said(worker, "b", script=1)
    gc.collect()
    assert gone() is None


def test_the_clock_of_the_worker_is_that_of_this_process() -> None:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC-13:45"
    time.tzset()
    try:
        worker = Confined("t", ("{{ strftime_now('%Y-%m-%d %H:%M') }}{{ ''.center(0) }}",), "")
        told = datetime.strptime(worker.render(0, {}).text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        assert 13.5 < (told - datetime.now(UTC)).total_seconds() / 3600 < 14
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@pytest.mark.parametrize("text", ["", "naïve 😀 \x00 \ud800 end", "字" * 1_000_000])
def test_any_text_comes_back_as_it_is(text: str) -> None:
    rendered = Confined("t", ("{{ messages[0].content }}{{ ''.center(0) }}{{ nope }}",), "").render(
        0, {"messages": [{"role": "user", "content": text}]}
    )
    assert rendered.text == text
    assert rendered.undefined == ("nope",)
