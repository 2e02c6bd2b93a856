"""Structured output and forced tool calls at every kind of engine and provider that honours or ignores them.

Each cell is a real request. An engine or provider that ignores the field makes a 502 or an error event, or the request
is refused before it is sent, where there is no constraint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.providers.conftest import MODELS
from tests.support.serving import Gateway, gateway
from tests.support.upstream.server import FaultyUpstream

CONSTRAINED = ("vllm", "sglang", "llamacpp")
UNCONSTRAINED = ("llamacpp-python", "tgi", "openai")
ENGINES = (*CONSTRAINED, *UNCONSTRAINED)
SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
PARAMETERS = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


def forced(name: str, choice: Any) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    return {"tools": [tool], "tool_choice": choice}


WANTED: dict[str, dict[str, Any]] = {
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA}}},
    "object": {"response_format": {"type": "json_object"}},
    "required": forced("add", "required"),
    "named": forced("add", {"type": "function", "function": {"name": "add"}}),
}
CALLS = ("required", "named")
TARGETS = [
    *[f"string-{engine}" for engine in ENGINES],
    *[f"chat-{engine}" for engine in ENGINES],
    *[f"litellm-{dialect}" for dialect in MODELS],
]
REFUSED: set[tuple[str, str]] = {
    # Targets and what they refuse before a request is sent.
    *{("string-" + engine, wanted) for engine in UNCONSTRAINED for wanted in ("schema", "object")},
    ("litellm-anthropic", "object"),
    ("litellm-ollama", "required"),
    ("litellm-ollama", "named"),
}


@pytest.fixture(scope="module")
def engines(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with models for strings and for messages, at engines that honour the fields and that ignore them."""
    rows = ["models:"]
    for engine in ENGINES:
        honours = f"constrained-{engine}" if engine in CONSTRAINED else "continues-call"
        for form, speaks, template, mode in (
            ("string", "completions", "chatml-tools", honours),
            ("chat", "chat", "chat", "constrained-chat"),
        ):
            for obeys, url in (("honours", up.url(mode)), ("ignores", up.url("constraint-ignored", text="42"))):
                target = f"{{speaks: {speaks}, engine: {engine}, url: '{url}'}}"
                rows.append(f"  {form}-{engine}-{obeys}: {{template: {template}, targets: [{target}]}}")
    with gateway(tmp_path_factory.mktemp("enforced"), "\n".join(rows)) as running:
        yield running


class Answer:
    """What a client reads: the status, the text, the calls, and the code of the error."""

    def __init__(self, served: Gateway, model: str, content: str, fields: dict[str, Any]) -> None:
        reply = served.chat(model, content, **fields)
        if "text/event-stream" not in reply.headers["content-type"]:
            events = [reply.json()]
        else:
            events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        choices = [choice for event in events for choice in event.get("choices", ())]
        parts = [choice.get("delta") or choice.get("message") or {} for choice in choices]
        calls = [call["function"] for part in parts for call in part.get("tool_calls") or ()]
        self.status = reply.status_code
        self.text = "".join(part.get("content") or "" for part in parts)
        self.names = [call["name"] for call in calls if call.get("name")]
        self.arguments = "".join(call.get("arguments") or "" for call in calls)
        self.code = events[-1].get("error", {}).get("code", "")
        self.ended = any(choice.get("finish_reason") for choice in choices)
        self.notices = reply.headers.get("x-gateway-notice", "")


@pytest.fixture
def ask(request: pytest.FixtureRequest) -> Any:
    def sends(target: str, wanted: str, obeys: str, *, stream: bool) -> Answer:
        fields = {**WANTED[wanted], "stream": stream}
        if not target.startswith("litellm-"):
            return Answer(request.getfixturevalue("engines"), f"{target}-{obeys}", "hi", fields)
        scene = "ignores" if obeys == "ignores" else "chat" if wanted in CALLS else "json"
        if wanted in CALLS:  # the fake providers call this tool
            fields = json.loads(json.dumps(fields).replace('"add"', '"weather"'))
        return Answer(request.getfixturevalue("served"), target.removeprefix("litellm-"), scene, fields)

    return sends


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("target", TARGETS)
def test_what_honours_the_field_answers(ask: Any, target: str, wanted: str, stream: bool) -> None:
    answer = ask(target, wanted, "honours", stream=stream)
    if (target, wanted) in REFUSED:
        assert (answer.status, answer.code) == (400, "unsupported_parameter")
        return
    assert (answer.status, answer.code, answer.ended) == (200, "", True)
    if wanted == "schema":
        jsonschema.validate(json.loads(answer.text), SCHEMA)
    elif wanted == "object":
        assert isinstance(json.loads(answer.text), dict)
    else:
        assert set(answer.names) <= {"add", "weather"}
        assert answer.names
    if target.startswith("string-") and wanted in CALLS:
        constrained = target.removeprefix("string-") in CONSTRAINED
        assert ("constrained_call" if constrained else "unconstrained_call") in answer.notices.replace(
            ": ", " "
        ).split()
        jsonschema.validate(json.loads(answer.arguments), PARAMETERS)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("target", TARGETS)
def test_what_ignores_the_field_is_an_error(ask: Any, target: str, wanted: str, stream: bool) -> None:
    answer = ask(target, wanted, "ignores", stream=stream)
    if (target, wanted) in REFUSED:
        assert (answer.status, answer.code) == (400, "unsupported_parameter")
        return
    code = "tool_choice_not_followed" if wanted in CALLS else "upstream_ignored_parameter"
    assert (answer.code, answer.ended) == (code, False)
    assert answer.status == 502 or (stream and answer.status == 200)
