"""A template's subprocess gives each caller its own text, also after a job that failed or was stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import time
import weakref
from datetime import UTC, datetime

import pytest

from metatemplate.chat_templates.sandbox.compiled_template import RenderedText
from metatemplate.chat_templates.sandbox.subprocess_renderer import MAX_WAITING, SubprocessRenderer
from metatemplate.errors import InvalidInput, RendererBusy, TemplateFailure

CENTERED = "{{ messages[0].content.center(5) }}"


def rendered(renderer: SubprocessRenderer, content: str, template: int = 0) -> str:
    return renderer.render(template, {"messages": [{"role": "user", "content": content}]}).text


class Interrupt(BaseException):
    """What a signal handler may raise at any point."""


def test_an_interrupted_caller_leaves_no_reply_to_the_next() -> None:
    renderer = SubprocessRenderer(
        "t", (CENTERED, "{% for i in range(9999) %}{% for j in range(400) %}{% endfor %}{% endfor %}mine"), ""
    )
    rendered(renderer, "a")

    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupt):
            rendered(renderer, "secret", template=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rendered(renderer, "b") == "  b  "


def test_a_process_that_died_while_idle_is_replaced() -> None:
    renderer = SubprocessRenderer("t", (CENTERED,), "")
    rendered(renderer, "a")
    process = renderer._process
    assert process is not None
    process.kill()
    process.wait()
    assert rendered(renderer, "b") == "  b  "


def test_a_process_that_dies_between_two_jobs_is_replaced() -> None:
    renderer = SubprocessRenderer("t", (CENTERED,), "")
    rendered(renderer, "a")
    first = renderer._process
    assert first is not None
    first.kill()  # not waited for: it may look alive, and breaks when it is written to
    assert rendered(renderer, "b") == "  b  "
    assert renderer._process is not first


def test_a_process_that_reads_nothing_is_stopped() -> None:
    renderer = SubprocessRenderer("t", (CENTERED,), "")
    rendered(renderer, "a")
    process = renderer._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(TemplateFailure, match="took longer"):
        rendered(renderer, "a" * 1_000_000)  # more than a pipe holds
    assert rendered(renderer, "b") == "  b  "


def test_a_process_that_cannot_be_started_refuses_the_call_until_later() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    renderer = SubprocessRenderer("t", (CENTERED,), "")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no room for a pipe
    try:
        with pytest.raises(RendererBusy, match="could not be started: Too many open files"):
            rendered(renderer, "a")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rendered(renderer, "a") == "  a  "


def test_the_process_has_a_session_of_its_own() -> None:
    renderer = SubprocessRenderer("t", (CENTERED,), "")
    rendered(renderer, "a")
    assert renderer._process is not None
    assert os.getsid(renderer._process.pid) == renderer._process.pid  # Ctrl-C at the terminal does not reach it


def test_a_killed_process_is_not_kept() -> None:
    renderer = SubprocessRenderer("t", ("{{ 'x'.center(2000000000) }}", CENTERED), "")
    rendered(renderer, "a", template=1)
    assert renderer._process is not None
    gone = weakref.ref(renderer._process)
    renderer._process.kill()
    rendered(renderer, "b", template=1)
    gc.collect()
    assert gone() is None


def test_the_process_has_the_clock_of_the_gateway() -> None:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC-13:45"
    time.tzset()
    try:
        renderer = SubprocessRenderer("t", ("{{ strftime_now('%Y-%m-%d %H:%M') }}",), "")
        shown = datetime.strptime(renderer.render(0, {}).text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        assert 13.5 < (shown - datetime.now(UTC)).total_seconds() / 3600 < 14
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@pytest.mark.parametrize("text", ["", "naïve 😀 \x00 \ud800 end", "字" * 1_000_000])
def test_a_text_comes_back_unchanged(text: str) -> None:
    result = SubprocessRenderer("t", ("{{ messages[0].content }}{{ nope }}",), "").render(
        0, {"messages": [{"role": "user", "content": text}]}
    )
    assert result.text == text
    assert result.undefined == ("nope",)


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
FAILURES: dict[str, tuple[str, type[Exception], str]] = {  # name: (template, error, part of its message)
    "a refusal": ("{{ raise_exception('no') }}", InvalidInput, "refuses the conversation: no"),
    "an error with its line": ("\n{{ 'x'.center('y') }}", TemplateFailure, "line 2 of the template: TypeError"),
    "too much memory": ("{{ messages[0].content * 1000000000 }}", TemplateFailure, "MemoryError"),
    "too much text": ("{{ messages[0].content * 9000000 }}", TemplateFailure, "at most 8388608"),
    "too much time": (ENDLESS, TemplateFailure, "took longer than 0.8 s"),
    "a template that cannot be compiled": ("{% if %}", TemplateFailure, "line 1 of the template"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_job_has_the_error_of_a_render_in_this_process(name: str) -> None:
    source, kind, part = FAILURES[name]
    with pytest.raises(kind, match=part):
        rendered(SubprocessRenderer("t", (source,), ""), "x")


def test_the_process_serves_the_next_job_after_one_that_was_stopped() -> None:
    renderer = SubprocessRenderer("t", (ENDLESS, CENTERED), "")
    with pytest.raises(TemplateFailure):
        rendered(renderer, "x")
    assert rendered(renderer, "a", template=1) == "  a  "


def test_the_process_ends_with_its_renderer() -> None:
    renderer = SubprocessRenderer("t", (CENTERED,), "")
    rendered(renderer, "a")
    process = renderer._process
    assert process is not None
    assert process.poll() is None
    del renderer
    assert process.poll() is not None


def test_a_job_beyond_the_queue_is_refused() -> None:
    renderer = SubprocessRenderer("t", (CENTERED,), "")

    async def render_at_once(jobs: int) -> list[RenderedText | BaseException]:
        variables = {"messages": [{"role": "user", "content": "a"}]}
        return await asyncio.gather(*[renderer.render_async(0, variables) for _ in range(jobs)], return_exceptions=True)

    results = asyncio.run(render_at_once(MAX_WAITING + 2))
    assert [isinstance(result, RendererBusy) for result in results] == [False] * MAX_WAITING + [True] * 2
