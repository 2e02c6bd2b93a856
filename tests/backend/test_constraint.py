"""What each engine is sent for an answer that must be JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

import jsonschema
import pytest

from gateway.backend.engines import ENGINES
from gateway.backend.openai.request.constraint import CONSTRAINTS, constraint_fields, no_constraint, refusing_target
from gateway.config.snapshot import Engine
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.exchange import AnswerFormat
from tests.backend.ask import complete, target
from tests.support.upstream.server import FaultyUpstream

SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"größe": {"type": "integer"}}, "required": ["größe"]}
WANTED = AnswerFormat(schema=SCHEMA, name="size")
ANY_OBJECT = AnswerFormat()

SENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # engine: the fields for a schema, and for any object
    "vllm": ({"structured_outputs": {"json": SCHEMA}}, {"structured_outputs": {"json_object": True}}),
    "sglang": (
        {"json_schema": json.dumps(SCHEMA, ensure_ascii=False, separators=(",", ":"))},
        {"json_schema": '{"type":"object"}'},
    ),
    "llamacpp": ({"json_schema": SCHEMA}, {"json_schema": {"type": "object"}}),
}

UNABLE = [engine for engine in get_args(Engine) if ENGINES[engine].constraint is None]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("engine", SENT)
def test_each_engine_gets_its_own_field(up: FaultyUpstream, engine: str, stream: bool) -> None:
    for wanted, fields in zip((WANTED, ANY_OBJECT), SENT[engine], strict=True):
        assert complete(up.url("ok"), stream, {"engine": engine}, answer_format=wanted).error is None
        body = dict(up.requests[-1].body)
        usage = {"stream_options": {"include_usage": True}} if stream else {}
        assert body == {"model": "tiny", "prompt": "1+1=", "stream": stream, **usage, **fields}


@pytest.mark.parametrize("engine", SENT)
def test_without_an_answer_format_nothing_is_added(up: FaultyUpstream, engine: str) -> None:
    complete(up.url("ok"), False, {"engine": engine})
    assert up.requests[-1].body == {"model": "tiny", "prompt": "1+1=", "stream": False}


@pytest.mark.parametrize("engine", UNABLE)
def test_an_engine_without_a_constraint_refuses_and_gets_no_request(up: FaultyUpstream, engine: str) -> None:
    before = up.request_count
    heard = complete(up.url("ok"), False, {"engine": engine}, answer_format=WANTED)
    assert heard.error is not None
    assert (heard.code, heard.error.param) == ("unsupported_parameter", "response_format")
    assert up.request_count == before


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("engine", SENT)
def test_an_engine_that_reads_its_field_answers_as_the_schema_says(
    up: FaultyUpstream, engine: str, stream: bool
) -> None:
    for seed in range(3):
        url = up.url(f"constrained-{engine}", seed=seed)
        heard = complete(url, stream, {"engine": engine}, answer_format=WANTED)
        jsonschema.validate(json.loads(heard.text()), SCHEMA)
        assert heard.finishes == {0: "stop"}
        assert isinstance(json.loads(complete(url, stream, {"engine": engine}, answer_format=ANY_OBJECT).text()), dict)


@pytest.mark.parametrize("name", sorted(CONSTRAINTS))
def test_a_constraint_of_the_client_beside_response_format_is_a_conflict(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"^response_format and {name} both constrain the answer") as caught:
        constraint_fields(WANTED, {name: "x", "temperature": 0}, target("http://x/v1", engine="vllm"))
    assert caught.value.param == name


def test_a_constraint_of_the_client_alone_is_sent_unchanged(up: FaultyUpstream) -> None:
    own = {"structured_outputs": {"regex": "[0-9]+"}}
    assert complete(up.url("ok"), False, {"engine": "vllm"}, params=own).error is None
    assert up.requests[-1].body["structured_outputs"] == {"regex": "[0-9]+"}


def test_the_refusing_target_of_a_model_is_the_first_one_without_a_constraint() -> None:
    able = [target("http://x/v1", engine=engine, label=engine) for engine in SENT]
    unable = [target("http://x/v1", engine="tgi", label="m/3"), target("http://x/v1", engine="openai", label="m/4")]
    assert refusing_target(able) is None
    assert refusing_target([*able, *unable]) is unable[0]


ERRORS = {
    "engine": ({"engine": "tgi"}, "the target m/0 (engine: tgi) cannot constrain an answer to JSON"),
    "unknown engine": ({}, "the target m/0 (engine: openai) cannot constrain an answer to JSON"),
    "embedded": ({"speaks": "embedded"}, "the target m/0 (speaks: embedded) cannot constrain an answer to JSON"),
    "scripted": ({"speaks": "scripted"}, "the target m/0 (speaks: scripted) cannot constrain an answer to JSON"),
}


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("case", ERRORS)
def test_the_error_names_the_target_and_what_to_do(case: str, has_tools: bool) -> None:
    changes, beginning = ERRORS[case]
    error = no_constraint(target("http://x/v1", **changes), has_tools=has_tools)
    assert isinstance(error, UnsupportedParameter)
    assert error.message.startswith(
        beginning + ("; send the schema as a tool" if has_tools else "; leave the format out")
    )
    assert all(engine in error.message for engine in SENT)


def test_the_error_for_llama_cpp_python_names_the_server_that_can() -> None:
    error = no_constraint(target("http://x/v1", engine="llamacpp-python"))
    assert error.param == "response_format"
    assert error.message == (
        "the target m/0 (engine: llamacpp-python) cannot constrain an answer to JSON; serve the model with "
        "llama-server of llama.cpp (engine: llamacpp), which receives response_format as json_schema, or leave the "
        "format out and describe it in a message, or use a model whose target has an engine that can (engine: vllm, "
        "sglang, llamacpp), or reads messages (speaks: chat)"
    )
