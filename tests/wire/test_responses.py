"""Answers as JSON bodies and as frames of a stream."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.responses import AnswerHead, ChatWriter, ChoicesWriter, CompletionWriter, usage_object
from metatemplate.values.events import Begun, Choice, Completion, Delta, Event, Finish, TokenLogprob, Usage

WRITERS: dict[str, type[ChoicesWriter]] = {"chat": ChatWriter, "completions": CompletionWriter}
ENVELOPE = {"id": "id-1", "created": 7, "model": "m"}
TOKEN = TokenLogprob("a", -0.5, (("a", -0.5, None), ("b", -1.0, None), ("c", -2.0, None)))


def writer(endpoint: str, *, usage: bool = False, **more: Any) -> ChoicesWriter:
    return WRITERS[endpoint](AnswerHead(id="id-1", model="m", created=7, include_usage=usage, **more))


def frames(said: bytes) -> list[dict[str, Any]]:
    return [json.loads(part.removeprefix("data: ")) for part in said.decode().split("\n\n") if part]


def stream(one: ChoicesWriter, *events: Event) -> list[dict[str, Any]]:
    return frames(b"".join(one.frames([event]) for event in events) + one.usage())


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


# ---------------------------------------------------------------- streams

DELTAS: dict[str, tuple[list[Event], list[dict[str, Any]]]] = {
    "the role travels with the first content": (
        [Begun("t"), Delta(0, "a"), Delta(0, "b"), Finish(0, "stop")],
        [{"role": "assistant", "content": "a"}, {"content": "b"}, {}],
    ),
    "each choice has its own role": (
        [Delta(0, "a"), Delta(1, "b"), Delta(0, "c")],
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, {"content": "c"}],
    ),
    "an empty answer still has a content": ([Finish(0, "stop")], [{"role": "assistant", "content": ""}]),
    "tool calls come without content": (
        [Delta(0, fields={"tool_calls": [{"index": 0}]}), Finish(0, "tool_calls")],
        [{"role": "assistant", "tool_calls": [{"index": 0}]}, {}],
    ),
    "reasoning alone has an empty content at its end": (
        [Delta(0, fields={"reasoning_content": "r"}), Finish(0, "length")],
        [{"role": "assistant", "reasoning_content": "r"}, {"content": ""}],
    ),
    "scores before a call have no content": (
        [Delta(0, logprobs=(TOKEN,)), Delta(0, fields={"tool_calls": [{"index": 0}]}), Finish(0, "tool_calls")],
        [{"role": "assistant"}, {"tool_calls": [{"index": 0}]}, {}],
    ),
    "reasoning and text in one": (
        [Delta(0, "a", fields={"reasoning_content": "r"})],
        [{"role": "assistant", "content": "a", "reasoning_content": "r"}],
    ),
    "an empty delta has an empty content": (
        [Delta(0, "a"), Delta(0, "", logprobs=(TOKEN,))],
        [{"role": "assistant", "content": "a"}, {"content": ""}],
    ),
}


@pytest.mark.parametrize(("events", "expected"), DELTAS.values(), ids=DELTAS)
def test_events_become_chat_deltas(events: list[Event], expected: list[dict[str, Any]]) -> None:
    assert deltas(stream(writer("chat"), *events)) == expected


def test_every_choice_ends_with_one_finish_reason() -> None:
    chunks = stream(writer("chat"), Delta(0, "a"), Finish(1, "length", extras={"stop_reason": 5}), Finish(0, "stop"))
    ends = [(c["index"], c["finish_reason"], c.get("stop_reason")) for chunk in chunks for c in chunk["choices"]]
    assert ends == [(0, None, None), (1, "length", 5), (0, "stop", None)]


def test_chunks_share_an_envelope() -> None:
    events = (Begun("t", fields={"system_fingerprint": "fp"}), Delta(0, "a"), Finish(0, "stop"))
    for endpoint, kind in (("chat", "chat.completion.chunk"), ("completions", "text_completion")):
        for chunk in stream(writer(endpoint), *events):
            assert {key: chunk[key] for key in ENVELOPE} == ENVELOPE
            assert (chunk["object"], chunk["system_fingerprint"]) == (kind, "fp")
            assert "usage" not in chunk


def test_requested_usage_is_the_last_chunk_without_choices() -> None:
    events = (Delta(0, "a"), Usage(1, 2), Finish(0, "stop"))
    *chunks, last = stream(writer("chat", usage=True), *events)
    assert [chunk["usage"] for chunk in chunks] == [None, None]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert len(stream(writer("chat"), *events)) == 2


def test_unknown_usage_is_left_out() -> None:
    assert writer("chat", usage=True).usage() == b""


def test_the_last_usage_is_written() -> None:
    assert stream(writer("chat", usage=True), Usage(1, 1), Usage(1, 5))[0]["usage"]["completion_tokens"] == 5


def test_events_without_content_give_no_frame() -> None:
    one = writer("completions")
    assert one.frames([Begun("t"), Usage(1, 1)]) == b""


def test_only_the_first_chunk_has_the_explanation() -> None:
    chunks = stream(writer("chat", gateway=lambda: {"prompt": "p"}), Begun("t"), Delta(0, "a"), Delta(0, "b"))
    assert [chunk.get("gateway") for chunk in chunks] == [{"prompt": "p"}, None]


def test_completion_chunks_have_text_and_logprobs() -> None:
    chunks = stream(writer("completions"), Delta(1, "a", (TOKEN,), extras={"token_ids": [5]}), Finish(1, "length"))
    first, last = (chunk["choices"][0] for chunk in chunks)
    assert (first["index"], first["text"], first["finish_reason"], first["token_ids"]) == (1, "a", None, [5])
    assert first["logprobs"]["tokens"] == ["a"]
    assert last == {"index": 1, "text": "", "logprobs": None, "finish_reason": "length"}


def test_a_frame_is_one_line_for_every_text() -> None:
    said = writer("chat").frames([Delta(0, "a\n\ndata: [DONE]\r\n\u2028ü\0")])
    assert said.startswith(b"data: {")
    assert said.endswith(b"}\n\n")
    assert b"\n" not in said[:-2]
    assert b"\r" not in said
    assert frames(said)[0]["choices"][0]["delta"]["content"] == "a\n\ndata: [DONE]\r\n\u2028ü\0"


# ---------------------------------------------------------------- whole answers


def whole(endpoint: str, *choices: Choice, usage: Usage | None = None, **more: Any) -> dict[str, Any]:
    begun = Begun("t", fields={"system_fingerprint": "fp"})
    return writer(endpoint, **more).whole(Completion(choices, usage, begun))


def test_a_chat_completion_is_written_as_one_body() -> None:
    body = whole("chat", Choice(0, "hi", Finish(0, "stop")), usage=Usage(1, 2))
    assert body == {
        **ENVELOPE,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        "system_fingerprint": "fp",
    }


def test_a_completion_is_written_as_one_body() -> None:
    body = whole("completions", Choice(0, "a", Finish(0, "stop")), Choice(1, "b", Finish(1, "length"), (TOKEN,)))
    assert body["object"] == "text_completion"
    assert [(c["index"], c["text"], c["finish_reason"]) for c in body["choices"]] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]
    assert body["choices"][0]["logprobs"] is None
    assert body["choices"][1]["logprobs"]["top_logprobs"] == [{"a": -0.5, "b": -1.0, "c": -2.0}]
    assert body["usage"] is None


CONTENTS: dict[str, tuple[Choice, Any]] = {
    "text": (Choice(0, "a", Finish(0, "stop")), "a"),
    "nothing said": (Choice(0, "", Finish(0, "stop")), ""),
    "tool calls alone": (Choice(0, "", Finish(0, "tool_calls"), fields={"tool_calls": [{"id": "x"}]}), None),
    "text beside tool calls": (Choice(0, "a", Finish(0, "tool_calls"), fields={"tool_calls": [{"id": "x"}]}), "a"),
    "reasoning alone": (Choice(0, "", Finish(0, "length"), fields={"reasoning_content": "r"}), ""),
}


@pytest.mark.parametrize(("choice", "content"), CONTENTS.values(), ids=CONTENTS)
def test_content_is_null_beside_tool_calls_only(choice: Choice, content: Any) -> None:
    message = whole("chat", choice)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": content, **choice.fields}


@pytest.mark.parametrize(("asked", "shown"), [(None, ["a", "b", "c"]), (0, []), (2, ["a", "b"]), (20, ["a", "b", "c"])])
def test_only_the_requested_number_of_alternatives_is_written(asked: int | None, shown: list[str]) -> None:
    choice = Choice(0, "a", Finish(0, "stop"), (TOKEN,))
    entry = whole("chat", choice, top_logprobs=asked)["choices"][0]["logprobs"]["content"][0]
    assert entry["token"] == "a"
    assert [top["token"] for top in entry["top_logprobs"]] == shown


def test_a_whole_answer_has_the_explanation_if_requested() -> None:
    assert whole("chat", gateway=lambda: {"prompt": "p"})["gateway"] == {"prompt": "p"}
    assert "gateway" not in whole("chat")


USAGES = {
    "the upstream's": (Usage(1, 2), {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
    "counted here": (
        Usage(1, 2, "estimated"),
        {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "source": "estimated"},
    ),
    "with details": (
        Usage(1, 2, details={"prompt_tokens_details": {"cached_tokens": 1}}),
        {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}},
    ),
}


@pytest.mark.parametrize(("usage", "body"), USAGES.values(), ids=USAGES)
def test_usage_gives_its_source(usage: Usage, body: dict[str, Any]) -> None:
    assert usage_object(usage) == body


# ---------------------------------------------------------------- frames of a batch

TEXTS = st.text(max_size=6) | st.sampled_from(['the text"', "the text", "\u2028", '"\\', "😀"])
SAYINGS = st.one_of(
    st.builds(Delta, st.integers(0, 1), TEXTS),
    st.builds(Delta, st.integers(0, 1), TEXTS, st.just((TOKEN,))),
    st.builds(Delta, st.integers(0, 1), TEXTS, fields=st.sampled_from([{}, {"reasoning_content": "the text"}])),
    st.builds(Delta, st.integers(0, 1), TEXTS, extras=st.sampled_from([{}, {"token_ids": [1]}])),
    st.builds(Finish, st.integers(0, 1), st.just("stop")),
    st.builds(Begun, st.just("m/0"), fields=st.sampled_from([{}, {"system_fingerprint": "the text"}])),
    st.just(Usage(1, 2)),
)


def general(event: Event) -> Event:
    """The same event with its own empty mappings, which no other frame is reused for."""
    return replace(event, fields=dict(event.fields)) if isinstance(event, Delta) else event


@pytest.mark.parametrize("explain", [False, True], ids=["", "explained"])
@pytest.mark.parametrize("usage", [False, True], ids=["", "with usage"])
@pytest.mark.parametrize("endpoint", WRITERS)
@settings(max_examples=40)
@given(batches=st.lists(st.lists(SAYINGS, max_size=5), max_size=4))
def test_frames_of_text_are_the_same_in_the_first_frame_and_later(
    endpoint: str, usage: bool, explain: bool, batches: list[list[Event]]
) -> None:
    more: dict[str, Any] = {"gateway": lambda: {"target": "the text"}} if explain else {}
    whole, single = writer(endpoint, usage=usage, **more), writer(endpoint, usage=usage, **more)
    for batch in batches:
        assert whole.frames(batch) == b"".join(single.frames([general(event)]) for event in batch)
    assert whole.usage() == single.usage()


def test_a_new_field_of_delta_must_be_checked_by_the_writer() -> None:
    """``ChoicesWriter.frames`` reuses the bytes of another frame for deltas in which only these have a value."""
    assert {field.name for field in fields(Delta)} == {"index", "text", "logprobs", "fields", "extras"}


@pytest.mark.parametrize("event", [Delta(0, "a"), Delta(0), Finish(0, "stop"), Delta(0, "a", (TOKEN,))], ids=str)
@pytest.mark.parametrize("endpoint", WRITERS)
def test_absent_fields_are_written_as_empty_fields(endpoint: str, event: Delta | Finish) -> None:
    more: dict[str, Any] = {"extras": {}, **({"fields": {}} if isinstance(event, Delta) else {})}
    plain, spelled = writer(endpoint), writer(endpoint)
    assert plain.frames([event]) == spelled.frames([replace(event, **more)])
