"""Two templates that make the same prompts, to be broken in one place at a time."""

from __future__ import annotations

from typing import Any

from gateway.workshop.parity.sides import Side, chat_reference
from metatemplate.templates.base import Template
from tests.metatemplate.chat_templates.samples import jinja
from tests.metatemplate.templates.samples import template

HUMAN: dict[str, Any] = {"role": "HUMAN", "begin": "<|user|>", "end": "<|end|>\n"}
BOT: dict[str, Any] = {"role": "BOT", "begin": "<|assistant|>", "end": "<|end|>\n", "generate": True}
SYSTEM: dict[str, Any] = {"role": "SYSTEM", "begin": "<|system|>", "end": "<|end|>\n"}
OURS: dict[str, Any] = {
    "begin": "<s>",
    "round": [HUMAN, BOT],
    "reserved_roles": [SYSTEM],
    "bos": "text",
    "bos_text": "<s>",
}

BEGIN = "{{ bos_token }}"
TURN = "{{ '<|' + m.role + '|>' + m.content + '<|end|>\\n' }}"
OPENING = "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"


def source(begin: str = BEGIN, turn: str = TURN, opening: str = OPENING) -> str:
    """The text of a chat template."""
    return f"{begin}{{% for m in messages %}}{turn}{{% endfor %}}{opening}"


def ours(**changes: Any) -> Template:
    """Our template, with some keys changed; None takes a key away."""
    keys = {**OURS, **changes}
    return template({key: value for key, value in keys.items() if value is not None})


def chat(begin: str = BEGIN, turn: str = TURN, opening: str = OPENING, **keys: Any) -> Side:
    """The chat template as a reference."""
    return chat_reference(jinja(source(begin, turn, opening), special_tokens={"bos_token": "<s>"}, **keys))
