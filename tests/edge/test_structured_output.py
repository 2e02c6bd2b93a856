"""Structured output of string models: at engines that obey their constraint, and at engines that ignore it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from tests.support.random_schema import RandomSchema
from tests.support.serving import Gateway, gateway
from tests.support.upstream.modes_constraint import PROSE
from tests.support.upstream.server import FaultyUpstream

ENGINES = ("vllm", "sglang", "llamacpp")
MODEL = "  {name}: {{template: {template}, targets: [{{speaks: completions, url: '{url}', engine: {engine}}}]}}\n"
THINKING = """
kind: meta
round:
  - {role: HUMAN, begin: "<H>", end: "</H>"}
  - {role: BOT, begin: "<B>", end: "</B>", generate: true}
reserved_roles: [{role: SYSTEM, begin: "<S>", end: "</S>"}]
thinking: {begin: "<think>", end: "</think>"}
"""
TOOLS = """
kind: meta
round:
  - {role: HUMAN, begin: "<H>", end: "</H>"}
  - {role: BOT, begin: "<B>", end: "</B>", generate: true}
reserved_roles: [{role: SYSTEM, begin: "<S>", end: "</S>"}]
roles: {tool: HUMAN}
tools:
  parser: %s
  declare: {begin: "<tools>", end: "</tools>"}
  calls: {each_begin: "", body: json%s}
  force: {begin: '%s', end: '", "arguments": '}
