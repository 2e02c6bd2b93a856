"""Tools and reasoning end to end: the OpenAI SDK, the gateway, and an engine that only completes text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

from tests.journeys.sdk import SdkWorld
from tests.support.upstream.reply import Request
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import world_fixture

ADD: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
NAMED = {"type": "function", "function": {"name": "add"}}
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "12+34=?"}]
ARGUMENTS = '{"a": 12, "b": 34}'
OBJECT = f'{{"name": "add", "arguments": {ARGUMENTS}}}'
CALL = f"<tool_call>\n{OBJECT}\n</tool_call>"

PLAIN = """
kind: meta
round:
  - {role: HUMAN, begin: "Q: ", end: "\\n"}
  - {role: BOT, begin: "A: ", end: "<eob>\\n", generate: true}
roles: {tool: HUMAN}
tools:
  parser: PARSER
  declare: {turn: first_user, place: before_text, begin: "Tools: ", each: function, end: "\\n"}
  calls: CALLS
  results: {begin: "Result: "}
"""
FAMILIES = {  # model: (parser, form of calls in the template, text of the engine, text in the history)
    "bare": ("json", "{}", OBJECT, OBJECT),
    "llama": ("llama3_json", "{key: parameters}", f'{{"name": "add", "parameters": {ARGUMENTS}}}', None),
    "python": ("pythonic", '{begin: "[", body: python, end: "]"}', "[add(a=12, b=34)]", None),
    "mistral": ("mistral", '{begin: "[TOOL_CALLS][", end: "]"}', f"[TOOL_CALLS][{OBJECT}]", None),
    "lazy": (
        "lazyllm\n  tokens: {start: '<s|', args: '<a|', end: '<e|'}",
        '{each_begin: "<s|", body: named, between: "<a|", each_end: "<e|"}',
        f"<s|add<a|{ARGUMENTS}<e|",
        None,
    ),
}
CHATS = {  # parser: (end of a turn, text of the engine, first prompt, added text of the second), with {slots}
    "hermes": (
        "<|im_end|>",
        f"I add.\n{CALL}",
        "<|im_start|>system\n<tools>\n{tool}\n</tools><|im_end|>\n"
        "<|im_start|>user\n12+34=?<|im_end|>\n<|im_start|>assistant\n",
        f"I add.\n{CALL}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n46\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    ),
    "json": (
        "<|end|>",
        OBJECT,
        "<|user|><|tool|>[{function}]<|/tool|>12+34=?<|end|><|assistant|>",
        f"{OBJECT}<|end|><|tool|>46<|end|><|assistant|>",
    ),
    "llama3_json": (
        "<|eot_id|>",
        f'{{"name": "add", "parameters": {ARGUMENTS}}}',
        "<|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nCall one of these:\n\n{indented}\n\n12+34=?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        f'{{"name": "add", "parameters": {ARGUMENTS}}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"46"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "pythonic": (
        "<|eot|>",
        "[add(a=12, b=34)]",
        "<|header_start|>system<|header_end|>\n\nAnswer with [name(key=value)].\n[{tool}]<|eot|>"
        "<|header_start|>user<|header_end|>\n\n12+34=?<|eot|><|header_start|>assistant<|header_end|>\n\n",
        "[add(a=12, b=34)]<|eot|><|header_start|>ipython<|header_end|>\n\n46<|eot|>"
        "<|header_start|>assistant<|header_end|>\n\n",
    ),
    "mistral": (
        "</s>",
        f"[TOOL_CALLS] [{OBJECT}]",
        "[AVAILABLE_TOOLS] [{tool}][/AVAILABLE_TOOLS][INST] 12+34=?[/INST]",
        f'[TOOL_CALLS] [{OBJECT[:-1]}, "id": "{{id}}"}}]</s>'
        '[TOOL_RESULTS] {"content": 46, "call_id": "{id}"}[/TOOL_RESULTS]',
    ),
    "lazyllm": (
        "<|im_end|>",
        f"I add.\n<|action_start|><|function|>add\n<|args|>{ARGUMENTS}\n<|action_end|>",
        "<|im_start|>user\nTools: add\n12+34=?<|im_end|>\n<|im_start|>assistant\n",
        f"I add.\n<|action_start|><|function|>add\n<|args|>{ARGUMENTS}\n<|action_end|><|im_end|>\n"
        "<|im_start|>environment\n46<|im_end|>\n<|im_start|>assistant\n",
    ),
}
"""Chat templates of model families, in ``chat_templates/``."""
THINKS = """
kind: meta
round:
  - {role: HUMAN, begin: "Q: ", end: "\\n"}
  - {role: BOT, begin: "A: <think>\\n", end: "<eob>\\n", generate: true}
