"""The arguments of a prompter are read as its constructor takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.workshop.importer.lazyllm import read_lazyllm
from metatemplate.errors import UnsupportedInput
from metatemplate.files.template import parse_spec
from metatemplate.prompters.tokens import family
from metatemplate.templates.registry import build
from metatemplate.values.dialogue import Dialogue, Message, RenderOptions, plain_messages
from tests.support.reference.lazyllm.prompter import alpaca, chat
from tests.workshop.importer.files import source

READ: dict[str, tuple[str, str, dict[str, Any]]] = {
    "json": ("p.json", '{"class": "ChatPrompter", "instruction": "Say {x}."}',
             {"class": "chat", "instruction": "Say {x}."}),
    "yaml": ("p.yaml", "class: alpaca\ninstruction: 'Do {x}'\n", {"class": "alpaca", "instruction": "Do {x}"}),
    "python": ("p.py", "p = AlpacaPrompter('Do {x}', extra_keys=['k'])",
               {"class": "alpaca", "instruction": "Do {x}", "extra_keys": ["k"], "input_slot": "x"}),
    "one slot and a text of keys": ("p.py", "p = AlpacaPrompter({'user': 'Do {x}'}, 'k')",
                                    {"class": "alpaca", "instruction": {"user": "Do {x}"}, "extra_keys": "k",
                                     "input_slot": "x"}),
    "a slot that is the key": ("p.py", "p = AlpacaPrompter('Do {k} {tool_names}', ['k'])",
                               {"class": "alpaca", "instruction": "Do {k} {tool_names}", "extra_keys": ["k"]}),
    "a history of messages": (
        "p.py", "p = ChatPrompter('I', history=[{'role': 'user', 'content': 'u'}, ['a', 'b'], ['c']])",
        {"class": "chat", "instruction": "I", "history_messages": [
            {"role": "user", "content": "u"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"}]},
    ),
    "python by name": ("p.py", "p = lazyllm.ChatPrompter(instruction='I', history=[['a', 'b'], ('c', 'd')])",
                       {"class": "chat", "instruction": "I", "history": [["a", "b"], ["c", "d"]]}),
    "two parts": ("p.py", "p = ChatPrompter(dict(system='S', user='U {x}'))",
                  {"class": "chat", "instruction": {"system": "S", "user": "U {x}"}}),
    "inside another call": ("p.py", "m = lazyllm.TrainableModule('x').prompt(1)\nn = f(ChatPrompter('I'))",
                            {"class": "chat", "instruction": "I"}),
    "an early spelling": ("p.py", "p = ChatPrompter('I', extro_keys=['k'])",
                          {"class": "chat", "instruction": "I", "extra_keys": ["k"]}),
    "empty": ("p.json", '{"class": "EmptyPrompter"}', {"class": "empty"}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "keys"), READ.values(), ids=READ)
def test_a_setting_becomes_the_keys_of_a_file(name: str, text: str, keys: dict[str, Any]) -> None:
    (draft,) = read_lazyllm(source(name, text))
    assert {key: one for key, one in draft.keys.items() if key not in ("kind", "description")} == keys
    assert draft.keys["kind"] == "prompter"


def test_the_template_writes_what_the_prompter_writes() -> None:
    (draft,) = read_lazyllm(source("p.json", '{"class": "ChatPrompter", "instruction": "Be brief."}'), marks_of="qwen")
    template = build(parse_spec(draft.keys, name="p"))
    marks = {key: text for key, text in family("qwen").items() if isinstance(text, str)}
    wanted = chat("Be brief.").bound(marks).generate_prompt("hi")
    assert template.render(Dialogue((Message("user", "hi"),))).text == wanted


TOOL = {"type": "function", "function": {"name": "f"}}


def test_tools_are_taken_where_the_family_has_tokens_for_them() -> None:
    text = json.dumps({"class": "ChatPrompter", "instruction": "I", "tools": [TOOL]})
    (with_marks,) = read_lazyllm(source("p.json", text), marks_of="qwen")
    (without,) = read_lazyllm(source("p.json", text))
    assert (with_marks.keys["tools"], with_marks.keys["default_tools"]) == ({"parser": "lazyllm"}, [TOOL])
    assert (without.keys.get("tools"), without.keys["default_tools"]) == (None, [TOOL])
    assert any(note.startswith("tools: only API models get the tools") for note in without.notes)


def test_the_tools_of_the_documents_prompter_are_sent_to_an_api_model() -> None:
    """The document's example ends without a model; its ``return_dict`` has the tools."""
    text = "tools = [dict(type='function', function=dict(name='example'))]\np = AlpacaPrompter('{q}', tools=tools)"
    (draft,) = read_lazyllm(source("p.py", text))
    template = build(parse_spec(draft.keys, name="p").for_messages())
    assert template.spec.prompter is not None
    assert [tool["function"]["name"] for tool in template.spec.prompter.default_tools] == ["example"]
    with pytest.raises(UnsupportedInput, match="default_tools, but no marks for tool calls"):
        build(parse_spec(draft.keys, name="p")).render(
            Dialogue(plain_messages([{"role": "user", "content": "hi"}]) or ())
        )


