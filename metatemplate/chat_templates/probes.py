"""Renders probe conversations when a template is loaded, to find the texts that it writes around messages.

A chat template may put a text together, such as ``<|user|>`` of the role, so its constants do not contain every text.
"""

from __future__ import annotations

from collections.abc import Iterator

from metatemplate.chat_templates.call_content import tool_call_messages, tool_options
from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.errors import MetaTemplateError
from metatemplate.values.dialogue import Dialogue, Message, RenderOptions

PROBE_TEXTS = ("7031948265", "2846157039")
"""The text of each message, in two renderings. The two differ in every digit, so that a part of a text, which a
template may write alone, differs too. Digits stay the same in JSON and in upper case."""
ROLES = (
    ("user",),
    ("system", "user"),
    ("developer", "user"),
    ("user", "assistant", "user"),
    ("user", "assistant", "tool"),
    ("system", "user", "assistant", "user", "assistant"),
)
"""The roles of the messages of each conversation."""


def texts_around_messages(template: JinjaTemplate) -> Iterator[tuple[str, ...]]:
    """Yield the texts around the messages of each probe conversation, without lines that have a part of a message.

    A conversation that is refused is left out.
    """
    for pair in zip(*map(_conversations, PROBE_TEXTS), strict=True):
        try:
            texts, others = [
                template.render(dialogue).text.split(probe) for dialogue, probe in zip(pair, PROBE_TEXTS, strict=True)
            ]
        except MetaTemplateError:
            continue
        yield tuple(["\n".join(_equal_lines(text, other)) for text, other in zip(texts, others, strict=False)])


def _equal_lines(text: str, other: str) -> Iterator[str]:
    for line, counterpart in zip(text.split("\n"), other.split("\n"), strict=False):
        yield line if line == counterpart else ""


def _conversations(probe: str) -> Iterator[Dialogue]:
    for roles in ROLES:
        messages = tuple([Message(role, probe) for role in roles])
        yield Dialogue(messages, RenderOptions(whole=roles[-1] == "assistant"))
    call = tool_call_messages(probe, "")
    yield Dialogue(call)
    yield Dialogue(call, tool_options(probe))