"""
FILES = {
    "meta_templates/format-key.yaml": TOOLS % ("llama3_json", ", key: parameters", '{"name": "'),
    "meta_templates/template-key.yaml": TOOLS % ("llama3_json", "", '{"name": "'),
    "meta_templates/thinks-tools.yaml": THINKING + (TOOLS % ("hermes", "", '{"name": "')).partition("}]\n")[2],
    "meta_templates/list.yaml": TOOLS % ("json", "", '[{"name": "'),
    "meta_templates/thinks.yaml": THINKING,
    "policies/forbids.yaml": "params: {forbid: [response_format]}",
    "policies/forces.yaml": "params: {force: {response_format: {type: json_object}}}",
    "policies/rejects.yaml": "params: {unknown: reject}",
    "policies/falls-back.yaml": "delivery: {fallback: true}",
    "policies/cached.yaml": "cache: {mode: 'on'}\nparams: {force: {temperature: 0}}",
}
SUM = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}, "sum": {"enum": [1, 2]}},
    "required": ["steps", "sum"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SUM, "strict": True}}
SUMMED = {"steps": ["a"], "sum": 1}
CALLED = '{"name": "add", "arguments": {"a": 1, "b": 3}}'
OTHER_CALL = '{"name": "add", "arguments": {"a": 4}}'
SENT: dict[str, dict[str, Any]] = {  # engine: what the engine gets for FORMAT
    "vllm": {"structured_outputs": {"json": SUM}},
    "sglang": {"json_schema": json.dumps(SUM, separators=(",", ":"))},
    "llamacpp": {"json_schema": SUM},
}


@pytest.fixture(scope="module")
def served(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rows = [(engine, "chatml", up.url(f"constrained-{engine}"), engine) for engine in ENGINES]
    rows += [
        ("ignores", "chatml", up.url("constraint-ignored"), "vllm"),
        ("other-form", "chatml", up.url("constraint-ignored", text='{"sum": 3}'), "vllm"),
        ("silent", "chatml", up.url("constraint-ignored", text='{"sum": 3}'), "llamacpp"),
        ("held-back", "chatml", up.url("constraint-ignored", text="S<b>ure", size=2), "vllm"),
        ("prose-cut", "chatml", up.url("constraint-ignored", cut=4), "vllm"),
        ("cut", "chatml", up.url("constrained-vllm", cut=4), "vllm"),
        ("unknown", "chatml", up.url("constrained-vllm"), "openai"),
        ("llamacpp-python", "chatml-tools", up.url("continues-call"), "llamacpp-python"),
        ("tools", "chatml-tools", up.url("constrained-vllm"), "vllm"),
        ("tools-ignored", "chatml-tools", up.url("constraint-ignored"), "vllm"),
        ("tools-unknown", "chatml-tools", up.url("continues-call"), "openai"),
        ("tools-call", "chatml-tools", up.url("continues-call"), "vllm"),
        (
            "tools-other",
            "chatml-tools",
            up.url("constraint-ignored", text=OTHER_CALL),
            "vllm",
        ),
        ("free-form", "chatml-tools", up.url("constrained-vllm", free=json.dumps(SUMMED)), "vllm"),
        (
            "free-call",
            "chatml-tools",
            up.url("constrained-vllm", free=f"I add.<tool_call>{CALLED}</tool_call>"),
            "vllm",
        ),
        ("free-unknown", "chatml-tools", up.url("constraint-ignored", text=json.dumps(SUMMED)), "openai"),
        (
            "free-thinks",
            "thinks-tools",
            up.url("constrained-vllm", free=f"<think>hm</think>{json.dumps(SUMMED)}"),
            "vllm",
        ),
        ("thinks", "thinks", up.url("constrained-vllm", free="<think>hm"), "vllm"),
        *[(name, name, up.url("constrained-vllm"), "vllm") for name in ("format-key", "template-key")],
        ("list", "list", up.url("constraint-ignored", text='add", "arguments": {"a": 1}}]'), "vllm"),
        ("answers", "thinks", up.url("constrained-vllm", free="It is 2."), "vllm"),
    ]
    config = "models:\n" + "".join(
        MODEL.format(name=name, template=template, url=url, engine=engine) for name, template, url, engine in rows
    )
    config += MODEL.format(name="falls-back", template="chatml", url=up.url("reset"), engine="vllm").replace(
        "template:", "fallback: [sglang], policy: falls-back, template:"
    )
    config += MODEL.format(
        name="cached-tools", template="chatml-tools", url=up.url("constraint-ignored", text=OTHER_CALL), engine="vllm"
    ).replace("template:", "policy: cached, template:")
    for policy in ("forbids", "forces", "rejects", "cached"):
        url = up.url("constraint-ignored" if policy == "cached" else "constrained-vllm")
        config += MODEL.format(name=policy, template="chatml", url=url, engine="vllm").replace(
            "template:", f"policy: {policy}, template:"
        )
    with gateway(tmp_path_factory.mktemp("structured"), config, files=FILES) as running:
        yield running


def sent(up: FaultyUpstream) -> list[Mapping[str, Any]]:
    """The bodies of all completions. The gateway also asks for the length of the context."""
    return [request.body for request in up.requests if "stream" in request.body]


def streamed(served: Gateway, model: str, **fields: Any) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    return events_of(served.chat(model, stream=True, **fields).text)


def events_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def content(events: list[dict[str, Any]]) -> str:
    return "".join(c["delta"].get("content") or "" for event in events for c in event.get("choices", ()))


@pytest.mark.parametrize("engine", SENT)
def test_the_schema_becomes_the_engines_own_field(served: Gateway, up: FaultyUpstream, engine: str) -> None:
    answer = served.chat(engine, response_format=FORMAT)
    assert answer.status_code == 200, answer.text
    jsonschema.validate(json.loads(answer.json()["choices"][0]["message"]["content"]), SUM)
    body = sent(up)[-1]
    assert {name: body[name] for name in SENT[engine]} == SENT[engine]
    assert "response_format" not in body
    assert body["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert "unverified_parameter" not in answer.headers.get("x-gateway-notice", "")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_any_json_object(served: Gateway, engine: str, stream: bool) -> None:
    form = {"type": "json_object"}
    if stream:
        text = content(streamed(served, engine, response_format=form))
    else:
        text = served.chat(engine, response_format=form).json()["choices"][0]["message"]["content"]
    assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_to_random_schemas_validate(served: Gateway, engine: str) -> None:
    ended = 0
    for seed in range(50):
        schema = RandomSchema(seed).schema
        form = {"type": "json_schema", "json_schema": {"name": "random", "schema": schema}}
        answer = served.chat(engine, response_format=form)
        assert answer.status_code == 200, (schema, answer.text)
        choice = answer.json()["choices"][0]
        if choice["finish_reason"] == "stop":
            ended += 1
            jsonschema.validate(json.loads(choice["message"]["content"]), schema)
    assert ended >= 45


@pytest.mark.parametrize("model", ["ignores", "cached"])
def test_an_engine_that_ignores_the_schema_is_an_error_that_is_not_cached(
    served: Gateway, up: FaultyUpstream, model: str
) -> None:
    before = len(sent(up))
    for _ in range(2):
        error = served.chat(model, response_format=FORMAT)
        assert (error.status_code, error.json()["error"]["code"]) == (502, "upstream_ignored_parameter")
        assert error.json()["error"]["param"] == "response_format"
        assert "--reasoning-parser" in error.json()["error"]["message"]
    assert len(sent(up)) == before + 2


def test_an_engine_that_ignores_the_schema_ends_a_stream_with_an_error(served: Gateway) -> None:
    events = streamed(served, "other-form", response_format=FORMAT)
    assert content(events) == '{"sum": 3}'
    assert events[-1]["error"]["code"] == "upstream_ignored_parameter"
    assert not any(choice.get("finish_reason") for event in events[:-1] for choice in event["choices"])


@pytest.mark.parametrize("model", ["ignores", "held-back", "prose-cut"])
@pytest.mark.parametrize("form", [FORMAT, {"type": "json_object"}], ids=["schema", "object"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_that_begins_with_prose_is_an_error_before_any_text_is_sent(
    served: Gateway, model: str, form: dict[str, Any], stream: bool
) -> None:
    error = served.chat(model, response_format=form, stream=stream)
    assert (error.status_code, error.json()["error"]["code"]) == (502, "upstream_ignored_parameter")
    assert 'the text begins with "S"' in error.json()["error"]["message"]


def test_a_schema_of_any_type_may_begin_with_any_value(served: Gateway) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "any", "schema": {"enum": [None, "x", 7, [1]]}}}
    assert json.loads(content(streamed(served, "vllm", response_format=form))) in [None, "x", 7, [1]]
    assert served.chat("ignores", response_format=form, stream=True).status_code == 502


def test_each_choice_is_validated(served: Gateway) -> None:
    assert served.chat("vllm", response_format=FORMAT, n=3).status_code == 200
    assert served.chat("ignores", response_format=FORMAT, n=3).status_code == 502


def test_an_answer_that_was_cut_is_not_validated(served: Gateway) -> None:
    answer = served.chat("cut", response_format=FORMAT)
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert "answer_unchecked: choices[0]=length" in answer.headers["x-gateway-notice"]


def test_an_answer_that_a_stop_of_the_client_may_have_cut_is_not_validated(served: Gateway) -> None:
    answer = served.chat("other-form", response_format=FORMAT, stop=[":"])
    assert answer.json()["choices"][0]["message"]["content"] == '{"sum"'
    assert "answer_unchecked: choices[0]=client's stop" in answer.headers["x-gateway-notice"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("model", "stop"), [("ignores", "zzz"), ("ignores", "!"), ("other-form", "zzz")])
def test_a_stop_of_the_client_that_did_not_cut_the_answer_hides_no_error(
    served: Gateway, model: str, stop: str, stream: bool
) -> None:
    answer = served.chat(model, response_format=FORMAT, stop=[stop], stream=stream)
    assert '"code":"upstream_ignored_parameter"' in answer.text
    assert answer.status_code == (200 if stream and model == "other-form" else 502)


def test_an_engine_that_reports_no_stops_may_have_cut_the_answer(served: Gateway) -> None:
    answer = served.chat("silent", response_format=FORMAT, stop=["zzz"])
    assert answer.status_code == 200, answer.text
    notice = "answer_unchecked: choices[0]=may have been cut by a stop of the client"
    assert notice in answer.headers["x-gateway-notice"]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an engine without a constraint": ("unknown", {}, "engine: openai"),
    "llama-cpp-python": ("llamacpp-python", {}, "serve the model with llama-server of llama.cpp (engine: llamacpp)"),
    "an object of llama-cpp-python": ("llamacpp-python", {"response_format": {"type": "json_object"}}, "llama-server"),
    "a policy that forbids it": ("forbids", {}, "policy does not allow response_format"),
    "a message to continue": ("vllm", {"continue_final_message": True}, "continue_final_message"),
    "two constraints": ("vllm", {"structured_outputs": {"regex": "a"}}, "both constrain the answer"),
    "several answers of a model that reasons": ("thinks", {"n": 2}, "n above 1"),
    "no schema": ("vllm", {"response_format": {"type": "json_schema"}}, "response_format.json_schema is missing"),
    "a schema that is none": (
        "vllm",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "sum"}}}},
        "response_format.json_schema.schema",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_constrained_is_refused_by_name(served: Gateway, up: FaultyUpstream, case: str) -> None:
    model, fields, message = REFUSED[case]
    before = len(sent(up))
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}]
    if "continue_final_message" not in fields:
        messages = messages[:1]
    body = {"model": model, "messages": messages, "response_format": FORMAT, **fields}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert len(sent(up)) == before


def test_a_policy_can_force_json(served: Gateway, up: FaultyUpstream) -> None:
    assert isinstance(json.loads(served.chat("forces").json()["choices"][0]["message"]["content"]), dict)
    assert sent(up)[-1]["structured_outputs"] == {"json_object": True}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", ["thinks", "answers"])
def test_a_model_that_reasons_makes_two_calls(served: Gateway, up: FaultyUpstream, model: str, stream: bool) -> None:
    before = len(sent(up))
    thought = "hm" if model == "thinks" else ""
    if stream:
        events = streamed(served, model, response_format=FORMAT)
        text = content(events)
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == thought
    else:
        answer = served.chat(model, response_format=FORMAT)
        message = answer.json()["choices"][0]["message"]
        text = message["content"]
        assert (message.get("reasoning_content") or "") == thought
        assert "two_calls" in answer.headers["x-gateway-notice"]
    jsonschema.validate(json.loads(text), SUM)
    free, constrained = sent(up)[before:]
    assert "structured_outputs" not in free
    assert constrained["structured_outputs"] == {"json": SUM}
    assert constrained["prompt"] == free["prompt"] + ("<think>hm</think>" if thought else "")


def test_the_explanation_and_render_show_the_format(served: Gateway) -> None:
    body = {"model": "vllm", "messages": [{"role": "user", "content": "hi"}], "response_format": FORMAT}
    rendered = served.http.post("/v1/render", json=body).json()
    answered = served.chat("vllm", response_format=FORMAT, gateway={"explain": True}).json()["gateway"]
    assert rendered["params"]["response_format"] == answered["params"]["response_format"] == FORMAT
    assert rendered["constraint"] == answered["constraint"] == {"vllm/0": SENT["vllm"]}


def test_an_error_of_a_response_names_the_field_of_responses(served: Gateway) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"type": "sum"}}
    answer = served.http.post("/v1/responses", json={"model": "vllm", "input": "hi", "text": {"format": form}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "text.format.schema.type")


def test_text_is_no_constraint(served: Gateway, up: FaultyUpstream) -> None:
    answer = served.chat("ignores", response_format={"type": "text"})
    assert answer.json()["choices"][0]["message"]["content"] == PROSE
    assert not sent(up)[-1].keys() & {"response_format", "structured_outputs"}


# ---------------------------------------------------------------- completions


def complete(served: Gateway, model: str, prompt: Any = "x", **fields: Any) -> Any:
    body = {"model": model, "prompt": prompt, "response_format": FORMAT, **fields}
    return served.http.post("/v1/completions", json=body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_completion_is_constrained_and_checked_as_a_chat(
    served: Gateway, up: FaultyUpstream, engine: str, stream: bool
) -> None:
    answer = complete(served, engine, stream=stream)
    assert answer.status_code == 200, answer.text
    events = events_of(answer.text) if stream else [answer.json()]
    text = "".join(choice["text"] for event in events for choice in event["choices"])
    jsonschema.validate(json.loads(text), SUM)
    body = sent(up)[-1]
    assert {name: body[name] for name in SENT.get(engine, {})} == SENT.get(engine, {})
    assert (body["prompt"], "response_format" in body) == ("x", False)
    assert "unverified_parameter" not in answer.headers.get("x-gateway-notice", "")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", ["ignores", "other-form"])
def test_an_engine_that_ignores_the_schema_of_a_completion_is_an_error(
    served: Gateway, model: str, stream: bool
) -> None:
    answer = complete(served, model, stream=stream)
    assert '"code":"upstream_ignored_parameter"' in answer.text
    assert answer.status_code == (200 if stream and model == "other-form" else 502)


def test_the_answer_to_each_prompt_is_checked(served: Gateway) -> None:
    texts = [choice["text"] for choice in complete(served, "llamacpp", ["x", "y"], n=2).json()["choices"]]
    assert len(texts) == 4
    for text in texts:
        jsonschema.validate(json.loads(text), SUM)
    assert complete(served, "ignores", ["x", "y"]).status_code == 502


COMPLETIONS_REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an engine without a constraint": ("unknown", {}, "response_format"),
    "llama-cpp-python": ("llamacpp-python", {}, "response_format"),
    "an echo": ("vllm", {"echo": True}, "echo"),
    "two constraints": ("vllm", {"guided_json": {}}, "guided_json"),
    "an unknown type": ("vllm", {"response_format": {"type": "grammar"}}, "response_format.type"),
    "a schema that is none": (
        "vllm",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "sum"}}}},
        "response_format.json_schema.schema.type",
    ),
}


@pytest.mark.parametrize("case", COMPLETIONS_REFUSED)
def test_a_completion_that_cannot_be_constrained_is_refused_by_name(
    served: Gateway, up: FaultyUpstream, case: str
) -> None:
    model, fields, param = COMPLETIONS_REFUSED[case]
    before = len(sent(up))
    answer = complete(served, model, **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert len(sent(up)) == before


def test_a_policy_that_refuses_unknown_fields_knows_the_format_of_a_completion(served: Gateway) -> None:
    assert isinstance(json.loads(complete(served, "rejects").json()["choices"][0]["text"]), dict)


@pytest.mark.parametrize(
    ("field", "way"), [("respons_format", '(did you mean "response_format"?)'), ("verbosity", "; leave it out")]
)
def test_the_suggestion_for_an_unknown_field_is_a_field_of_the_endpoint(served: Gateway, field: str, way: str) -> None:
    error = complete(served, "rejects", **{field: "x"}).json()["error"]
    assert (error["param"], error["message"].endswith(way)) == (field, True), error


def test_text_is_no_constraint_of_a_completion(served: Gateway) -> None:
    answer = complete(served, "ignores", response_format={"type": "text"})
    assert answer.json()["choices"][0]["text"] == PROSE


def test_a_policy_can_force_json_on_completions(served: Gateway, up: FaultyUpstream) -> None:
    answer = served.http.post("/v1/completions", json={"model": "forces", "prompt": "x"})
    assert isinstance(json.loads(answer.json()["choices"][0]["text"]), dict)
    assert sent(up)[-1]["structured_outputs"] == {"json_object": True}


# ---------------------------------------------------------------- tools and a schema in one request

TOOL = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", ["free-form", "free-unknown", "free-thinks"])
def test_an_answer_beside_tools_is_free_and_checked(
    served: Gateway, up: FaultyUpstream, model: str, stream: bool
) -> None:
    before = len(sent(up))
    answer = served.chat(model, tools=[TOOL], response_format=FORMAT, stream=stream)
    assert answer.status_code == 200, answer.text
    assert "answer_checked_only: response_format" in answer.headers["x-gateway-notice"]
    text = content(events_of(answer.text)) if stream else answer.json()["choices"][0]["message"]["content"]
    assert json.loads(text) == SUMMED
    (body,) = sent(up)[before:]
    assert not body.keys() & {"response_format", "structured_outputs"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_instead_of_an_answer_is_not_checked(served: Gateway, stream: bool) -> None:
    answer = served.chat("free-call", tools=[TOOL], response_format=FORMAT, stream=stream)
    assert (answer.status_code, "error" in answer.text, '"tool_calls"' in answer.text) == (200, False, True)
    text = content(events_of(answer.text)) if stream else answer.json()["choices"][0]["message"]["content"]
    assert text == "I add."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_beside_tools_that_is_not_in_the_form_is_an_error(served: Gateway, stream: bool) -> None:
    answer = served.chat("tools", tools=[TOOL], response_format=FORMAT, stream=stream)
    error = events_of(answer.text)[-1]["error"] if stream else answer.json()["error"]
    assert (error["code"], error["param"]) == ("upstream_ignored_parameter", "response_format")
    assert error["message"].startswith(
        "tools may be called, so nothing constrained the answer, and it is not in the resp"
    )
    assert 'finish_reason":"stop' not in answer.text


def test_a_stored_answer_without_a_format_is_not_sent_to_a_request_with_one(
    served: Gateway, up: FaultyUpstream
) -> None:
    before = len(sent(up))
    for _ in range(2):
        assert served.chat("cached-tools", tools=[TOOL]).status_code == 200
    for _ in range(2):
        assert served.chat("cached-tools", tools=[TOOL], response_format=FORMAT).status_code == 502
    assert len(sent(up)) == before + 3


def test_a_stored_call_of_a_loose_tool_is_not_sent_to_a_request_with_a_strict_one(
    served: Gateway, up: FaultyUpstream
) -> None:
    before = len(sent(up))
    for _ in range(2):
        assert served.chat("cached-tools", tools=[LOOSE], tool_choice="required").status_code == 200
    for _ in range(2):
        assert served.chat("cached-tools", tools=[ADD], tool_choice="required").status_code == 502
    assert len(sent(up)) == before + 3


@pytest.mark.parametrize(
    "tool", [TOOL, {"type": "function", "function": {"name": "add", "strict": True}}], ids=["free", "strict"]
)
@pytest.mark.parametrize("model", ["tools", "tools-unknown"])
def test_a_forced_call_has_no_other_form(served: Gateway, up: FaultyUpstream, model: str, tool: dict[str, Any]) -> None:
    answer = served.chat(model, tools=[tool], tool_choice="required", response_format=FORMAT)
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    assert "omitted_parameter: response_format" in answer.headers["x-gateway-notice"]
    assert "response_format" not in sent(up)[-1]
    assert ("structured_outputs" in sent(up)[-1]) == (model == "tools")


def test_a_schema_beside_tools_must_be_valid(served: Gateway, up: FaultyUpstream) -> None:
    before = len(sent(up))
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "sum"}}}
    answer = served.chat("tools", tools=[TOOL], response_format=form)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format.json_schema.schema.type")
    assert len(sent(up)) == before


def test_a_response_with_tools_and_a_format(served: Gateway) -> None:
    form = {"type": "json_schema", "name": "sum", "schema": SUM, "strict": True}
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    body = {"model": "free-form", "input": "hi", "tools": [tool], "text": {"format": form}}
    answer = served.http.post("/v1/responses", json=body)
    assert "answer_checked_only: text.format" in answer.headers["x-gateway-notice"]
    assert json.loads(answer.json()["output"][0]["content"][0]["text"]) == SUMMED


# ---------------------------------------------------------------- forced tools

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/number"}, "b": {"$ref": "#/$defs/number"}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"number": {"enum": [1, 2, 3]}},
}
ADD = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS, "strict": True}}
LOOSE = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
NOW = {"type": "function", "function": {"name": "now"}}
NAMED = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_forced_call_of_a_strict_tool_is_constrained(
    served: Gateway, up: FaultyUpstream, choice: Any, stream: bool
) -> None:
    fields = {"tools": [ADD], "tool_choice": choice}
    if stream:
        events = streamed(served, "tools", **fields)
        pieces = [c for event in events for one in event["choices"] for c in one["delta"].get("tool_calls") or ()]
        name = "".join(piece["function"].get("name") or "" for piece in pieces)
        arguments = "".join(piece["function"].get("arguments") or "" for piece in pieces)
    else:
        answer = served.chat("tools", **fields)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"
        (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
        name, arguments = call["function"]["name"], call["function"]["arguments"]
    assert name == "add"
    jsonschema.validate(json.loads(arguments), PARAMETERS)
    body = sent(up)[-1]
    assert body["prompt"].endswith("<|im_start|>assistant\n<tool_call>\n")
    schema = body["structured_outputs"]["json"]
    jsonschema.validate({"name": "add", "arguments": {"a": 1, "b": 3}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "add", "arguments": {"a": 1, "b": 4}}, schema)


def test_a_required_call_may_be_that_of_any_tool(served: Gateway) -> None:
    answer = served.chat("tools", tools=[ADD, NOW], tool_choice="required").json()
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] in ("add", "now")


@pytest.mark.parametrize(
    ("model", "code"),
    [("tools-ignored", "tool_choice_not_followed"), ("tools-other", "upstream_ignored_parameter")],
    ids=["prose", "arguments that the schema does not allow"],
)
def test_an_engine_that_ignores_the_call_is_an_error(served: Gateway, model: str, code: str) -> None:
    answer = served.chat(model, tools=[ADD], tool_choice="required")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, code)


def test_only_strict_arguments_are_checked(served: Gateway) -> None:
    answer = served.chat("tools-other", tools=[LOOSE], tool_choice="required").json()
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": 4}'


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize(
    ("parameters", "applies"),
    [
        (PARAMETERS, True),
        ({key: value for key, value in PARAMETERS.items() if key != "type"}, True),
        ({**PARAMETERS, "$id": "https://example.com/add"}, False),
        ({**PARAMETERS, "required": "a"}, False),
        ({**PARAMETERS, "description": "x" * 70_000}, False),
        ({**PARAMETERS, "type": ["object", "null"]}, False),
        (None, False),
    ],
    ids=["declared", "no type", "an id", "no valid schema", "too long", "another type", "no parameters"],
)
def test_a_forced_call_without_strict_is_constrained_as_declared_if_the_schema_can_be_used(
    served: Gateway, up: FaultyUpstream, choice: Any, parameters: Any, applies: bool
) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": parameters}}
    answer = served.chat("tools", tools=[tool], tool_choice=choice)
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    assert "constrained_call" in answer.headers["x-gateway-notice"].replace(":", ";").split("; ")
    schema = sent(up)[-1]["structured_outputs"]["json"]
    assert sent(up)[-1]["prompt"].endswith("<|im_start|>assistant\n<tool_call>\n")
    jsonschema.validate({"name": "add", "arguments": {"a": 1, "b": 3}}, schema)
    allows = jsonschema.Draft202012Validator(schema).is_valid({"name": "add", "arguments": {"a": 1, "b": 4}})
    assert allows is not applies
    assert not jsonschema.Draft202012Validator(schema).is_valid({"name": "add", "arguments": 4})


def test_a_tool_that_cannot_be_expressed_leaves_strict_ones_their_room(served: Gateway, up: FaultyUpstream) -> None:
    long = {"type": "function", "function": {"name": "long", "parameters": {"description": "x" * 65_000}}}
    answer = served.chat("tools", tools=[long, strict_tool(LONG)], tool_choice="required")
    assert answer.status_code == 200, answer.text
    assert sent(up)[-1]["structured_outputs"]["json"]["$defs"] == {"call1": LONG, "call0": {"type": "object"}}


UNCONSTRAINED: dict[str, tuple[str, dict[str, Any], str]] = {
    "strict at an engine without a constraint": ("tools-unknown", {"tools": [ADD]}, "a target cannot constrain"),
    "an engine without a constraint": ("tools-unknown", {"tools": [LOOSE]}, "a target cannot constrain"),
    "llama-cpp-python": ("llamacpp-python", {"tools": [LOOSE]}, "a target cannot constrain"),
    "calls in a list": ("list", {"tools": [LOOSE]}, "in the format json of this model is not one JSON object"),
    "a constraint of the client": ("tools-call", {"tools": [LOOSE], "guided_json": {}}, "guided_json constrains"),
}


@pytest.mark.parametrize("case", UNCONSTRAINED)
def test_a_call_that_cannot_be_constrained_is_forced_by_the_prompt_with_a_notice(
    served: Gateway, up: FaultyUpstream, case: str
) -> None:
    model, fields, reason = UNCONSTRAINED[case]
    answer = served.chat(model, tool_choice="required", **fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    notice = answer.headers["x-gateway-notice"]
    assert "unconstrained_call: " in notice
    assert reason in notice
    assert sent(up)[-1]["prompt"].endswith('{"name": "')
    assert "structured_outputs" not in sent(up)[-1]


def test_a_call_that_is_not_forced_is_not_constrained(served: Gateway, up: FaultyUpstream) -> None:
    assert served.chat("tools", tools=[ADD]).status_code == 200
    assert "structured_outputs" not in sent(up)[-1]


@pytest.mark.parametrize(
    ("model", "key"), [("format-key", "parameters"), ("template-key", "arguments")], ids=["format", "template"]
)
def test_the_call_has_the_key_of_the_model(served: Gateway, up: FaultyUpstream, model: str, key: str) -> None:
    answer = served.chat(model, tools=[ADD], tool_choice="required")
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    assert key in sent(up)[-1]["structured_outputs"]["json"]["properties"]
    assert sent(up)[-1]["prompt"].endswith("<B>")


def strict_tool(parameters: dict[str, Any], name: str = "add") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "strict": True, "parameters": parameters}}


LONG = {"type": "object", "properties": {}, "additionalProperties": False, "description": "x" * 6000}
MANY = [strict_tool(LONG, f"tool{number}") for number in range(12)]
ANCHORED = {"type": "object", "properties": {}, "additionalProperties": False, "$anchor": "n"}
TOOLS_REFUSED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "parameters that break the rules of strict": (
        "tools",
        {
            "tools": [
                {"type": "function", "function": {"name": "add", "strict": True, "parameters": {"type": "object"}}}
            ]
        },
        "tools[0].function.parameters",
        "additionalProperties",
    ),
    "an anchor": (
        "tools",
        {"tools": [strict_tool(ANCHORED)]},
        "tools[0].function.parameters.$anchor",
        "is not supported",
    ),
    "too much in all tools together": ("tools", {"tools": MANY}, "tools[10].function.parameters", "together"),
    "calls in a list": ("list", {"tools": [ADD]}, "tools", "not one JSON object"),
    "a second constraint": ("tools", {"tools": [ADD], "guided_json": {}}, "tools", "strict with a forced tool"),
}


@pytest.mark.parametrize("case", TOOLS_REFUSED)
def test_a_strict_call_that_cannot_be_constrained_is_refused_by_name(
    served: Gateway, up: FaultyUpstream, case: str
) -> None:
    model, fields, param, message = TOOLS_REFUSED[case]
    before = len(sent(up))
    answer = served.chat(model, tool_choice="required", **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert message in answer.json()["error"]["message"]
    assert len(sent(up)) == before


def test_a_model_falls_back_to_one_with_another_engine(served: Gateway, up: FaultyUpstream) -> None:
    answer = served.chat("falls-back", response_format=FORMAT)
    assert answer.status_code == 200, answer.text
    jsonschema.validate(json.loads(answer.json()["choices"][0]["message"]["content"]), SUM)
    assert "json_schema" in sent(up)[-1]