def test_tools_of_an_empty_prompter_are_noted() -> None:
    (draft,) = read_lazyllm(source("p.py", "p = EmptyPrompter(tools=[dict(type='function', function=dict(name='f'))])"))
    assert "default_tools" not in draft.keys
    assert any(note.startswith("tools: not imported") for note in draft.notes)


def test_tools_that_a_function_makes_stay_with_the_clients() -> None:
    (draft,) = read_lazyllm(source("p.py", "p = ChatPrompter('I', tools=make)"), marks_of="qwen")
    assert (draft.keys["tools"], "default_tools" in draft.keys) == ({"parser": "lazyllm"}, False)
    assert any(note.startswith("tools: in LazyLLM, make (line 1) makes the list") for note in draft.notes)


QUICK_START = """
import lazyllm
instruction = '上下文信息是{context},用户的问题是{input}, 现在请你做出回答。'
prompter = lazyllm.AlpacaPrompter({"user": instruction})
module = lazyllm.OnlineChatModule('openai').prompt(prompter)
module(dict(context='背景', input='输入'))
"""
OPENAI = "You are ChatGPT, a large language model trained by OpenAI. You are a helpful assistant."

MODELS: dict[str, tuple[str, dict[str, Any], str]] = {  # name: (file, its keys for the model, a note)
    "a provider": (QUICK_START, {"marks": {"system": OPENAI}}, "OnlineChatModule('openai') of line 5 adds a system"),
    "a provider by its keyword": (
        "p = ChatPrompter('I')\nm = OnlineChatModule(source='ppio', model='x').prompt(p)",
        {"marks": {"system": "You are a helpful AI assistant."}},
        "OnlineChatModule('ppio') of line 2",
    ),
    "an unknown provider": (
        "p = ChatPrompter('I')\nOnlineChatModule('mine').prompt(p)",
        {},
        "LazyLLM does not know the provider of OnlineChatModule('mine') of line 2;",
    ),
    "a local model": (
        "p = ChatPrompter('I')\nm = lazyllm.TrainableModule('internlm2-chat-7b').prompt(p)",
        {"marks_of": "internlm2-chat-7b"},
        "marks_of is the model of TrainableModule(",
    ),
    "a local model in a chain": (
        "p = ChatPrompter('I')\nm = TrainableModule('internlm2-chat-7b').prompt(p).start()",
        {"marks_of": "internlm2-chat-7b"},
        "marks_of is the model of TrainableModule(",
    ),
    "a prompter in the call": (
        "m = TrainableModule('internlm2-chat-7b').prompt(ChatPrompter('I'))",
        {"marks_of": "internlm2-chat-7b"},
        "marks_of is the model of TrainableModule(",
    ),
    "a model without tokens": (
        "p = ChatPrompter('I')\nm = TrainableModule('mine').prompt(p)",
        {},
        "LazyLLM has no tokens for TrainableModule('mine') of line 2",
    ),
    "no model": ("p = ChatPrompter('I')", {}, "special tokens are missing; give the model's family with --marks-of"),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_model_in_front_of_which_a_prompter_stands_gives_the_tokens(name: str) -> None:
    text, keys, note = MODELS[name]
    (draft,) = read_lazyllm(source("p.py", text))
    assert {key: value for key, value in draft.keys.items() if key.startswith("marks")} == keys
    assert any(one.startswith(note) for one in draft.notes), draft.notes


def test_a_prompter_of_two_models_is_refused() -> None:
    text = "p = ChatPrompter('I')\na = TrainableModule('qwen').prompt(p)\nb = OnlineChatModule('glm').prompt(p)"
    with pytest.raises(ConfigError, match="the prompter of line 1 is used with several models"):
        read_lazyllm(source("p.py", text))
    (draft,) = read_lazyllm(source("p.py", text), marks_of="qwen")
    assert draft.keys["marks_of"] == "qwen"


def test_the_quick_start_of_the_documentation_is_sent_as_by_lazyllm() -> None:
    (draft,) = read_lazyllm(source("p.py", QUICK_START))
    assert draft.keys["input_slot"] == "input"
    assert "input_slot: the user message fills input; gateway.variables fills the other slots: context" in draft.notes
    template = build(parse_spec(draft.keys, name="p").for_messages())
    said = Dialogue((Message("user", "输入"),), RenderOptions(variables={"context": "背景"}))
    task = (
        "Below is an instruction that describes a task, paired with extra messages such as input that provides "
        "further context if possible. Write a response that appropriately completes the request."
    )
    assert template.render(said).messages == (
        {"role": "system", "content": f"{OPENAI}\n{task}\n\n### Instruction:\n"},
        {"role": "user", "content": "上下文信息是背景,用户的问题是输入, 现在请你做出回答。"},
    )


@pytest.mark.parametrize("arguments", ["'{a} {b}'", "'{input}'", "'I', ['k']"])
def test_no_slot_is_chosen_for_the_user_message_without_a_slot_input_beside_others(arguments: str) -> None:
    (draft,) = read_lazyllm(source("p.py", f"p = ChatPrompter({arguments})"))
    assert "input_slot" not in draft.keys


def test_an_alpaca_prompter_with_extra_keys_is_written_as_by_lazyllm() -> None:
    (draft,) = read_lazyllm(source("p.py", "p = AlpacaPrompter('Do {x}', extra_keys=['k'])"))
    assert "input_slot: the user message fills x; gateway.variables fills the other slots: k" in draft.notes
    said = Dialogue((Message("user", "this"),), RenderOptions(variables={"k": "K"}))
    wanted = alpaca("Do {x}", ["k"]).generate_prompt({"x": "this", "k": "K"})
    assert build(parse_spec(draft.keys, name="p")).render(said).text == wanted


HISTORY = "ChatPrompter('I', history=[{'role': 'user', 'content': 'u'}, {'role': 'assistant', 'content': 'a'}])"


def test_a_history_of_messages_is_sent_to_an_api_model() -> None:
    (draft,) = read_lazyllm(source("p.py", f"m = OnlineChatModule('openai').prompt({HISTORY})"))
    template = build(parse_spec(draft.keys, name="p").for_messages())
    assert template.render(Dialogue((Message("user", "q", raw={"role": "user", "content": "q"}),))).messages == (
        {"role": "system", "content": f"{OPENAI}\nI\n\n"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "q"},
    )


@pytest.mark.parametrize(
    ("text", "marks_of"),
    [(f"m = TrainableModule('internlm2-chat-7b').prompt({HISTORY})", ""), (f"p = {HISTORY}", "qwen")],
    ids=["of the file", "of the command line"],
)
def test_a_history_of_messages_is_refused_for_a_model_that_takes_a_string(text: str, marks_of: str) -> None:
    with pytest.raises(ConfigError, match=r"p\.py:1: history has mappings, which only API models can get"):
        read_lazyllm(source("p.py", text), marks_of=marks_of)


def test_what_is_not_carried_over_is_told() -> None:
    (draft,) = read_lazyllm(source("p.py", "p = ChatPrompter('I', None, True, None, 'skill', enable_system=True)"))
    told = "\n".join(draft.notes)
    assert all(word in told for word in ("show:", "skills:", "enable_system:", "--marks-of"))


def test_a_prompter_that_is_used_is_still_the_one_that_was_written() -> None:
    text = "p = ChatPrompter('I')\nprint(p.generate_prompt('a'))\nif __name__ == '__main__':\n    serve(p)\np.reset()"
    (draft,) = read_lazyllm(source("p.py", text))
    assert draft.keys["instruction"] == "I"
    assert "line 5: the effect of .reset() on ChatPrompter(…) (line 1) was not imported" in draft.notes


REFUSED = {
    "no class": ("p.json", '{"instruction": "x"}', "p.json class: must be one of"),
    "a list": ("p.json", "[]", "p.json: the file must contain a mapping with a prompter"),
    "an unknown argument": ("p.json", '{"class": "chat", "prompt": "x"}', "ChatPrompter has no argument prompt"),
    "a history for alpaca": ("p.py", "AlpacaPrompter('a', history=[])", "AlpacaPrompter has no argument history"),
    "a computed instruction": ("p.py", "x = f()\nChatPrompter(f'{x}')", "p.py:2: instruction of ChatPrompter contains"),
    "an attribute that is set": (
        "p.py",
        "p = ChatPrompter('a')\np._sos = 'x'",
        "p.py:2: an assignment to p._sos is not read",
    ),
    "no prompter": ("p.py", "x = 1", "has no call of AlpacaPrompter"),
    "a duplicate key": ("p.yaml", "class: chat\nclass: chat\n", "occurs twice"),
    "a tag": ("p.yaml", "class: !!python/object chat\n", "YAML tags"),
    "too deep": ("p.json", "[" * 100_000, "nested too deeply"),
    "no JSON": ("p.json", "{", "p.json:1: the file is not valid JSON"),
}


@pytest.mark.parametrize(("name", "text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_lazyllm(source(name, text))
    assert says in str(caught.value)


def test_an_unknown_family_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="the known families are meta-llama-3"):
        read_lazyllm(source("p.json", '{"class": "chat"}'), marks_of="gpt")
