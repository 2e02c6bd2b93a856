"""Times and counts of a call, measured with a clock that the test controls."""

from __future__ import annotations

import pytest

from gateway.calls.timeline import CallTimeline
from gateway.core.events import Begun, Delta, Document, Event, Finish, Usage


class Clock:
    """Seconds that only pass when told to."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> CallTimeline:
    return CallTimeline("chat", "req_1", 100.0, clock)


def test_a_call_that_got_nowhere_leaves_a_duration_and_no_more(progress: CallTimeline, clock: Clock) -> None:
    clock.now = 100.5
    record = progress.freeze("invalid_json", 400)
    assert (record.endpoint, record.request_id, record.model, record.outcome, record.status) == (
        "chat", "req_1", "unknown", "invalid_json", 400,
    )  # fmt: skip
    assert record.duration == 0.5
    assert (record.admission, record.render, record.upstream, record.upstream_first, record.first_token) == (None,) * 5
    assert (record.gaps, record.stop_cuts, record.prompt_tokens, record.target, record.attempts) == (
        (),
        (),
        None,
        "",
        0,
    )


def test_the_times_of_a_stream_are_measured_where_they_happen(progress: CallTimeline, clock: Clock) -> None:
    story: list[tuple[float, Event]] = [
        (101.0, Begun("m/0")), (101.0, Delta(0, "")), (102.0, Delta(0, "a")),
        (102.5, Delta(0, "b")), (103.5, Delta(0, "c")), (104.0, Finish(0, "stop")), (104.0, Usage(7, 3)),
    ]  # fmt: skip
    clock.now = 100.25
    progress.admitted()
    clock.now = 100.5
    progress.asked()
    progress.attempt_log.begin("m/1")
    progress.attempt_log.begin("m/0", retry=True)
    for clock.now, event in story:
        progress.saw([event])
        progress.wrote([event])
    clock.now = 104.5
    progress.upstream_ended()
    clock.now = 105.0
    record = progress.freeze("ok", 200)
    assert (record.admission, record.upstream_first, record.upstream) == (0.25, 1.5, 4.0)
    assert (record.first_token, record.gaps) == (2.0, (0.5, 1.0))  # the end is no content
    assert record.duration == 5.0
    assert (record.target, record.attempts, record.stop_cuts) == ("m/0", 2, ("engine",))
    assert (record.prompt_tokens, record.completion_tokens, record.usage_source) == (7, 3, "upstream")
    assert progress.overhead() == 1.0


def test_before_the_upstream_ends_its_first_content_bounds_the_overhead(progress: CallTimeline, clock: Clock) -> None:
    clock.now = 100.5
    assert progress.overhead() == 0.5
    progress.asked()
    clock.now = 102.0
    progress.saw([Delta(0, "a")])
    clock.now = 102.25
    assert progress.overhead() == 0.75
    assert progress.spent() == (progress.elapsed(), progress.overhead())


CONTENT: dict[str, tuple[Event, bool]] = {  # name: (event, has content gone to the client?)
    "text": (Delta(0, "a"), True),
    "a tool call": (Delta(0, fields={"tool_calls": [{"index": 0}]}), True),
    "an empty delta": (Delta(0), False),
    "an end": (Finish(0, "length"), False),
    "a count": (Usage(1, 1), False),
    "a beginning": (Begun("m/0"), False),
}


@pytest.mark.parametrize("name", CONTENT)
def test_a_call_has_begun_when_content_has_gone_out(progress: CallTimeline, name: str) -> None:
    event, begun = CONTENT[name]
    progress.wrote([event])
    assert progress.begun is begun


def test_stops_are_told_by_who_found_them(progress: CallTimeline) -> None:
    for finish in (Finish(0, "stop"), Finish(1, "stop", source="gateway"), Finish(2, "length")):
        progress.saw([finish])
    assert progress.freeze("ok", 200).stop_cuts == ("engine", "gateway")
    assert progress.cut_by_gateway


def test_what_the_delivery_changed_is_gathered(progress: CallTimeline) -> None:
    progress.saw([Begun("m/1", notices=("bos: not verified",))])
    progress.saw([Begun("", notices=("filled_choices: 1",))])
    assert progress.delivery_notices == ["bos: not verified", "filled_choices: 1"]
    assert progress.freeze("ok", 200).bos_anomaly


ANOMALIES = {"bos: missing, the template expects it": True, "bos_stripped: the engine adds it": False}


@pytest.mark.parametrize("notice", ANOMALIES)
def test_a_bos_that_is_in_order_is_no_anomaly(progress: CallTimeline, notice: str) -> None:
    progress.saw([Begun("m/0", notices=(notice,))])
    assert progress.freeze("ok", 200).bos_anomaly is ANOMALIES[notice]


def test_a_document_is_content_of_the_upstream(progress: CallTimeline, clock: Clock) -> None:
    progress.asked()
    clock.now = 101.0
    progress.saw([Document({"object": "list"})])
    assert progress.freeze("ok", 200).upstream_first == 1.0


def test_what_left_together_has_no_gaps_in_between(progress: CallTimeline, clock: Clock) -> None:
    clock.now = 101.0
    progress.wrote([Begun("m/0"), Delta(0, "a"), Delta(0, "b")])
    clock.now = 101.5
    progress.wrote([Delta(0, "c"), Delta(0, ""), Delta(1, "d"), Finish(0, "stop")])
    record = progress.freeze("ok", 200)
    assert (record.first_token, record.gaps) == (1.0, (0.0, 0.5, 0.0))
