"""Reading a request body into a ``Call``."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.call import Call
from gateway.core.errors import ForbiddenParameter, InvalidValue, RequestError
from gateway.wire.request_fields import FORBIDDEN
from gateway.wire.requests import read_chat, read_completion, read_embedding
from metatemplate.values.dialogue import Part

USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> Call:
    return read_chat({"model": "m", "messages": [USER], **fields}, request_id="r")


def completion(**fields: Any) -> Call:
    return read_completion({"model": "m", "prompt": "hi", **fields}, request_id="r")


def embedding(**fields: Any) -> Call:
    return read_embedding({"model": "m", "input": "hi", **fields}, request_id="r")


def test_a_minimal_chat_body_becomes_a_call() -> None:
    call = chat()
    assert (call.endpoint, call.model, call.request_id) == ("chat", "m", "r")
    assert (call.n, call.stops, call.stream, call.include_usage, call.explain) == (1, (), False, False, False)
    assert (dict(call.params), dict(call.unknown)) == ({}, {})
    assert call.dialogue is not None
    assert [(m.role, m.text, m.parts, m.raw) for m in call.dialogue.messages] == [("user", "hi", (), USER)]


CALLS: dict[str, tuple[dict[str, Any], str, Any]] = {  # fields, attribute of the call, its value
    "n": ({"n": 3}, "n", 3),
    "one stop": ({"stop": "a"}, "stops", ("a",)),
    "four stops": ({"stop": ["a", "b", "c", "d"]}, "stops", ("a", "b", "c", "d")),
    "no stops": ({"stop": []}, "stops", ()),
    "a stop of 256 characters": ({"stop": "x" * 256}, "stops", ("x" * 256,)),
    "a stream": ({"stream": True}, "stream", True),
    "usage in a stream": ({"stream": True, "stream_options": {"include_usage": True}}, "include_usage", True),
    "further stream options": ({"stream": True, "stream_options": {"x": 1}}, "include_usage", False),
    "further stream options are kept": (
        {"stream": True, "stream_options": {"include_usage": True, "x": 1, "y": None}},
        "stream_options",
        {"x": 1},
    ),
    "all that was given": (
        {"n": 1, "gateway": {}, "top_k": 5, "seed": None},
        "given",
        {"model", "messages", "n", "gateway", "top_k"},
    ),
    "null stream options": ({"stream": None, "stream_options": None}, "include_usage", False),
    "an explanation": ({"gateway": {"explain": True}}, "explain", True),
    "parameters": (
        {"temperature": 0, "top_p": 1, "seed": -(2**63), "logit_bias": {"5": -100}, "tools": [{"a": 1}]},
        "params",
        {"temperature": 0, "top_p": 1, "seed": -(2**63), "logit_bias": {"5": -100}, "tools": [{"a": 1}]},
    ),
    "null is absent": ({"temperature": None, "top_k": None}, "params", {}),
    "an unknown field": ({"top_k": 5, "x": {"y": [1]}}, "unknown", {"top_k": 5, "x": {"y": [1]}}),
    "a structural field is no parameter": ({"n": 2, "stop": "a", "stream": False}, "params", {}),
}


@pytest.mark.parametrize(("fields", "attribute", "value"), CALLS.values(), ids=CALLS)
def test_a_chat_body_becomes_a_call(fields: dict[str, Any], attribute: str, value: Any) -> None:
    found = getattr(chat(**fields), attribute)
    assert (dict(found) if isinstance(value, dict) else found) == value


def test_integers_stay_integers() -> None:
    assert type(chat(temperature=1).params["temperature"]) is int
    assert type(chat(temperature=1.0).params["temperature"]) is float


MESSAGES: dict[str, tuple[dict[str, Any], str, tuple[Part, ...]]] = {
    "text": (USER, "hi", ()),
    "an empty text": ({"role": "user", "content": ""}, "", ()),
    "an assistant without content": ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "", ()),
    "an assistant with null": ({"role": "assistant", "content": None}, "", ()),
    "parts": (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        "ab",
        (Part("text", "a"), Part("text", "b")),
    ),
    "media": (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}]},
        "",
        (Part("image_url", ""),),
    ),
    "no parts": ({"role": "user", "content": []}, "", ()),
    "further keys": ({**USER, "name": "x", "weight": 1}, "hi", ()),
}


@pytest.mark.parametrize(("raw", "text", "parts"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_keeps_its_raw_form(raw: dict[str, Any], text: str, parts: tuple[Part, ...]) -> None:
    dialogue = chat(messages=[raw]).dialogue
    assert dialogue is not None
    message = dialogue.messages[0]
    assert (message.text, message.parts, message.raw) == (text, parts, raw)


def test_a_final_turn_may_be_left_open() -> None:
    dialogue = chat(add_generation_prompt=False, continue_final_message=True).dialogue
    assert dialogue is not None
    assert dialogue.options.continue_final


PROMPTS: dict[str, tuple[Any, tuple[Any, ...], bool]] = {
    "a string": ("hi", ("hi",), False),
    "an empty string": ("", ("",), False),
    "strings": (["a", "b"], ("a", "b"), True),
    "one string in a list": (["a"], ("a",), True),
    "token ids": ([1, 2], ((1, 2),), False),
    "lists of token ids": ([[1], [2, 3]], ((1,), (2, 3)), True),
    "one list of token ids": ([[1]], ((1,),), True),
    "1024 prompts": (["a"] * 1024, ("a",) * 1024, True),
    "the highest id": ([2**31 - 1], ((2**31 - 1,),), False),
}


@pytest.mark.parametrize(("prompt", "prompts", "is_list"), PROMPTS.values(), ids=PROMPTS)
def test_a_prompt_has_one_of_four_forms(prompt: Any, prompts: tuple[Any, ...], is_list: bool) -> None:
    call = completion(prompt=prompt)
    assert (call.raw_prompts, call.prompt_is_list, call.dialogue) == (prompts, is_list, None)


def test_a_completion_takes_more_stops_and_its_own_parameters() -> None:
    stops = [str(number) for number in range(64)]
    call = completion(stop=stops, echo=True, logprobs=0, max_tokens=0, best_of=2, suffix="x", prompt_logprobs=1)
    assert call.stops == tuple(stops)
    assert dict(call.params) == {"echo": True, "logprobs": 0, "max_tokens": 0, "best_of": 2, "suffix": "x"}
    assert dict(call.unknown) == {"prompt_logprobs": 1}


def test_an_embedding_body_is_not_changed() -> None:
    call = embedding(input=["a", "b"], dimensions=5, encoding_format="base64", extra=1)
    assert call.endpoint == "embeddings"
    assert dict(call.params) == {"input": ["a", "b"], "dimensions": 5, "encoding_format": "base64"}
    assert dict(call.unknown) == {"extra": 1}
    assert call.given == {"model", "input", "dimensions", "encoding_format", "extra"}


def test_an_embedding_may_ask_for_an_explanation() -> None:
    call = embedding(gateway={"explain": True})
    assert call.explain
    assert dict(call.unknown) == {}


REFUSED: dict[str, tuple[Any, dict[str, Any], type[RequestError], str, str]] = {
    # reader, fields, error, param, part of the message
    "both ends of a turn": (
        chat, {"add_generation_prompt": True, "continue_final_message": True}, InvalidValue, "continue_final_message",
        "cannot both be true",
    ),
    "a prompt without a turn to generate": (
        chat, {"add_generation_prompt": False}, InvalidValue, "add_generation_prompt", "continue_final_message",
    ),
    "five stops": (chat, {"stop": list("abcde")}, InvalidValue, "stop", "stop has 5 strings; it may have at most 4"),
    "65 stops": (completion, {"stop": ["a"] * 65}, InvalidValue, "stop", "stop has 65 strings; it may"),
    "a long stop": (chat, {"stop": "x" * 257}, InvalidValue, "stop", "256 characters"),
    "stream options without a stream": (
        chat, {"stream_options": {"include_usage": True}}, InvalidValue, "stream_options", "requires stream: true",
    ),
    "a misspelt option of ours": (
        chat, {"gateway": {"explian": True}}, InvalidValue, "gateway.explian",
        'unknown key (did you mean "explain"?)',
    ),
    "a union's better half": (
        chat, {"messages": [{"role": "user", "content": [{"type": 5}]}]}, InvalidValue, "messages[0].content[0].type",
        "must be a string, not a number",
    ),
    "messages as a text": (chat, {"messages": "hi"}, InvalidValue, "messages", '; write a list such as [{"role"'),
    "no class names of ours": (chat, {"messages": [5]}, InvalidValue, "messages[0]", "must be an object"),
    "content that is nothing known": (
        chat, {"messages": [{"role": "user", "content": 5}]}, InvalidValue, "messages[0].content", "a string or a list",
    ),
    "an option with the name of a type": (
        chat, {"gateway": {"str": 1}}, InvalidValue, "gateway.str", "known: explain, prompt, repeat, turns, variables",
    ),
    "a fraction of a token": (chat, {"max_tokens": 1.5}, InvalidValue, "max_tokens", "whole number, not a decimal"),
    "a user without content": (
        chat, {"messages": [{"role": "user"}]}, InvalidValue, "messages[0].content", "only an assistant message",
    ),
    "a misspelt option of ours in an embedding": (
        embedding, {"gateway": {"explian": True}}, InvalidValue, "gateway.explian", "unknown key",
    ),
    "digits lost in a stream option": (
        chat, {"stream": True, "stream_options": {"a": 1e20}}, InvalidValue, "stream_options.a", "64 bits",
    ),
    "digits lost in a tool": (chat, {"tools": [{"a": 1e20}]}, InvalidValue, "tools[0].a", "64 bits"),
    "digits lost in a message": (chat, {"messages": [{**USER, "x": 1e20}]}, InvalidValue, "messages[0].x", "64 bits"),
    "a prompt in a chat": (chat, {"prompt": "hi"}, InvalidValue, "prompt", "send it to /v1/completions"),
    "messages in a completion": (completion, {"messages": [USER]}, InvalidValue, "messages", "/v1/chat/completions"),
    "a turn in a completion": (
        completion, {"add_generation_prompt": True}, InvalidValue, "add_generation_prompt", "/v1/chat/completions",
    ),
    "a mixed prompt": (completion, {"prompt": [1, "a"]}, InvalidValue, "prompt", "must be a string"),
    "an id too high": (completion, {"prompt": [[1], [2**31]]}, InvalidValue, "prompt[1]", "outside"),
    "an empty input": (embedding, {"input": []}, InvalidValue, "input", "must be a string"),
}  # fmt: skip


@pytest.mark.parametrize(("read", "fields", "error", "param", "said"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_field_is_named(
    read: Any, fields: dict[str, Any], error: type[RequestError], param: str, said: str
) -> None:
    with pytest.raises(error) as raised:
        read(**fields)
    assert raised.value.param == param
    assert said in raised.value.message
    assert "TextPart" not in raised.value.message
    assert "Value error" not in raised.value.message


@pytest.mark.parametrize(
    ("read", "name"),
    # A chat may have template variables; whether its template takes them is checked later. ``metadata`` is a hint.
    [
        (read, name)
        for read in (chat, completion, embedding)
        for name in sorted(FORBIDDEN)
        if (read, name) not in ((chat, "chat_template_kwargs"), (chat, "metadata"), (completion, "metadata"))
    ],
)
def test_operator_settings_are_refused_on_every_endpoint(read: Any, name: str) -> None:
    with pytest.raises(ForbiddenParameter) as raised:
        read(**{name: "anything"})
    assert raised.value.param == name
    assert "anything" not in raised.value.message


def test_template_variables_are_part_of_the_dialogue() -> None:
    call = chat(gateway={"variables": {"context": "C", "n": 1}, "explain": True})
    assert call.dialogue is not None
    assert dict(call.dialogue.options.variables) == {"context": "C", "n": 1}
    assert call.explain
    assert chat(gateway={"variables": None}).dialogue == chat().dialogue


@pytest.mark.parametrize("read", [completion, embedding])
def test_template_variables_without_a_template_are_refused(read: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        read(gateway={"variables": {"a": "b"}})
    assert caught.value.param == "gateway.variables"


def test_template_variables_must_be_a_mapping() -> None:
    with pytest.raises(InvalidValue) as caught:
        chat(gateway={"variables": ["a"]})
    assert caught.value.param == "gateway.variables"
