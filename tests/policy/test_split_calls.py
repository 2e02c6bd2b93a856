"""Splitting of an exchange into several calls for engines that do not take lists or ``n``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from gateway.backend.scripted import Script, Step
from gateway.calls.answer.response import ResponseStream
from gateway.calls.timeline import CallTimeline
from gateway.core.errors import DeadlineExceeded
from gateway.core.exchange import Exchange
from gateway.policy.deliver.first_token_gate import FirstTokenGate
from gateway.policy.deliver.split_calls import SplitCalls, UpstreamCapabilities
from gateway.policy.deliver.targets.failover import Failover
from gateway.policy.deliver.targets.load_balancer import RoundRobin
from gateway.policy.deliver.targets.retry import RetryPolicy
from gateway.policy.deliver.targets.retry_budget import RetryBudget
from gateway.policy.deliver.timeouts import Timeouts
from metatemplate.values.events import Delta, Event, Finish, Usage
from tests.policy.responses import OBSERVER, Response, cancel_after, exchange, leave_after, read_response, replica
from tests.support.recording_backend import RecordingBackend
from tests.support.virtual_clock import run as run_virtual

UNSURE = UpstreamCapabilities(lists=None, choices=None)
CAN = UpstreamCapabilities(lists=True, choices=True)
CANNOT = UpstreamCapabilities(lists=False, choices=False)


TOTAL = 10.0


def script(*texts: str, counted: bool = True) -> Script:
    """A script for all choices in one answer, with one usage."""
    steps: list[Step] = []
    for index, text in enumerate(texts):
        steps += [{"text": text, "index": index}, {"finish": "stop", "index": index}]
    return [*steps, {"usage": [7, 2]}] if counted else steps


def notices(response: Response) -> list[str]:
    return [notice for begun in response.begun for notice in begun.notices]


def test_the_calls_end_at_the_deadline_of_the_exchange() -> None:
    inner = RecordingBackend(*[script("a")] * 2)
    read_response(SplitCalls(inner, CANNOT, TOTAL), exchange("p", n=2, deadline=1002.0))
    assert [one.deadline for one in inner.exchanges] == [1002.0, 1002.0]


def test_an_exchange_for_one_choice_is_not_changed() -> None:
    inner = RecordingBackend(script("a"))
    request = exchange("p", prompt_is_list=True)
    response = read_response(SplitCalls(inner, CAN, TOTAL), request)
    assert (response.texts, inner.exchanges, notices(response)) == ({0: "a"}, [request], [])


def test_a_list_of_one_is_sent_as_a_string_unless_the_engine_takes_lists() -> None:
    inner = RecordingBackend(script("a"))
    read_response(SplitCalls(inner, UNSURE, TOTAL), exchange("p", prompt_is_list=True))
    assert inner.exchanges == [exchange("p")]


def test_an_engine_that_takes_lists_and_n_gets_one_call() -> None:
    inner = RecordingBackend(script("a", "b", "c", "d"))
    response = read_response(SplitCalls(inner, CAN, TOTAL), exchange("p", "q", n=2))
    assert (response.texts, len(inner.exchanges), notices(response)) == ({0: "a", 1: "b", 2: "c", 3: "d"}, 1, [])
    assert response.usages == [Usage(7, 2)]


def test_missing_choices_are_requested_one_by_one() -> None:
    inner = RecordingBackend(script("a"), script("b"), script("c"))
    response = read_response(
        SplitCalls(inner, UNSURE, TOTAL), exchange("p", n=3, params={"seed": 40, "temperature": 1})
    )
    assert response.texts == {0: "a", 1: "b", 2: "c"}
    assert response.finishes == [(0, "stop"), (1, "stop"), (2, "stop")]
    assert [(one.n, one.params["seed"]) for one in inner.exchanges] == [(3, 40), (1, 41), (1, 42)]
    assert response.usages == [Usage(21, 6)]
    assert notices(response) == ["filled_choices: 2"]


def test_an_engine_that_ignores_n_gets_one_call_for_each_choice() -> None:
    inner = RecordingBackend(script("a"), script("b"))
    response = read_response(SplitCalls(inner, CANNOT, TOTAL), exchange("p", n=2, params={"seed": 1}))
    assert response.texts == {0: "a", 1: "b"}
    assert [(one.n, one.params["seed"]) for one in inner.exchanges] == [(1, 1), (1, 2)]
    assert response.usages == [Usage(14, 4)]
    assert notices(response) == ["split_calls: 2"]


@pytest.mark.parametrize(("stream", "calls"), [(True, 2), (False, 1)], ids=["stream", "whole"])
def test_only_streams_are_split_if_a_stream_carries_one_choice(stream: bool, calls: int) -> None:
    inner = RecordingBackend(*([script("a"), script("b")] if stream else [script("a", "b")]))
    habits = UpstreamCapabilities(lists=None, choices=None, streamed_choices=False)
    response = read_response(SplitCalls(inner, habits, TOTAL), exchange("p", n=2, stream=stream))
    assert (response.texts, len(inner.exchanges)) == ({0: "a", 1: "b"}, calls)


@pytest.mark.parametrize("code", ["upstream_rejected_request", "upstream_error"], ids=["with a 400", "with a 500"])
def test_a_refused_list_becomes_one_call_for_each_prompt(code: str) -> None:
    inner = RecordingBackend([{"error": code}], script("a"), script("b"), script("c"))
    response = read_response(
        SplitCalls(FirstTokenGate(inner, 1.0), UNSURE, TOTAL), exchange("p", "q", "r")
    )  # its gate makes ``open`` raise
    assert response.texts == {0: "a", 1: "b", 2: "c"}
    assert [one.prompts for one in inner.exchanges] == [("p", "q", "r"), ("p",), ("q",), ("r",)]
    assert [one.prompt_is_list for one in inner.exchanges] == [True, False, False, False]
    assert response.usages == [Usage(21, 6)]
    assert notices(response) == ["split_calls: 3"]
    assert inner.active == 0


@pytest.mark.parametrize(
    ("habits", "code"),
    [(UNSURE, "context_length_exceeded"), (UNSURE, "upstream_auth_failed"), (CAN, "upstream_rejected_request")],
    ids=["another refusal", "an operator's mistake", "an engine that takes lists"],
)
def test_other_refusals_are_returned(habits: UpstreamCapabilities, code: str) -> None:
    inner = RecordingBackend([{"error": code}], script("a"))
    response = read_response(SplitCalls(FirstTokenGate(inner, 1.0), habits, TOTAL), exchange("p", "q"))
    assert (response.code, len(inner.exchanges)) == (code, 1)


def test_ambiguous_choice_indexes_of_a_list_with_n_are_not_used() -> None:
    # Two prompts with n=2, from an engine that may ignore n: its choice 1 would be prompt 1, or copy 1 of prompt 0.
    inner = RecordingBackend(script("p0"), script("p1"), script("q0"), script("q1"))
    response = read_response(
        SplitCalls(inner, UpstreamCapabilities(lists=True, choices=None), TOTAL),
        exchange("p", "q", n=2, params={"seed": 5}),
    )
    assert response.texts == {0: "p0", 1: "p1", 2: "q0", 3: "q1"}
    assert [(one.prompts, one.params["seed"]) for one in inner.exchanges] == [
        (("p",), 5),
        (("p",), 6),
        (("q",), 5),
        (("q",), 6),
    ]


def test_every_call_of_a_split_request_counts_as_an_attempt() -> None:
    inner = RecordingBackend(script("a"), [{"error": "upstream_overloaded"}], script("b"), script("c"))
    stack = Failover(
        RoundRobin([replica("m/0", FirstTokenGate(inner, 1.0))]), RetryPolicy(3), RetryBudget(1.0), OBSERVER
    )
    response = read_response(SplitCalls(stack, CANNOT, TOTAL), exchange("p", "q", "r"))
    assert (response.texts, response.log) == ({0: "a", 1: "b", 2: "c"}, ("m/0", 4, 1))


def test_prompts_of_token_ids_keep_their_order() -> None:
    inner = RecordingBackend(script("a"), script("b"))
    response = read_response(SplitCalls(inner, CANNOT, TOTAL), exchange(prompts=((1, 2), (3,)), prompt_is_list=True))
    assert response.texts == {0: "a", 1: "b"}
    assert [one.prompts for one in inner.exchanges] == [((1, 2),), ((3,),)]


def test_a_failed_call_ends_the_answer() -> None:
    inner = RecordingBackend(script("a"), [{"error": "upstream_overloaded"}])
    response = read_response(SplitCalls(inner, CANNOT, TOTAL), exchange("p", "q"))
    assert (response.texts, response.code, response.usages, inner.active) == ({0: "a"}, "upstream_overloaded", [], 0)


def test_usage_is_left_out_if_one_call_has_none() -> None:
    inner = RecordingBackend(script("a", counted=False))
    assert read_response(SplitCalls(inner, CANNOT, TOTAL), exchange("p", "q")).usages == []


# Events in order: Begun, text and end of choice 0; then the nested call for choice 1.
@pytest.mark.parametrize("count", [0, 1, 2, 4], ids=["before", "during", "after the first event", "in a nested call"])
@pytest.mark.parametrize("habits", [UNSURE, CANNOT], ids=["filling up", "one by one"])
def test_leaving_early_closes_the_open_calls(count: int, habits: UpstreamCapabilities) -> None:
    inner = RecordingBackend(["a", {"finish": "stop"}], ["b", "c", {"finish": "stop"}])
    nested = count == 4
    extra = nested and habits is UNSURE  # the notice that choices were filled up
    leave_after(SplitCalls(inner, habits, TOTAL), count + extra, exchange("p", n=2))
    assert inner.active == 0
    assert len(inner.exchanges) == (2 if nested else 1)
    assert inner.left_early == 1


def test_cancelling_during_a_nested_call_closes_it() -> None:
    inner = RecordingBackend(["a", {"finish": "stop"}], ["b", {"pause": 9}, "c"])
    cancel_after(SplitCalls(inner, CANNOT, TOTAL), 0.05, exchange("p", "q", "r"))
    assert (inner.active, inner.left_early, len(inner.exchanges)) == (0, 1, 2)


def test_choices_of_nested_calls_are_renumbered() -> None:
    response = read_response(SplitCalls(RecordingBackend(script("x")), CANNOT, TOTAL), exchange("p", "q", "r"))
    assert [event.index for event in response.events if isinstance(event, Delta)] == [0, 1, 2]


# ---------------------------------------------------------------- stops, and cancelled calls


@dataclass
class Client:
    """A client that reads a fanned-out call, cut at its stops."""

    inner: RecordingBackend
    habits: UpstreamCapabilities
    request: Exchange
    events: list[Event] = field(default_factory=list)
    left: bool = False
    slow: str = ""
    """The text after which the client stops reading."""

    async def read(self, total: float = TOTAL) -> None:
        """Read all events, and the pending text after a cancellation or timeout."""
        stream = None
        try:
            async with SplitCalls(Timeouts(self.inner, TOTAL, total, OBSERVER), self.habits, total).open(
                self.request
            ) as answer:
                stream = ResponseStream(self.request, answer, CallTimeline("completions", "req_1", 0.0), None)
                while batch := await stream.next_batch():
                    self.events += batch
                    if any(isinstance(event, Delta) and event.text == self.slow for event in batch):
                        await asyncio.sleep(9)
        except (asyncio.CancelledError, DeadlineExceeded):
            self.left = True
            assert stream is not None
            self.events += await stream.take_pending()

    @property
    def texts(self) -> dict[int, str]:
        return Response(self.events).texts

    @property
    def ends(self) -> dict[int, tuple[str, str]]:
        return {event.index: (event.reason, event.source) for event in self.events if isinstance(event, Finish)}


HERE, THERE = ("stop", "gateway"), ("stop", "engine")


def pieces(*texts: str) -> list[Script]:
    """A script for all choices in one answer, and then one for each of them."""
    whole: list[Step] = [{"text": text[:3], "index": at} for at, text in enumerate(texts)]
    whole += [{"text": text[3:], "index": at} for at, text in enumerate(texts)]
    whole += [{"finish": "stop", "index": at} for at in range(len(texts))]
    single: list[Script] = [[text[:3], text[3:], {"finish": "stop"}] for text in texts]
    return [whole, *single]


STOPPED = {  # name: (texts, what the client receives, (finish reason, source))
    "no stop": (("abcd", "efgh"), {0: "abcd", 1: "efgh"}, {0: THERE, 1: THERE}),
    "stops with junk behind": (("ab<eo>junk", "cd<eo>junk"), {0: "ab", 1: "cd"}, {0: HERE, 1: HERE}),
    "one stop": (("ab<eo>", "cdefgh"), {0: "ab", 1: "cdefgh"}, {0: HERE, 1: THERE}),
    "half a stop at the end": (("abc<eo", "ab<e"), {0: "abc<eo", 1: "ab<e"}, {0: THERE, 1: THERE}),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("habits", [CAN, CANNOT], ids=["in one call", "one by one"])
@pytest.mark.parametrize("prompts", [("p",), ("p", "q")], ids=["choices", "prompts"])
@pytest.mark.parametrize("name", STOPPED)
def test_every_choice_ends_at_its_own_stop(
    name: str, prompts: tuple[str, ...], habits: UpstreamCapabilities, stream: bool
) -> None:
    texts, received, ends = STOPPED[name]
    scripts = pieces(*texts)
    inner = RecordingBackend(*(scripts[:1] if habits is CAN else scripts[1:]))
    client = Client(inner, habits, exchange(*prompts, n=2 // len(prompts), stops=("<eo>",), stream=stream))
    run_virtual(client.read())
    assert (client.texts, client.ends, client.left) == (received, ends, False)
    assert len(inner.exchanges) == (1 if habits is CAN else 2)


def test_a_choice_requested_later_is_cut_at_its_stop() -> None:
    inner = RecordingBackend(["ab<", "eo>junk", {"pause": 9}], ["cd<eo", ">junk", {"pause": 9}])
    client = Client(inner, UNSURE, exchange("p", n=2, stops=("<eo>",)))
    run_virtual(client.read())
    assert (client.texts, client.ends, len(inner.exchanges)) == ({0: "ab", 1: "cd"}, {0: HERE, 1: HERE}, 2)


def test_a_choice_with_only_held_text_is_not_requested_again() -> None:
    other: list[Step] = [{"text": "cd", "index": 1}, {"finish": "stop", "index": 1}]
    inner = RecordingBackend([{"text": "<", "index": 1}, "ab<eo>", *other])
    client = Client(inner, UNSURE, exchange("p", n=2, stops=("<eo>",)))
    run_virtual(client.read())
    assert (client.texts, client.ends, len(inner.exchanges)) == ({1: "<cd", 0: "ab"}, {0: HERE, 1: THERE}, 1)


@pytest.mark.parametrize("how", ["a drain", "the total time"])
@pytest.mark.parametrize("busy", [False, True], ids=["waiting for the engine", "waiting for the client"])
@pytest.mark.parametrize("habits", [CAN, UNSURE, CANNOT], ids=["in one call", "filling up", "one by one"])
@pytest.mark.parametrize("prompts", [("p",), ("p", "q")], ids=["choices", "prompts"])
@pytest.mark.virtual_clock
async def test_a_stopped_fan_out_returns_its_held_text(
    prompts: tuple[str, ...], habits: UpstreamCapabilities, busy: bool, how: str
) -> None:
    """A drain cancels the task; so does a total timeout that passes while no event is read."""
    second: Script = ["cd", "<eo", {"pause": 9}]
    if habits is CAN:
        numbered: list[Step] = [{"text": text, "index": 1} for text in second if isinstance(text, str)]
        inner = RecordingBackend(["ab", "<e", *numbered, {"pause": 9}])
    else:
        inner = RecordingBackend(["ab<e", {"finish": "stop"}], second)
    client = Client(inner, habits, exchange(*prompts, n=2 // len(prompts), stops=("<eo>",)))
    client.slow = "cd" if busy else ""
    drains = how == "a drain"
    task = asyncio.create_task(client.read(TOTAL if drains else 0.1))
    if drains:
        await asyncio.sleep(0.1)
        task.cancel()
    await task
    assert (client.texts, client.left) == ({0: "ab<e", 1: "cd" if busy else "cd<eo"}, True)
    assert (inner.active, inner.left_early) == (0, 1)
