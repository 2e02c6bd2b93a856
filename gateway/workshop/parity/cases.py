"""The conversations of a comparison. The cases are fixed and have stable names.

The contents are texts on which templates often fail: empty text, white space at the ends, braces and percent
signs, other scripts, and the text of special tokens of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from metatemplate.templates.registry import dialogue_of
from metatemplate.templates.spec import Example
from metatemplate.values.dialogue import EMPTY_MAPPING, Dialogue

LOOK_ALIKES = ("<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "[INST]", "<|endoftext|>")
"""The texts used as special tokens if the reference has no special tokens."""


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation with a name."""

    name: str
    messages: tuple[Mapping[str, Any], ...]
    """The messages, as in the body of a chat request."""
    tools: tuple[Mapping[str, Any], ...] = ()
    continue_final: bool = False
    """Whether the last message is from the assistant and the model should continue it."""
    whole: bool = False
    """Whether the conversation is complete, so that the prompt does not open an answer (``add_generation_prompt:
    false``)."""
    template_kwargs: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The variables of the request for a chat template (``chat_template_kwargs``)."""

    @property
    def dialogue(self) -> Dialogue:
        """The conversation as input for a template."""
        example = Example(self.messages, continue_final_message=self.continue_final, tools=self.tools)
        dialogue = dialogue_of(example, whole=self.whole)
        return replace(dialogue, options=replace(dialogue.options, template_kwargs=self.template_kwargs))


def matrix(special_tokens: Iterable[str] = ()) -> tuple[Case, ...]:
    """Return all cases in the order of the report. Some messages contain the texts of ``special_tokens``."""
    tokens = tuple(dict.fromkeys([token for token in special_tokens if token.strip()])) or LOOK_ALIKES
    return (
        *[Case(name, _talk(*turns)) for name, turns in TURNS.items()],
        *[Case(name, _talk(("user", content))) for name, content in CONTENTS.items()],
        *[Case(name, _talk(*turns)) for name, turns in EDGES.items()],
        *[Case(name, _talk(*turns)) for name, turns in _look_alikes(tokens).items()],
        Case("content in parts", ({"role": "user", "content": [_part("What is "), _part("1+1?")]},)),
        *[Case(name, messages, tools) for name, (tools, messages) in TOOL_CASES.items()],
        *[Case(name, _talk(*turns), continue_final=True) for name, turns in CONTINUED.items()],
        *[Case(name, _talk(*turns), whole=True) for name, turns in WHOLE.items()],
    )


CaseTurn = tuple[str, str]
"""The role and the content of a message."""


def _talk(*turns: CaseTurn) -> tuple[Mapping[str, Any], ...]:
    return tuple([{"role": role, "content": content} for role, content in turns])


def _part(text: str) -> Mapping[str, str]:
    return {"type": "text", "text": text}


def _turns(number: int) -> tuple[CaseTurn, ...]:
    """Return a conversation with ``number`` questions. Every question except the last has an answer."""
    asked = [("user", f"What is {one}+{one}?") for one in range(1, number + 1)]
    answered = [("assistant", f"{one}+{one} is {one + one}.") for one in range(1, number)]
    return (*[turn for pair in zip(asked, answered, strict=False) for turn in pair], asked[-1])


SYSTEM_TURN: CaseTurn = ("system", "You answer in one sentence.")
USER: CaseTurn = ("user", "What is 1+1?")
ASSISTANT: CaseTurn = ("assistant", "1+1 is 2.")

TURNS: Mapping[str, tuple[CaseTurn, ...]] = {
    "one turn": _turns(1),
    "two turns": _turns(2),
    "three turns": _turns(3),
    "four turns": _turns(4),
    "five turns": _turns(5),
    "system, one turn": (SYSTEM_TURN, *_turns(1)),
    "system, two turns": (SYSTEM_TURN, *_turns(2)),
    "system, five turns": (SYSTEM_TURN, *_turns(5)),
    "two system messages": (SYSTEM_TURN, ("system", "You are polite."), USER),
    "system later": (USER, ASSISTANT, ("system", "Now answer in French."), ("user", "What is 2+2?")),
    "system alone": (SYSTEM_TURN,),
    "user twice": (USER, ("user", "And 2+2?")),
    "assistant first": (("assistant", "How can I help?"), USER),
    "assistant last": (USER, ASSISTANT),
}
"""Name of a case → turns. The cases differ in the order and number of turns."""

CONTENTS: Mapping[str, str] = {
    "empty user": "",
    "blank user": "   ",
    "leading space": "  What is 1+1?",
    "trailing space": "What is 1+1?  ",
    "leading newline": "\n\nWhat is 1+1?",
    "trailing newline": "What is 1+1?\n\n",
    "carriage returns": "One line\r\nand another\rand a third",
    "tabs": "a\tb\t\tc",
    "other scripts": "1+1 等于几？ Сколько будет? ما هو؟ כמה זה?",
    "emoji": "Hi \U0001f44b\U0001f3fd \U0001f469\u200d\U0001f4bb e\u0301 \u00e9",
    "odd blanks": "no\u00a0break\u2028line\u2029paragraph\u200bnothing\ufeffmark\u3000wide",
    "code": "Explain:\n\n```python\ndef f(x):\n    return {'a': x[0]}  # done\n```\n",
    "markup": '<b class="x">1 &lt; 2</b> & <!-- no --> <HUMAN>: hi <eoh>',
    "braces": "{} {0} {name} {{name}} {messages} {",
    "template look-alikes": "{{ bos_token }} {% if true %}yes{% endif %} {# no #} {%- raw -%}",
    "percent and dollar": "100%, %s %(name)d %% $HOME ${HOME} `id` \\n \\\\",
    "quotes": '"double" \'single\' “curly” \\"escaped\\"',
    "long": "All work and no play makes a dull line. " * 100,
}
"""Name of a case → content of its single user message."""

EDGES: Mapping[str, tuple[CaseTurn, ...]] = {
    "empty system": (("system", ""), USER),
    "empty assistant": (USER, ("assistant", ""), ("user", "Hello?")),
    "blanks around system": (("system", "\n You answer. \n"), USER),
    "blanks around assistant": (USER, ("assistant", "\n\n1+1 is 2. \n"), ("user", "And 2+2?")),
}
"""Name of a case → turns. A system or assistant message is empty, or has white space around the text."""


def _look_alikes(tokens: Sequence[str]) -> Mapping[str, tuple[CaseTurn, ...]]:
    """Return conversations in which messages contain the text of the model's special tokens."""
    words = " ".join(tokens)
    return {
        "special tokens in user": (("user", f"What do {words} mean?"),),
        "special tokens in system": (("system", f"Never write {words}."), USER),
        "special tokens in assistant": (USER, ("assistant", f"{words} mean nothing."), ("user", "Are you sure?")),
        "special token first": (("user", f"{tokens[0]}What is 1+1?"),),
    }