thinking: {begin: "<think>", end: "</think>", open: true}
"""


class World(SdkWorld):
    def prompt(self) -> str:
        """The last prompt that the engine received."""
        return str(self.sent()["prompt"])

    def last(self) -> Request:
        return self.up.requests[-1]


def chat(parser: str) -> str:
    """The file of a template of ``CHATS``."""
    tokens = "{start: '<|action_start|><|function|>', args: '<|args|>', end: '<|action_end|>'}"
    more = f", tokens: {tokens}" if parser == "lazyllm" else ""
    return f"kind: jinja\nfile: {parser}.jinja\nstop: ['{CHATS[parser][0]}']\ntools: {{parser: {parser}{more}}}\n"


def models(up: FaultyUpstream) -> str:
    def model(name: str, template: str, engine: str = "openai", **said: object) -> str:
        url = up.url("text", **said)
        return f"""
  {name}:
    template: {template}
    targets: [{{speaks: completions, url: "{url}", engine: {engine}}}]"""

    rows = [
        model("agent", "chatml-tools", "vllm", text=f"I add.\n{CALL}", then="46", when="<tool_response>"),
        model("twice", "chatml-tools", "sglang", text=f"{CALL}\n{CALL}\nDone."),
        model("cut", "chatml-tools", text=f"{CALL}\n{CALL[:30]}", finish="length"),
        model("stranger", "chatml-tools", text=CALL.replace('"add"', '"rm"')),
        model("obeys", "chatml-tools", text=f"{ARGUMENTS}}}\n</tool_call><|im_end|>\nleak"),
        model("thinker", "thinks", text="12 and 34 …</think>\n\n46<eob>\nleak", size=4),
        model("endless", "thinks", text="hm hm hm", finish="length"),
    ]
    rows += [model(name, name, text=said, then="46", when="Result: ") for name, (_, _, said, _) in FAMILIES.items()]
    rows += [
        model(f"chat-{name}", f"chat-{name}", text=f"{said}{end}leak", then=f"46{end}leak", when="46")
        for name, (end, said, _, _) in CHATS.items()
    ]
    return "models:" + "".join(rows)


FILES: dict[str, str | Path] = {
    "meta_templates/thinks.yaml": THINKS,
    **{f"meta_templates/{path.name}": path for path in (Path(__file__).parent / "chat_templates").iterdir()},
    **{f"meta_templates/chat-{name}.yaml": chat(name) for name in CHATS},
}
for name, row in FAMILIES.items():
    FILES[f"meta_templates/{name}.yaml"] = PLAIN.replace("PARSER", row[0]).replace("CALLS", row[1])
world = world_fixture(models, FILES, World)


def ask(world: World, model: str, messages: list[Any] | None = None, *, stream: bool, **fields: Any) -> Any:
    """The whole answer; a stream is accumulated by the SDK."""
    asked = {"model": model, "messages": messages or ASK, **fields}
    if not stream:
        return world.client.chat.completions.create(**asked)
    with world.client.chat.completions.stream(**asked) as events:
        for _ in events:
            pass
        return events.get_final_completion()


def said(choice: Any) -> tuple[str | None, list[tuple[str, str]], str]:
    """Content, tool calls and finish reason of a choice; content is None for a stream without content."""
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return choice.message.content or None, calls, choice.finish_reason


def answered(content: str | None, call: Any) -> list[Any]:
    """The conversation with the result of the tool call."""
    calls = [call.model_dump(include={"id", "type", "function"})]
    return [
        *ASK,
        {"role": "assistant", "content": content, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call.id, "content": "46"},
    ]


both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@both_ways
def test_a_tool_is_called_and_its_result_is_used(world: World, stream: bool) -> None:
    choice = ask(world, "agent", tools=[ADD], stream=stream).choices[0]
    assert said(choice) == ("I add.\n", [("add", ARGUMENTS)], "tool_calls")
    (call,) = choice.message.tool_calls
    assert call.id.startswith("call_")
    assert call.type == "function"
    assert json.dumps(ADD, ensure_ascii=False) in world.prompt()
    assert world.prompt().endswith("<|im_start|>user\n12+34=?<|im_end|>\n<|im_start|>assistant\n")

    history = answered(choice.message.content, call)
    answer = ask(world, "agent", history, tools=[ADD], stream=stream)
    assert said(answer.choices[0]) == ("46", [], "stop")
    assert world.prompt().endswith(
        f"<|im_start|>assistant\nI add.\n\n{CALL}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n46\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@both_ways
@pytest.mark.parametrize("name", FAMILIES)
def test_every_format_makes_the_round_trip(world: World, name: str, stream: bool) -> None:
    choice = ask(world, name, tools=[ADD], stream=stream).choices[0]
    assert said(choice) == (None, [("add", ARGUMENTS)], "tool_calls")
    call = choice.message.tool_calls[0]
    history = answered(None, call)
    assert said(ask(world, name, history, tools=[ADD], stream=stream).choices[0]) == ("46", [], "stop")
    written = FAMILIES[name][3] or FAMILIES[name][2]
    assert world.prompt().endswith(f"A: {written}<eob>\nQ: Result: 46\nA: ")


@both_ways
@pytest.mark.parametrize("parser", sorted(CHATS))
def test_every_format_makes_the_round_trip_over_a_chat_template(world: World, parser: str, stream: bool) -> None:
    _, said_by_engine, first, second = CHATS[parser]
    model, content = f"chat-{parser}", "I add.\n" if said_by_engine.startswith("I add.") else None
    choice = ask(world, model, tools=[ADD], stream=stream).choices[0]
    assert said(choice) == (content, [("add", ARGUMENTS)], "tool_calls")
    (call,) = choice.message.tool_calls
    written = {
        "{tool}": json.dumps(ADD),
        "{function}": json.dumps(ADD["function"]),
        "{indented}": json.dumps(ADD, indent=4),
        "{id}": call.id,
    }
    assert world.prompt() == filled(first, written)

    answer = ask(world, model, answered(choice.message.content, call), tools=[ADD], stream=stream)
    assert said(answer.choices[0]) == ("46", [], "stop")
    assert world.prompt() == filled(first + second, written)


def filled(prompt: str, written: dict[str, str]) -> str:
    for slot, text in written.items():
        prompt = prompt.replace(slot, text)
    return prompt


@both_ways
def test_two_tool_calls_and_the_text_after_them_are_parsed(world: World, stream: bool) -> None:
    choice = ask(world, "twice", tools=[ADD], stream=stream).choices[0]
    assert said(choice) == ("\nDone.", [("add", ARGUMENTS)] * 2, "tool_calls")
    assert len({call.id for call in choice.message.tool_calls}) == 2


@both_ways
def test_without_parallel_calls_one_tool_call_ends_the_answer(world: World, stream: bool) -> None:
    choice = ask(world, "twice", tools=[ADD], parallel_tool_calls=False, stream=stream).choices[0]
    assert said(choice) == (None, [("add", ARGUMENTS)], "tool_calls")
    assert world.up.wait(lambda: world.up.active == 0)


@both_ways
def test_every_choice_has_its_own_calls(world: World, stream: bool) -> None:
    answer = ask(world, "twice", tools=[ADD], n=2, stream=stream)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert said(choice) == ("\nDone.", [("add", ARGUMENTS)] * 2, "tool_calls")


def test_an_answer_with_an_incomplete_tool_call_keeps_its_text(world: World) -> None:
    # The SDK's stream helper raises on finish_reason length, so the chunks are read directly.
    chunks = list(world.client.chat.completions.create(model="cut", messages=ASK, tools=[ADD], stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    whole = ask(world, "cut", tools=[ADD], stream=False).choices[0]
    assert said(whole) == (f"\n{CALL[:30]}", [("add", ARGUMENTS)], "length")
    assert (text, chunks[-1].choices[0].finish_reason) == (f"\n{CALL[:30]}", "length")


@both_ways
def test_a_call_of_an_unknown_tool_is_text_and_is_counted(world: World, stream: bool) -> None:
    series = {"model": "stranger", "parser": "hermes"}
    before = world.served.metric("gateway_tool_parse_failures_total", **series)
    choice = ask(world, "stranger", tools=[ADD], stream=stream).choices[0]
    assert said(choice) == (CALL.replace('"add"', '"rm"'), [], "stop")
    assert world.served.wait_until_idle()
    assert world.served.metric("gateway_tool_parse_failures_total", **series) == before + 1


@both_ways
def test_a_required_tool_call_is_begun_by_the_prompt(world: World, stream: bool) -> None:
    choice = ask(world, "obeys", tools=[ADD], tool_choice=NAMED, stream=stream).choices[0]
    assert said(choice) == (None, [("add", ARGUMENTS)], "tool_calls")
    assert world.prompt().endswith('<|im_start|>assistant\n<tool_call>\n{"name": "add", "arguments": ')


@both_ways
def test_with_tool_choice_none_no_tools_are_rendered_or_parsed(world: World, stream: bool) -> None:
    choice = ask(world, "agent", tools=[ADD], tool_choice="none", stream=stream).choices[0]
    assert said(choice) == (f"I add.\n{CALL}", [], "stop")
    assert world.prompt() == "<|im_start|>user\n12+34=?<|im_end|>\n<|im_start|>assistant\n"
    assert "skip_special_tokens" not in world.last().body


@pytest.mark.parametrize(("model", "kept"), [("agent", True), ("twice", True), ("bare", False)])
def test_engines_with_the_option_keep_special_tokens(world: World, model: str, kept: bool) -> None:
    ask(world, model, tools=[ADD], stream=False)
    assert world.last().body.get("skip_special_tokens", True) is not kept
    ask(world, model, stream=False)
    assert "skip_special_tokens" not in world.last().body


def test_log_probabilities_cover_all_generated_tokens(world: World) -> None:
    for stream in (True, False):
        choice = ask(world, "agent", tools=[ADD], logprobs=True, stream=stream).choices[0]
        tokens = "".join(token.token for token in choice.logprobs.content)
        assert tokens == f"I add.\n{CALL}"
        assert said(choice) == ("I add.\n", [("add", ARGUMENTS)], "tool_calls")


@both_ways
def test_reasoning_and_answer_are_two_fields(world: World, stream: bool) -> None:
    message = ask(world, "thinker", stream=stream).choices[0].message
    assert message.content == "\n\n46"
    assert message.reasoning_content == message.reasoning == "12 and 34 …"


def test_an_answer_can_be_sent_back_as_a_message(world: World) -> None:
    message = ask(world, "agent", tools=[ADD], stream=False).choices[0].message
    history = [*ASK, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "46"}]
    assert said(ask(world, "agent", history, tools=[ADD], stream=False).choices[0]) == ("46", [], "stop")

    thought = ask(world, "thinker", stream=False).choices[0].message
    answer = world.client.chat.completions.with_raw_response.create(model="thinker", messages=[*ASK, thought, *ASK])
    assert "12 and 34" not in world.prompt()
    for field in ("reasoning_content", "reasoning"):
        assert f"ignored_field: messages[1].{field}" in answer.headers["x-gateway-notice"].split("; ")


def test_reasoning_is_streamed_before_the_answer(world: World) -> None:
    chunks = list(world.client.chat.completions.create(model="thinker", messages=ASK, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    kinds = [
        "reasoning" if getattr(delta, "reasoning", None) else "content" if delta.content else "" for delta in deltas
    ]
    assert kinds == sorted(kinds, key=["reasoning", "content", ""].index)
    assert kinds.count("reasoning") > 1
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_reasoning_without_an_end_leaves_the_answer_empty(world: World) -> None:
    choice = ask(world, "endless", stream=False).choices[0]
    assert (choice.message.content, choice.message.reasoning, choice.finish_reason) == ("", "hm hm hm", "length")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {  # name: (fields, param)
    "functions": ({"functions": [ADD["function"]]}, "functions"),
    "an unknown choice": ({"tools": [ADD], "tool_choice": "any"}, "tool_choice"),
    "a tool without a name": ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    "a demand without tools": ({"tool_choice": "required"}, "tool_choice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_tool_fields_are_refused_by_name(world: World, name: str) -> None:
    fields, param = REFUSED[name]
    assert world.served.wait_until_idle()
    assert world.up.wait(lambda: world.up.active == 0)
    before = world.up.request_count
    with pytest.raises(openai.BadRequestError) as raised:
        world.client.chat.completions.create(model="agent", messages=ASK, **fields)
    assert raised.value.param == param
    assert world.up.request_count == before


def test_a_model_without_a_parser_refuses_tools(world: World) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(world, "thinker", tools=[ADD], stream=False)
    assert (raised.value.code, raised.value.param) == ("unsupported_parameter", "tools")


def test_render_shows_the_tools(world: World) -> None:
    body = {"model": "agent", "messages": ASK, "tools": [ADD]}
    rendered = world.served.http.post("/v1/render", json=body).json()
    assert [part["text"] for part in rendered["segments"] if part["origin"] == "tools[0]"] == [json.dumps(ADD)]
