"""Templates and dialogues of several tests."""

from __future__ import annotations

from typing import Any

from metatemplate.files.template import parse_spec
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build
from metatemplate.values.dialogue import Dialogue, Message, Part, plain_messages, render_options

HUMAN = {"role": "HUMAN", "begin": "<HUMAN>: ", "end": "<eoh>\n"}
BOT = {"role": "BOT", "begin": "<BOT>: ", "end": "<eob>\n", "generate": True}
SYSTEM = {"role": "SYSTEM", "begin": "<SYSTEM>: ", "end": "<eosys>\n"}
THOUGHTS = {"role": "THOUGHTS", "begin": "THOUGHTS: ", "end": "<eot>\n", "prompt": "None"}
RESULTS = {"role": "RESULTS", "begin": "RESULTS: ", "end": "<eor>\n"}

PLAIN: dict[str, Any] = {"round": [HUMAN, BOT]}
RESERVED: dict[str, Any] = {"round": [HUMAN, BOT], "reserved_roles": [SYSTEM]}
THINKING: dict[str, Any] = {"round": [HUMAN, THOUGHTS, BOT], "reserved_roles": [SYSTEM]}

API: dict[str, Any] = {
    "round": [{"role": "HUMAN", "api_role": "HUMAN"}, {"role": "BOT", "api_role": "BOT", "generate": True}],
}
API_SYSTEM: dict[str, Any] = {**API, "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}]}


def template(raw: dict[str, Any], **changes: Any) -> Template:
    """A renderer for a template file's content."""
    return build(parse_spec({**raw, **changes}, name="sample"))


def message(role: str, content: Any, **fields: Any) -> Message:
    """A message as the wire would give it."""
    raw = {"role": role, "content": content, **fields}
    if not isinstance(content, list):
        return Message(role, content or "", raw=raw)
    parts = tuple(Part(part["type"], part.get("text", "")) for part in content)
    return Message(role, "".join(part.text for part in parts if part.kind == "text"), parts, raw)


def dialogue(*turns: tuple[str, Any], **settings: Any) -> Dialogue:
    """A dialogue from (role, content) pairs, as a request brings it."""
    messages = plain_messages([{"role": role, "content": content} for role, content in turns])
    others = tuple(message(role, content) for role, content in turns)
    return Dialogue(messages or others, render_options(**settings))
