"""Each of FastChat's styles becomes a template that writes its prompts, or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.importer.fastchat import FastChatConversation, read_fastchat, styles
from gateway.template.registry import build, dialogue_of
from gateway.template.spec import Example
from gateway.template.validation.template import parse_spec
from tests.importer.files import source

TALK = (
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Ho"},
    {"role": "user", "content": "Bye"},
)

LLAMA = {"roles": ["[INST]", "[/INST]"], "sep": " ", "sep2": " </s><s>",
             "system_template": "[INST] <<SYS>>\n{system_message}\n<</SYS>>\n\n"}  # fmt: skip
TAGS = {"roles": ["<|im_start|>user", "<|im_start|>assistant"], "sep": "<|im_end|>",
            "system_template": "<|im_start|>system\n{system_message}", "system_message": "Default."}  # fmt: skip
PLAIN = {"roles": ["USER", "ASSISTANT"], "sep": "\n", "sep2": "</s>"}

WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "ADD_COLON_SINGLE": (PLAIN, "Be kind.\nUSER: Hi\nASSISTANT: Ho\nUSER: Bye\nASSISTANT:"),
    "ADD_COLON_TWO": ({**PLAIN, "sep": " ", "system_message": "Default."},
                      "Be kind. USER: Hi ASSISTANT: Ho</s>USER: Bye ASSISTANT:"),
    "ADD_COLON_SPACE_SINGLE": (PLAIN, "Be kind.\nUSER: Hi\nASSISTANT: Ho\nUSER: Bye\nASSISTANT: "),
    "ADD_NEW_LINE_SINGLE": (PLAIN, "Be kind.\nUSER\nHi\nASSISTANT\nHo\nUSER\nBye\nASSISTANT\n"),
    "NO_COLON_SINGLE": (PLAIN, "Be kind.USERHi\nASSISTANTHo\nUSERBye\nASSISTANT"),
    "NO_COLON_TWO": (PLAIN, "Be kind.USERHi\nASSISTANTHo</s>USERBye\nASSISTANT"),
    "LLAMA2": (LLAMA, "[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Ho </s><s>[INST] Bye [/INST]"),
    "LLAMA3": ({"roles": ["user", "assistant"],
                "system_template": "<|start_header_id|>system<|end_header_id|>\n\n{system_message}<|eot_id|>"},
               "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\nHo<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "CHATML": (TAGS, "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
               "<|im_start|>assistant\nHo<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"),
    "CHATGLM3": ({"roles": ["<|user|>", "<|assistant|>"], "system_template": "<|system|>\n{system_message}"},
                 "<|system|>\nBe kind.<|user|>\nHi<|assistant|>\nHo<|user|>\nBye<|assistant|>"),
    "CHATINTERN": ({**PLAIN, "sep": "<eoh>", "sep2": "<eoa>"},
                   "Be kind.<s>USER:Hi<eoh>\nASSISTANT:Ho<eoa>\n<s>USER:Bye<eoh>\nASSISTANT:"),
    "DOLLY": (PLAIN, "Be kind.USER:\nHi\nASSISTANT:\nHo</s>\n\nUSER:\nBye\nASSISTANT:\n"),
    "PHOENIX": (PLAIN, "Be kind.USER: <s>Hi</s>ASSISTANT: <s>Ho</s>USER: <s>Bye</s>ASSISTANT: <s>"),
    "ROBIN": (PLAIN, "Be kind.\nUSER:\nHi\nASSISTANT:\nHo\nUSER:\nBye\nASSISTANT:\n"),
    "FALCON_CHAT": (PLAIN, "Be kind.\nUSER: Hi\nASSISTANT: Ho\nUSER: Bye\nASSISTANT:"),
    "DEEPSEEK_CHAT": (PLAIN, "Be kind.USER: Hi\nASSISTANT: Ho</s>USER: Bye\nASSISTANT:"),
    "METAMATH": ({**PLAIN, "sep2": "Hm. "}, "Be kind.\nUSER:\nHi\nASSISTANT: Hm. HoUSER:\nBye\nASSISTANT: Hm. "),
    "DEFAULT": (PLAIN, "Be kind.\nUSER: Hi\nASSISTANT: Ho\nUSER: Bye\nASSISTANT:"),
}  # fmt: skip
"""By style: fields, and the prompt of ``TALK``, worked out by hand from FastChat's ``get_prompt``."""


def drafts(fields: dict[str, Any], **words: Any) -> list[Any]:
    return read_fastchat(source("talk.json", json.dumps({"name": "mine", **fields})), **words)


@pytest.mark.parametrize("style", WRITTEN)
def test_a_style_is_written_as_fastchat_writes_it_and_imported_so(style: str) -> None:
    fields, prompt = WRITTEN[style]
    (draft,) = drafts({**fields, "sep_style": style})
    dialogue = dialogue_of(Example(TALK))
    assert draft.reference.render(dialogue) == prompt
    template = build(parse_spec(draft.keys, name="mine"))
    assert template.render(dialogue).text == prompt


