"""``kind: prompter`` in front of an API model: the messages of LazyLLM's ``return_dict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatemplate.errors import InputError
from metatemplate.files.template import SpecError, parse_spec
from metatemplate.templates.registry import build, run_examples
from metatemplate.values.dialogue import Dialogue, RenderOptions
from tests.metatemplate.templates.samples import dialogue, message
from tests.support.reference.lazyllm.prompter import alpaca, chat

ROOT = Path(__file__).parents[3]

CHAT: dict[str, Any] = {"kind": "prompter", "class": "chat"}
ALPACA: dict[str, Any] = {"kind": "prompter", "class": "alpaca"}
EMPTY: dict[str, Any] = {"kind": "prompter", "class": "empty"}

U, A, S, T = "user", "assistant", "system", "tool"
OWN = "You are an AI-Agent developed by LazyLLM."
TASK = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides further "
    "context if possible. Write a response that appropriately completes the request."
)
ASSISTANT = "你是一个由LazyLLM开发的知识问答助手,你的任务是根据提供的上下文信息来回答用户的问题。"
QUESTION = ASSISTANT + "上下文信息是{context},用户的问题是{input}, 现在请你做出回答。"
FILLED = ASSISTANT + "上下文信息是背景,用户的问题是输入, 现在请你做出回答。"
AGENT = "你是一个工具调用的Agent,我会给你提供一些工具,请根据用户输入,帮我选择最合适的工具并使用"
FRIEND = "你是一个对话机器人,现在你要和用户进行友好的对话"
GREETED = [(U, "你好"), (A, "你好,我是一个对话机器人,有什么能为您服务的")]
WEATHER = "帮我查询一下今天的天气"
TOOL = {"type": "function", "function": {"name": "example"}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
CALLING = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "example", "arguments": "{}"}}]}


def sent(raw: dict[str, Any], said: Dialogue) -> list[Any]:
    prompt = build(parse_spec(raw, name="sample").for_messages()).render(said)
    assert (prompt.text, prompt.segments) == ("", None)
    return list(prompt.messages or ())


def talk(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


MESSAGES: dict[str, tuple[dict[str, Any], Dialogue, list[dict[str, Any]]]] = {  # name: (file, dialogue, what is sent)
    "the quick start, with a user instruction": (
        {**ALPACA, "instruction": {"user": QUESTION}, "input_slot": "input"},
        dialogue((U, "输入"), variables={"context": "背景"}),
        talk((S, f"{OWN}\n{TASK}\n\n### Instruction:\n"), (U, FILLED)),
    ),
    "the quick start, with a plain instruction": (
        {**ALPACA, "instruction": QUESTION, "input_slot": "input"},
        dialogue((U, "输入"), variables={"context": "背景"}),
        talk((S, f"{OWN}\n{TASK}\n\n### Instruction:\n{FILLED}\n\n"), (U, "")),
    ),
    "the quick start, as the document prints it": (
        {**ALPACA, "instruction": QUESTION, "input_slot": "input", "dialect": "0.1"},
        dialogue((U, "输入"), variables={"context": "背景"}),
        talk((S, f"{OWN}\n{TASK}\n\n ### Instruction:\n{FILLED}\n\n"), (U, "")),
    ),
    "an extra key": (
        {**ALPACA, "instruction": AGENT, "extra_keys": "input"},
        dialogue((U, WEATHER), tools=(TOOL,)),
        talk(
            (
                S,
                f"{OWN}\n{TASK}\n\n### Instruction:\n{AGENT}\n\nHere are some extra messages you can referred to:"
                f"\n\n### input:\n{WEATHER}\n\n",
            ),
            (U, ""),
        ),
    ),
    "a history": (
        {**CHAT, "instruction": FRIEND},
        dialogue(*GREETED, (U, "我们聊会儿天吧")),
        talk((S, f"{OWN}\n{FRIEND}\n\n"), *GREETED, (U, "我们聊会儿天吧")),
    ),
    "a history of the template's own": (
        {**CHAT, "history": [["h", "a"]]},
        dialogue((U, "q")),
        talk((S, OWN), (U, "h"), (A, "a"), (U, "q")),
    ),
    "a history of messages": (
        {**CHAT, "history": [["h", "a"]], "history_messages": [{"role": A, **CALLING}, {"role": S, "content": "s"}]},
        dialogue((U, "q")),
        [*talk((S, OWN), (U, "h"), (A, "a")), {"role": A, **CALLING}, *talk((S, "s"), (U, "q"))],
    ),
    "the system sentence of a model": (
        {**CHAT, "marks": {"system": "Be."}},
        dialogue((U, "q")),
        talk((S, "Be."), (U, "q")),
    ),
    "tokens and stops stay with the target": (
        {**CHAT, "marks_of": "qwen", "tools": {"parser": "lazyllm"}},
        dialogue((U, "q"), tools=(TOOL,)),
        talk((S, "You are a helpful assistant."), (U, "q")),
    ),
    "system messages stay in their places": (
        {**CHAT, "instruction": "I"},
        dialogue((S, "one"), (U, "q"), (S, "two")),
        talk((S, f"{OWN}\nI\n\n"), (S, "one"), (U, "q"), (S, "two")),
    ),
    "no system message without any text": ({**CHAT, "marks": {"system": ""}}, dialogue((U, "q")), talk((U, "q"))),
    "an answer to continue": (
        {**CHAT, "instruction": {"system": "s", "user": "u:"}},
        dialogue((U, "q"), (A, "So"), continue_final=True),
        talk((S, f"{OWN}\ns"), (U, "u:q"), (A, "So")),
    ),
    "a user message with a picture": (
        {**CHAT, "instruction": {"user": "Look: "}},
        Dialogue((message(U, [{"type": "text", "text": "q"}, IMAGE]),)),
        [
            *talk((S, OWN)),
            {"role": U, "content": [{"type": "text", "text": "Look: "}, {"type": "text", "text": "q"}, IMAGE]},
        ],
    ),
    "calls and results": (
        CHAT,
        Dialogue((message(U, "q"), message(A, None, **CALLING), message(T, "[]", tool_call_id="c"))),
        [
            *talk((S, OWN), (U, "q")),
            {"role": A, "content": None, **CALLING},
            {"role": T, "content": "[]", "tool_call_id": "c"},
        ],
    ),
    "the names of the tools": (
        {**CHAT, "instruction": "One of {tool_names}"},
        dialogue((U, "q"), tools=(TOOL,)),
        talk((S, f'{OWN}\nOne of ["example"]\n\n'), (U, "q")),
    ),
    "tools of other types": (CHAT, dialogue((U, "q"), tools=({"type": "web_search"},)), talk((S, OWN), (U, "q"))),
    "the class empty": (EMPTY, dialogue((U, "{as} it is")), talk((U, "{as} it is"))),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_messages_are_those_of_lazyllm(name: str) -> None:
    raw, said, expected = MESSAGES[name]
    assert sent(raw, said) == expected


TALK = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["{a}", "{{", "\n", "<!lazyllm-spliter!>"])


@settings(max_examples=50)
@given(st.lists(st.tuples(TALK, TALK), max_size=2), TALK, TALK)
def test_random_requests_are_sent_as_by_the_reference(pairs: list[tuple[str, str]], question: str, value: str) -> None:
    said = dialogue(*[turn for h, a in pairs for turn in ((U, h), (A, a))], (U, question), variables={"x": value})
    reference = chat({"system": "As {x}.", "user": "U"})
    if "lazyllm-spliter" in value:
        return  # LazyLLM moves text between roles
    raw = {**CHAT, "instruction": {"system": "As {x}.", "user": "U"}}
    asked = {"x": value, "input": question}
    expected = reference.generate_prompt(asked, history=[list(pair) for pair in pairs], format="openai")
    assert sent(raw, said) == expected["messages"]


@settings(max_examples=50)
@given(TALK, st.sampled_from(["openai", None]))
def test_random_single_turns_are_sent_as_by_the_reference(question: str, form: str | None) -> None:
    reference = alpaca("Add {sum}").generate_prompt(question, return_dict=True, format=form)
    assert sent({**ALPACA, "instruction": "Add {sum}"}, dialogue((U, question))) == reference["messages"]


REFUSED = {  # name: (file, dialogue, param, words of the error)
    "a history for a single turn": (
        {**ALPACA, "instruction": "{a}"},
        dialogue((U, "h"), (A, "a"), (U, "q")),
        "messages",
        "accepts only a single user message",
    ),
    "an assistant's end": (CHAT, dialogue((U, "q"), (A, "a")), "messages", "last message must be a user message"),
    "a missing variable": (
        {**CHAT, "instruction": "{a} {b}"},
        dialogue((U, "q"), variables={"a": "1"}),
        "gateway.variables",
        "missing: b",
    ),
    "a picture for a slot": (
        {**CHAT, "instruction": "{a}"},
        Dialogue((message(U, [IMAGE]),)),
        "messages[0].content[0]",
        "accepts only text",
    ),
    "tools for the class empty": (EMPTY, dialogue((U, "q"), tools=(TOOL,)), "tools", "does not support tools"),
    "the name of a tool without one": (
        {**CHAT, "instruction": "{tool_names}"},
        dialogue((U, "q"), tools=({"type": "web_search"},)),
        "messages",
        "KeyError",
    ),
    "the name of a tool that is no object": (
        {**CHAT, "instruction": "{tool_names}"},
        dialogue((U, "q"), tools=({"function": "f"},)),
        "messages",
        "TypeError",
    ),
    "no answer to continue": (
        CHAT,
        dialogue((U, "q"), continue_final=True),
        "continue_final_message",
        "requires an assistant message",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_field(name: str) -> None:
    raw, said, param, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        sent(raw, said)
    assert (caught.value.param, words in caught.value.message) == (param, True), caught.value.message


def test_an_example_may_have_a_prompt_and_messages() -> None:
    example = {
        "messages": talk((U, "q")),
        "prompt": f"{OWN}\n\n\n\nq\n\n",
        "sent": talk((S, OWN), (U, "q")),
    }
    assert run_examples(build(parse_spec({**CHAT, "examples": [example]}, name="x"))) == []
    wrong = {**example, "sent": talk((U, "q"))}
    problems = run_examples(build(parse_spec({**CHAT, "examples": [wrong]}, name="x")))
    assert [(problem.path, problem.message.splitlines()[0]) for problem in problems] == [
        (("examples", 0, "sent"), "the rendered prompt differs from the example at position 11")
    ]
    with pytest.raises(SpecError, match="an example without `prompt` checks nothing"):
        parse_spec({**CHAT, "examples": [{"messages": talk((U, "q"))}]}, name="x")


# ---------------------------------------------------------------- recorded from the released package

CLASSES = {"AlpacaPrompter": "alpaca", "ChatPrompter": "chat", "EmptyPrompter": "empty"}
NOT_A_REQUEST = {
    "lz-alpaca-label-dict": "a label, which the package ignores",
    "lz-anthropic": "another form of messages",
    "lz-disable-system-prompt-all-empty": "a system message without text, which the gateway leaves out",
    "lz-enable-system-off": "an option that a template does not have",
    "lz-r20241-011": "tools of its own with names that OpenAI's API does not allow",
    "lz-r20241-026": "tools of its own with names that OpenAI's API does not allow",
    "lz-r20241-014": "a class alpaca without a slot, which a template refuses",
}
RECORDED = {
    row["id"]: row
    for row in map(json.loads, (ROOT / "tests/conformance/lazyllm.jsonl").read_text("utf-8").strip().split("\n"))
    if row["kind"] == "prompter" and isinstance(row["expected"].get("result"), dict) and row["id"] not in NOT_A_REQUEST
}


def as_request(given: dict[str, Any]) -> tuple[dict[str, Any], Dialogue]:
    """The file and the request that are a recorded call."""
    init, called = given.get("init") or {}, given["call"]
    raw: dict[str, Any] = {"kind": "prompter", "class": CLASSES[given["cls"]]}
    raw |= {key: init[key] for key in ("instruction", "extra_keys", "history") if init.get(key) is not None}
    raw |= {key: given[name] for key, name in (("marks_of", "model"), ("marks", "model_configs")) if name in given}
    raw |= {"default_tools": init["tools"]} if "tools" in init else {}
    raw |= {"marks": {"system": ""}} if given.get("disable_system_prompt") else {}
    current, variables = called["input"], {}
    if isinstance(current, dict):
        texts = json.dumps(init.get("instruction"), ensure_ascii=False)
        variables = {name: text for name, text in current.items() if f"{{{name}}}" in texts}
        current = next((text for name, text in current.items() if name not in variables), "")
    if raw["class"] == "alpaca" and variables:
        raw["input_slot"], current = "input", variables.pop("input")
    history = [
        one
        for item in called.get("history") or ()
        for one in ([item] if isinstance(item, dict) else talk(*zip((U, A), item, strict=False)))
    ]
    raws = [*history, current if isinstance(current, dict) else {"role": U, "content": current}]
    options = RenderOptions(tools=tuple(called.get("tools") or ()), variables=variables)
    return raw, Dialogue(tuple([message(**one) for one in raws]), options)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_call_is_sent_as_by_the_package(name: str) -> None:
    raw, said = as_request(RECORDED[name]["input"])
    assert sent(raw, said) == RECORDED[name]["expected"]["result"]["messages"]
