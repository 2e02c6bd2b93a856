"""Renders probe conversations when a template is loaded, to find the texts that it writes around messages.

A chat template may put a text together, such as ``<|user|>`` of the role, so its constants do not contain every text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.core.dialogue import Dialogue, Message, RenderOptions
from gateway.core.errors import GatewayError
from gateway.template.huggingface.renderer import JinjaTemplate

PROBE = "7031948265"
"""The text of each message. Digits stay the same in JSON and in upper case."""
ROLES = (
    ("user",), ("system", "user"), ("developer", "user"), ("user", "assistant", "user"), ("user", "assistant", "tool"),
    ("system", "user", "assistant", "user", "assistant"),
)  # fmt: skip
"""The roles of the messages of each conversation."""
CALL = {"id": PROBE, "type": "function", "function": {"name": PROBE, "arguments": f'{{"{PROBE}": "{PROBE}"}}'}}
TOOL = {
    "type": "function",
    "function": {"name": PROBE, "description": PROBE, "parameters": {"type": "object", "properties": {}}},
}


def texts_around_messages(template: JinjaTemplate) -> Iterator[tuple[str, ...]]:
    """Yield the texts around the messages of each probe conversation. A conversation that is refused is left out."""
    for dialogue in _conversations():
        try:
            text = template.render(dialogue).text
        except GatewayError:
            continue
        yield tuple(text.split(PROBE))


def _conversations() -> Iterator[Dialogue]:
    for roles in ROLES:
        messages = tuple([Message(role, PROBE) for role in roles])
        yield Dialogue(messages, RenderOptions(whole=roles[-1] == "assistant"))
    raw: Mapping[str, Any] = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    result: Mapping[str, Any] = {"role": "tool", "tool_call_id": PROBE, "content": PROBE}
    call = (Message("user", PROBE), Message("assistant", "", (), raw), Message("tool", PROBE, (), result))
    yield Dialogue(call)
    yield Dialogue(call, RenderOptions(tools=(TOOL,)))