def test_every_style_of_the_table_is_shown_here_or_refused() -> None:
    assert set(styles()) == set(WRITTEN) | {"GEMMA"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "numbered rounds": ({**PLAIN, "sep_style": "CHATGLM"}, "the style 'CHATGLM' is not supported; supported: ADD"),
    "a style without system": ({**PLAIN, "sep_style": "GEMMA"}, "to exclude system messages, add --without system"),
    "a space that a system message takes away": (
        {**PLAIN, "sep": " ", "sep_style": "ADD_COLON_TWO"}, "a system message changes the start of the prompt",
    ),
    "an unknown style": ({"sep_style": "MINE"}, "the style 'MINE' is not supported"),
    "an unknown field": ({"seperator": "x"}, "unknown field seperator; the known fields are name"),
    "three roles": ({"roles": ["a", "b", "c"]}, "talk.json roles: must be a list of two texts"),
    "a number as text": ({"sep": 5}, "talk.json sep: must be text"),
    "another slot": ({"system_template": "{system_message}{x}"}, "a brace outside {system_message}"),
    "a stop that is no text": ({"stop_str": [5]}, "talk.json stop_str: must be a text or a list of texts"),
    "an id that is none": ({"stop_token_ids": ["</s>"]}, "must be a token id or a list of token ids"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_said_is_refused_by_its_field(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        drafts(fields)
    assert says in str(caught.value)


def test_without_system_a_style_may_still_be_said() -> None:
    (draft,) = drafts({**PLAIN, "sep": " ", "sep_style": "ADD_COLON_TWO"}, subset=("system",))
    assert "SYSTEM" not in str(draft.keys)


def test_stops_and_defaults_are_carried_or_told() -> None:
    fields = {
        **TAGS,
        "sep_style": "CHATML",
        "stop_str": "<|im_end|>",
        "stop_token_ids": [1, 2],
        "messages": [["a", "b"]],
    }
    (draft,) = drafts(fields)
    assert draft.keys["stop"] == ["<|im_end|>"]
    assert "eos_token_id" not in draft.keys
    assert any("stop_token_ids [1, 2]" in note for note in draft.notes)
    assert any("'Default.'" in note for note in draft.notes)
    assert any(note.startswith("messages:") for note in draft.notes)
    assert drafts({**TAGS, "sep_style": "CHATML", "stop_token_ids": [7]})[0].keys["eos_token_id"] == 7


PYTHON = """
from fastchat.conversation import Conversation, SeparatorStyle, register_conv_template

SEP = "</s>"
register_conv_template(
    Conversation(name="one", roles=("U", "A"), sep_style=SeparatorStyle.NO_COLON_TWO, sep=" ", sep2=SEP)
)
two = Conversation("two", "{system_message}", "", ("U", "A"), (), 0, SeparatorStyle.NO_COLON_SINGLE, "|")
"""


def test_calls_are_read_from_python() -> None:
    found = {draft.name: draft for draft in read_fastchat(source("c.py", PYTHON))}
    assert set(found) == {"one", "two"}
    assert found["one"].keys["round"][1] == {"role": "BOT", "begin": "A", "end": "</s>", "generate": True}
    assert found["two"].keys["round"][1]["end"] == "|"


def test_a_field_that_is_computed_is_refused_with_its_line() -> None:
    text = 'Conversation(\n    name="x",\n    sep=make(),\n)'
    with pytest.raises(ConfigError, match=r"c\.py:3: sep of the conversation contains make"):
        read_fastchat(source("c.py", text))


def test_a_field_that_is_set_later_is_refused_and_a_method_is_told() -> None:
    text = 'c = Conversation("x", sep_style="CHATML", sep="<|end|>", roles=("u", "a"))\n'
    (draft,) = read_fastchat(source("c.py", f"{text}c.append_message(c.roles[0], None)"))
    assert "line 2: the effect of .append_message() on Conversation(…) (line 1) was not imported" in draft.notes
    with pytest.raises(ConfigError, match=r"c\.py:3: the conversation contains a value that a statement may change"):
        read_fastchat(source("c.py", f"{text}d = c\nif x:\n    d.sep = 'y'"))
    with pytest.raises(ConfigError, match=r"c\.py:2: the conversation contains"):
        read_fastchat(source("c.py", f"{text}c.sep = 'y'"))


def test_an_empty_message_is_an_open_turn_in_fastchat() -> None:
    conversation = FastChatConversation("x", ("U", "A"), "ADD_COLON_SINGLE", "\n")
    text = conversation.prompt(dialogue_of(Example(({"role": "user", "content": ""},)), whole=True))
    assert text == "\nU:"
