"""The bytes sent to an engine: bodies and headers of completions, chat and embeddings."""

from __future__ import annotations

import uuid
from types import MappingProxyType
from typing import Any

import pytest

from gateway.core.exchange import RawPrompt
from metatemplate.values.events import Document, Usage
from tests.backend.ask import USER, chat, complete
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream


def sent(up: FaultyUpstream) -> dict[str, Any]:
    return dict(up.requests[-1].body)


PROMPTS: dict[str, tuple[dict[str, Any], Any]] = {  # the exchange's prompts: what the body says
    "string": ({"prompts": ("a",)}, "a"),
    "list of one": ({"prompts": ("a",), "prompt_is_list": True}, ["a"]),
    "list": ({"prompts": ("a", "b"), "prompt_is_list": True}, ["a", "b"]),
    "token ids": ({"prompts": ((1, 2),)}, [1, 2]),
    "lists of token ids": ({"prompts": ((1, 2), (3,)), "prompt_is_list": True}, [[1, 2], [3]]),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_all_four_prompt_shapes_arrive_as_they_are(up: FaultyUpstream, name: str) -> None:
    changes, expected = PROMPTS[name]
    assert complete(up.url("ok"), False, **changes).error is None
    assert sent(up)["prompt"] == expected


def test_a_plain_completion_says_no_more_than_it_must(up: FaultyUpstream) -> None:
    complete(up.url("ok"), False)
    assert sent(up) == {"model": "tiny", "prompt": "1+1=", "stream": False}


def test_a_stream_asks_for_usage(up: FaultyUpstream) -> None:
    heard = complete(up.url("ok"))
    assert sent(up)["stream_options"] == {"include_usage": True}
    assert heard.usage == Usage(7, 5)


def test_parameters_stops_and_n_go_up(up: FaultyUpstream) -> None:
    params = MappingProxyType({"temperature": 0, "logit_bias": MappingProxyType({"5": 1})})
    heard = complete(up.url("ok"), False, n=2, stops=("<eob>", "\n"), params=params)
    assert sent(up)["n"] == 2
    assert sent(up)["stop"] == ["<eob>", "\n"]
    assert sent(up)["temperature"] == 0
    assert sent(up)["logit_bias"] == {"5": 1}
    assert [heard.text(0), heard.text(1)] == [TEXT, TEXT]


STOP_IDS = {"openai": None, "vllm": [10000], "sglang": [10000], "llamacpp": None, "tgi": None}


@pytest.mark.parametrize("engine", STOP_IDS)
def test_stop_token_ids_go_where_they_are_understood(up: FaultyUpstream, engine: str) -> None:
    complete(up.url("ok"), False, {"engine": engine}, stop_token_ids=(10000,))
    assert sent(up).get("stop_token_ids") == STOP_IDS[engine]


def test_a_clients_stop_ids_follow_the_templates(up: FaultyUpstream) -> None:
    heard = complete(
        up.url("ok"), False, {"engine": "vllm"}, stop_token_ids=(10000,), params={"stop_token_ids": [7, 8]}
    )
    assert sent(up)["stop_token_ids"] == [10000, 7, 8]
    assert heard.begun.notices == ()


@pytest.mark.parametrize("value", [7, "7", {"a": 7}, ["7"], [True]])
@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
def test_stop_ids_that_are_no_list_of_ids_are_refused(up: FaultyUpstream, form: Any, value: object) -> None:
    before = up.request_count
    heard = form(up.url("ok"), False, {"engine": "sglang"}, params={"stop_token_ids": value})
    assert (heard.code, heard.error.param) == ("invalid_value", "stop_token_ids")
    assert up.request_count == before


BOS = {  # (engine, adds_bos, bos): (prompt sent, add_special_tokens sent, a notice?)
    ("vllm", None, "text"): ("<s>hi", False, False),
    ("vllm", None, "engine"): ("<s>hi", True, False),
    ("vllm", None, "none"): ("<s>hi", None, False),
    ("sglang", None, "text"): ("hi", None, False),
    ("llamacpp", None, "text"): ("hi", None, False),
    ("llamacpp", False, "text"): ("<s>hi", None, False),
    ("llamacpp", None, "engine"): ("<s>hi", None, False),
    ("llamacpp", False, "engine"): ("<s>hi", None, True),
    ("openai", None, "text"): ("<s>hi", None, True),
    ("openai", True, "text"): ("hi", None, False),
    ("openai", False, "text"): ("<s>hi", None, False),
    ("openai", None, "engine"): ("<s>hi", None, True),
    ("openai", None, "none"): ("<s>hi", None, False),
}


@pytest.mark.parametrize("case", BOS, ids=lambda case: "-".join(str(part) for part in case))
def test_the_model_sees_one_bos(up: FaultyUpstream, case: tuple[str, bool | None, str]) -> None:
    engine, adds_bos, bos = case
    spec = {"engine": engine, "adds_bos": adds_bos}
    heard = complete(up.url("ok"), False, spec, prompts=("<s>hi",), bos=bos, bos_text="<s>")
    body = sent(up)
    noticed = any(notice.startswith("bos:") for notice in heard.begun.notices)
    assert (body["prompt"], body.get("add_special_tokens"), noticed) == BOS[case]


@pytest.mark.parametrize("prompt", ["<s>hi", (1, 2)], ids=["text", "ids"])
def test_a_clients_word_on_bos_gives_way_with_a_notice(up: FaultyUpstream, prompt: RawPrompt) -> None:
    asked = {"add_special_tokens": True}
    heard = complete(up.url("ok"), False, {"engine": "vllm"}, prompts=(prompt,), bos="text", params=asked)
    assert sent(up)["add_special_tokens"] is False
    assert heard.begun.notices == ("bos: add_special_tokens is set by the template",)


STRIPPED = {  # prompt: the notices
    "<s>hi": ("bos_stripped: the engine adds the BOS",),
    "hi": (),
}


@pytest.mark.parametrize("prompt", STRIPPED)
def test_a_bos_that_is_taken_off_is_told(up: FaultyUpstream, prompt: str) -> None:
    heard = complete(up.url("ok"), False, {"engine": "llamacpp"}, prompts=(prompt,), bos="text", bos_text="<s>")
    assert sent(up)["prompt"] == "hi"
    assert heard.begun.notices == STRIPPED[prompt]


def test_token_ids_are_never_touched_for_bos(up: FaultyUpstream) -> None:
    complete(up.url("ok"), False, {"engine": "vllm"}, prompts=((1, 2),), bos="text", bos_text="<s>")
    assert "add_special_tokens" not in sent(up)


IGNORED = [
    ("logprobs", 1),
    ("logprobs", 0),
    ("best_of", 2),
    ("echo", True),
    ("logit_bias", {"5": 1}),
    ("presence_penalty", 0.5),
]
IDLE = {"logprobs": False, "best_of": 1, "echo": False, "logit_bias": {}, "presence_penalty": 0.0}


@pytest.mark.parametrize(("name", "value"), IGNORED)
def test_a_field_the_engine_ignores_is_refused_by_name(up: FaultyUpstream, name: str, value: object) -> None:
    before = up.request_count
    heard = complete(up.url("ok"), False, {"engine": "tgi"}, params={name: value})
    assert heard.error is not None
    assert (heard.code, heard.error.param) == ("unsupported_parameter", name)
    assert up.request_count == before


def test_a_field_the_engine_ignores_may_ask_for_nothing(up: FaultyUpstream) -> None:
    assert complete(up.url("ok"), False, {"engine": "tgi"}, params=IDLE).error is None


def test_an_engine_that_takes_strings_only_gets_no_token_ids(up: FaultyUpstream) -> None:
    before = up.request_count
    assert complete(up.url("ok"), False, {"engine": "tgi"}, prompts=((1,),)).code == "unsupported_parameter"
    assert up.request_count == before


def test_a_field_the_engine_is_not_known_to_understand_is_noted(up: FaultyUpstream) -> None:
    heard = complete(up.url("ok"), False, {"engine": "vllm"}, params={"top_k": 5, "mirostat\n": 2})
    assert heard.begun.notices == ("unverified_parameter: mirostat?",)


CHAT_FIELDS = {  # engine: what a chat with all the fields below is told of
    "openai": "unverified_parameter: continue_final_message mirostat? stop_token_ids top_k",
    "vllm": "unverified_parameter: mirostat?",
    "sglang": "unverified_parameter: mirostat?",
}


@pytest.mark.parametrize("engine", CHAT_FIELDS)
def test_a_chat_server_too_is_noted_for_fields_it_may_not_know(up: FaultyUpstream, engine: str) -> None:
    params = {
        "top_k": 5,
        "mirostat\n": 2,
        "stop_token_ids": [7],
        "continue_final_message": True,
        "tools": [],
        "seed": 1,
    }
    heard = chat(up.url("ok"), False, {"engine": engine}, params=params)
    assert heard.begun.notices == (CHAT_FIELDS[engine],)


@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
def test_further_stream_options_go_up(up: FaultyUpstream, form: Any) -> None:
    options = {"continuous_usage_stats": True, "a\nb": 1}
    heard = form(up.url("ok"), True, {"engine": "vllm"}, stream_options=options)
    assert sent(up)["stream_options"] == {**options, "include_usage": True}
    assert heard.begun.notices == ("unverified_parameter: stream_options.a?b",)


@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
def test_usage_in_every_chunk_is_requested_only_where_the_engine_knows_it(up: FaultyUpstream, form: Any) -> None:
    heard = form(up.url("ok"), True, {"engine": "openai"}, stream_options={"continuous_usage_stats": True})
    assert sent(up)["stream_options"] == {"include_usage": True}
    assert heard.begun.notices == ("omitted_parameter: stream_options.continuous_usage_stats",)


STOPS = {  # (engine, how many): (sent, notices)
    ("openai", 4): (4, ()),
    ("openai", 8): (4, ("stops_enforced_here: 4",)),
    ("vllm", 8): (8, ()),
}


@pytest.mark.parametrize(("engine", "count"), STOPS)
def test_an_api_gets_no_more_stops_than_it_takes(up: FaultyUpstream, engine: str, count: int) -> None:
    stops = tuple(f"<{number}>" for number in range(count))
    heard = chat(up.url("ok"), False, {"engine": engine}, stops=stops)
    assert (len(sent(up)["stop"]), heard.begun.notices) == STOPS[engine, count]
    assert sent(up)["stop"] == list(stops[: len(sent(up)["stop"])])


def test_chat_sends_the_messages_untouched(up: FaultyUpstream) -> None:
    chat(up.url("ok"), False, params={"max_completion_tokens": 5, "max_tokens": 5})
    assert sent(up) == {
        "model": "tiny",
        "messages": list(USER),
        "stream": False,
        "max_completion_tokens": 5,
        "max_tokens": 5,
    }
    assert up.requests[-1].endpoint == "chat"


def test_the_headers_carry_the_operators_key_and_the_request_id(up: FaultyUpstream) -> None:
    chat(up.url("ok"))
    headers = up.requests[-1].headers
    assert headers["authorization"] == "Bearer sk-op"
    assert uuid.UUID(headers["x-request-id"])
    assert headers["accept"] == "text/event-stream"


def test_no_key_sends_no_authorization(up: FaultyUpstream) -> None:
    complete(up.url("ok"), False, {"key": None})
    assert "authorization" not in up.requests[-1].headers


@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
def test_embeddings_are_passed_through(up: FaultyUpstream, form: object) -> None:
    heard = form(  # type: ignore[operator]
        up.url("ok"), False, endpoint="embeddings", prompts=(), messages=(), params={"input": ["a"], "dimensions": 2}
    )
    (document,) = [event for event in heard.events if isinstance(event, Document)]
    assert document.body["data"][0]["embedding"] == [0.25, -0.5]
    assert sent(up) == {"model": "tiny", "input": ["a"], "dimensions": 2}
    assert heard.usage == Usage(3, 0)


def test_embeddings_errors_have_our_names(up: FaultyUpstream) -> None:
    for mode, code in {"500": "upstream_error", "200-html": "upstream_invalid_response"}.items():
        assert complete(up.url(mode), False, endpoint="embeddings", prompts=(), params={"input": "a"}).code == code


def test_messages_to_a_text_target_and_prompts_to_a_chat_target_are_refused(up: FaultyUpstream) -> None:
    before = up.request_count
    assert complete(up.url("ok"), prompts=()).code == "unsupported_parameter"
    assert chat(up.url("ok"), messages=(), prompts=("a",)).code == "unsupported_parameter"
    assert up.request_count == before


@pytest.mark.parametrize(("value", "code"), [("\ud83d", "invalid_unicode"), (2**70, "invalid_value")])
def test_what_json_cannot_carry_is_refused(up: FaultyUpstream, value: object, code: str) -> None:
    assert complete(up.url("ok"), params={"user": value}).code == code


IDS = {  # the id of a call: the id the model's server sees
    "req_0123456789abcdef0123456789abcdef": "01234567-89ab-cdef-0123-456789abcdef",
    "8d3c7c1e-8f5f-4c39-9a3e-0e1a1f6d2b7a": "8d3c7c1e-8f5f-4c39-9a3e-0e1a1f6d2b7a",
    "8D3C7C1E-8F5F-4C39-9A3E-0E1A1F6D2B7A": "8d3c7c1e-8f5f-4c39-9a3e-0e1a1f6d2b7a",
    "my-run-7": str(uuid.uuid5(uuid.NAMESPACE_OID, "my-run-7")),
    "req_0123": str(uuid.uuid5(uuid.NAMESPACE_OID, "req_0123")),
    "req_0123456789abcdef0123456789abcdeg": str(uuid.uuid5(uuid.NAMESPACE_OID, "req_0123456789abcdef0123456789abcdeg")),
}


@pytest.mark.parametrize("request_id", IDS)
def test_a_server_that_takes_uuids_only_takes_every_id(up: FaultyUpstream, request_id: str) -> None:
    heard = complete(up.url("uuid-only"), False, request_id=request_id)
    assert (heard.code, heard.text()) == (None, TEXT)
    assert up.requests[-1].headers["x-request-id"] == IDS[request_id]
