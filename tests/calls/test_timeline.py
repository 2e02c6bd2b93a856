"""Times and counts of a call, measured with a clock that the test controls."""

from __future__ import annotations

import pytest

from gateway.calls.timeline import CallTimeline
from gateway.core.exchange import AttemptLog
from metatemplate.values.events import Begun, Delta, Document, Event, Finish, Usage


class Clock:
    """A clock that the test sets."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timeline(clock: Clock) -> CallTimeline:
    return CallTimeline("chat", "req_1", 100.0, now=clock)


def test_a_refused_call_records_only_its_duration(timeline: CallTimeline, clock: Clock) -> None:
    clock.now = 100.5
    timeline.end("invalid_json", 400)
    assert (timeline.endpoint, timeline.request_id, timeline.model, timeline.outcome, timeline.status) == (
        "chat",
        "req_1",
        "unknown",
        "invalid_json",
        400,
    )
    assert timeline.duration == timeline.overhead == 0.5
    times = timeline.admission, timeline.render, timeline.upstream, timeline.upstream_first, timeline.first_token
    assert times == (None,) * 5
    assert (timeline.gaps, timeline.stop_cuts, timeline.prompt_tokens, timeline.target, timeline.attempts) == (
        (),
        (),
        None,
        "",
        0,
    )


def test_the_record_of_a_stream_has_its_times(timeline: CallTimeline, clock: Clock) -> None:
    timed_events: list[tuple[float, Event]] = [
        (101.0, Begun("m/0")),
        (101.0, Delta(0, "")),
        (102.0, Delta(0, "a")),
        (102.5, Delta(0, "b")),
        (103.5, Delta(0, "c")),
        (104.0, Finish(0, "stop")),
        (104.0, Usage(7, 3)),
    ]
    clock.now = 100.25
    timeline.admitted()
    clock.now = 100.5
    timeline.backend_opening(AttemptLog())
    timeline.attempt_log.begin("m/1")
    timeline.attempt_log.begin("m/0", retry=True)
    for clock.now, event in timed_events:
        timeline.events_received([event])
        timeline.events_written([event])
    clock.now = 104.5
    timeline.backend_closed()
    clock.now = 105.0
    timeline.end("ok", 200)
    assert (timeline.admission, timeline.upstream_first, timeline.upstream) == (0.25, 1.5, 4.0)
    assert (timeline.first_token, timeline.gaps) == (2.0, (0.5, 1.0))  # a finish is not content
    assert timeline.duration == 5.0
    assert (timeline.target, timeline.attempts, timeline.stop_cuts) == ("m/0", 2, ("engine",))
    assert (timeline.prompt_tokens, timeline.completion_tokens, timeline.usage_source) == (7, 3, "upstream")
    assert timeline.elapsed_and_overhead()[1] == timeline.overhead == 1.0


def test_until_the_upstream_ends_overhead_is_computed_from_its_first_content(
    timeline: CallTimeline, clock: Clock
) -> None:
    clock.now = 100.5
    assert timeline.elapsed_and_overhead()[1] == 0.5
    timeline.backend_opening(AttemptLog())
    clock.now = 102.0
    timeline.events_received([Delta(0, "a")])
    clock.now = 102.25
    assert timeline.elapsed_and_overhead() == (2.25, 0.75)


def test_the_wait_in_the_queue_is_not_overhead(timeline: CallTimeline, clock: Clock) -> None:
    clock.now = 103.5
    timeline.queue_waited(3.0)
    assert timeline.elapsed_and_overhead() == (3.5, 0.5)
    timeline.backend_opening(AttemptLog())
    clock.now = 104.5
    timeline.backend_closed()
    assert timeline.elapsed_and_overhead() == (4.5, 0.5)
    timeline.end("ok", 200)
    assert (timeline.queue_wait, timeline.upstream, timeline.overhead) == (3.0, 1.0, 0.5)


def opened_and_closed(timeline: CallTimeline, clock: Clock, seconds: float) -> None:
    """Open a backend for some seconds."""
    timeline.backend_opening(AttemptLog())
    clock.now += seconds
    timeline.backend_closed()


def test_the_time_between_two_backends_of_a_call_belongs_to_the_upstream(timeline: CallTimeline, clock: Clock) -> None:
    clock.now = 100.25
    opened_and_closed(timeline, clock, 1.0)  # the first turn, or a model that fails
    clock.now += 0.5
    opened_and_closed(timeline, clock, 2.0)
    clock.now += 0.25
    timeline.end("ok", 200)
    assert (timeline.duration, timeline.upstream, timeline.overhead) == (4.0, 3.5, 0.5)


def test_the_time_in_the_cache_belongs_to_the_upstream(timeline: CallTimeline, clock: Clock) -> None:
    opened_and_closed(timeline, clock, 0.5)
    timeline.attempt_log.looked_up("hit", 7.0)
    overhead = timeline.elapsed_and_overhead()[1]
    timeline.end("ok", 200)
    assert (timeline.cache, timeline.upstream, timeline.overhead) == ("hit", 0.5, overhead)


CONTENT: dict[str, tuple[Event, bool]] = {  # name: (event, is content)
    "text": (Delta(0, "a"), True),
    "a tool call": (Delta(0, fields={"tool_calls": [{"index": 0}]}), True),
    "an empty delta": (Delta(0), False),
    "a finish": (Finish(0, "length"), False),
    "usage": (Usage(1, 1), False),
    "the begin event": (Begun("m/0"), False),
}


@pytest.mark.parametrize("name", CONTENT)
def test_a_call_has_begun_when_content_was_written(timeline: CallTimeline, name: str) -> None:
    event, begun = CONTENT[name]
    timeline.events_written([event])
    assert timeline.begun is begun


def test_stop_cuts_record_their_source(timeline: CallTimeline) -> None:
    for finish in (Finish(0, "stop"), Finish(1, "stop", source="gateway"), Finish(2, "length")):
        timeline.events_received([finish])
    timeline.end("ok", 200)
    assert timeline.stop_cuts == ("engine", "gateway")


def test_notices_of_delivery_are_collected(timeline: CallTimeline) -> None:
    timeline.events_received([Begun("m/1", notices=("bos: not verified",))])
    timeline.events_received([Begun("", notices=("filled_choices: 1",))])
    assert timeline.delivery_notices == ["bos: not verified", "filled_choices: 1"]
    timeline.end("ok", 200)
    assert timeline.bos_anomaly


ANOMALIES = {"bos: missing, because the engine adds none": True, "bos_stripped: the engine adds the BOS": False}


@pytest.mark.parametrize("notice", ANOMALIES)
def test_a_removed_bos_is_not_an_anomaly(timeline: CallTimeline, notice: str) -> None:
    timeline.events_received([Begun("m/0", notices=(notice,))])
    timeline.end("ok", 200)
    assert timeline.bos_anomaly is ANOMALIES[notice]


def test_a_document_counts_as_first_content(timeline: CallTimeline, clock: Clock) -> None:
    timeline.backend_opening(AttemptLog())
    clock.now = 101.0
    timeline.events_received([Document({"object": "list"})])
    timeline.end("ok", 200)
    assert timeline.upstream_first == 1.0


def test_content_written_together_has_no_gaps(timeline: CallTimeline, clock: Clock) -> None:
    clock.now = 101.0
    timeline.events_written([Begun("m/0"), Delta(0, "a"), Delta(0, "b")])
    clock.now = 101.5
    timeline.events_written([Delta(0, "c"), Delta(0, ""), Delta(1, "d"), Finish(0, "stop")])
    timeline.end("ok", 200)
    assert (timeline.first_token, timeline.gaps) == (1.0, (0.0, 0.5, 0.0))
