"""The arguments of a prompter are read as its constructor takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import ConfigError
from gateway.importer.lazyllm import read_lazyllm
from gateway.template.registry import build
from gateway.template.validation.template import parse_spec
from tests.importer.files import source
from tests.reference.lazyllm.prompter import chat

READ: dict[str, tuple[str, str, dict[str, Any]]] = {
    "json": ("p.json", '{"class": "ChatPrompter", "instruction": "Say {x}."}',
             {"class": "chat", "instruction": "Say {x}."}),
    "yaml": ("p.yaml", "class: alpaca\ninstruction: 'Do {x}'\n", {"class": "alpaca", "instruction": "Do {x}"}),
    "python": ("p.py", "p = AlpacaPrompter('Do {x}', extra_keys=['k'])",
               {"class": "alpaca", "instruction": "Do {x}", "extra_keys": ["k"]}),
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
    from gateway.template.lazyllm.tokens import family

    marks = {key: text for key, text in family("qwen").items() if isinstance(text, str)}
    wanted = chat("Be brief.").bound(marks).generate_prompt("hi")
    assert template.render(Dialogue((Message("user", "hi"),))).text == wanted


def test_tools_are_taken_where_the_family_has_tokens_for_them() -> None:
    text = json.dumps({"class": "ChatPrompter", "instruction": "I", "tools": [{"type": "function"}]})
    (with_marks,) = read_lazyllm(source("p.json", text), marks_of="qwen")
    (without,) = read_lazyllm(source("p.json", text))
    assert with_marks.keys["tools"] == {"parser": "lazyllm"}
    assert "tools" not in without.keys
    assert any(note.startswith("tools: the template accepts no tools") for note in without.notes)


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
    "a list": ("p.json", "[]", "p.json: expected a mapping with class"),
    "an unknown argument": ("p.json", '{"class": "chat", "prompt": "x"}', "ChatPrompter has no argument prompt"),
    "a history for alpaca": ("p.py", "AlpacaPrompter('a', history=[])", "AlpacaPrompter has no argument history"),
    "a computed instruction": ("p.py", "x = 1\nChatPrompter(f'{x}')", "p.py:2: instruction of ChatPrompter contains"),
    "an attribute that is set": ("p.py", "p = ChatPrompter('a')\np._sos = 'x'", "p.py:2: the ChatPrompter contains"),
    "no prompter": ("p.py", "x = 1", "has no call of AlpacaPrompter"),
    "a duplicate key": ("p.yaml", "class: chat\nclass: chat\n", "occurs twice"),
    "a tag": ("p.yaml", "class: !!python/object chat\n", "YAML tags"),
    "too deep": ("p.json", "[" * 100_000, "nested too deeply"),
    "no JSON": ("p.json", "{", "p.json:1: not valid JSON"),
}


@pytest.mark.parametrize(("name", "text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_lazyllm(source(name, text))
    assert says in str(caught.value)


def test_an_unknown_family_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="the known families are meta-llama-3"):
        read_lazyllm(source("p.json", '{"class": "chat"}'), marks_of="gpt")