ADD: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "description": "the other one"}},
            "required": ["a", "b"],
        },
    },
}
WEATHER: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Das Wetter an einem Ort; „heute“ & <morgen>",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
                "unit": {"type": "string", "enum": ["°C", "°F"], "default": "°C"},
            },
        },
    },
}


def _call(number: int, name: str, arguments: str) -> Mapping[str, Any]:
    # Nine letters and digits: some templates refuse any other id.
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _calls(*calls: Mapping[str, Any], text: str | None = None) -> Mapping[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def _result(number: int, name: str, text: str) -> Mapping[str, Any]:
    return {"role": "tool", "tool_call_id": f"call0000{number}", "name": name, "content": text}


ASKED = _talk(("user", "What is 12+34?"))
ADDED = (_calls(_call(1, "add", '{"a": 12, "b": 34}')), _result(1, "add", "46"))
BOTH = (
    _calls(_call(1, "add", '{"a":12,"b":34}'), _call(2, "weather", '{"place": {"city": "Köln"}}'), text="Let me see."),
    _result(1, "add", "46"),
    _result(2, "weather", '{"sky": "heiter", "°C": 21}'),
)

TOOL_CASES: Mapping[str, tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]] = {
    "one tool": ((ADD,), ASKED),
    "two tools": ((ADD, WEATHER), ASKED),
    "tools and system": ((ADD,), (*_talk(SYSTEM_TURN), *ASKED)),
    "tools, two turns": ((ADD,), _talk(*_turns(2))),
    "a call and its result": ((ADD,), (*ASKED, *ADDED)),
    "a call that was answered": ((ADD,), (*ASKED, *ADDED, *_talk(("assistant", "46."), ("user", "Thanks!")))),
    "two calls, two results": ((ADD, WEATHER), (*ASKED, *BOTH)),
    "calls without tools": ((), (*ASKED, *ADDED)),
}
"""Name of a case → tools and messages."""

CONTINUED: Mapping[str, tuple[CaseTurn, ...]] = {
    "continued": (USER, ("assistant", "1+1 is")),
    "continued after a space": (USER, ("assistant", "1+1 is ")),
    "continued, with system": (SYSTEM_TURN, *_turns(2), ("assistant", "It is")),
}

WHOLE: Mapping[str, tuple[CaseTurn, ...]] = {
    "whole, one turn": (USER, ASSISTANT),
    "whole, with system": (SYSTEM_TURN, USER, ASSISTANT),
    "whole, three turns": (*_turns(3), ("assistant", "3+3 is 6.")),
}
