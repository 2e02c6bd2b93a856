"""A draft of a template file: its keys, notes for a person, and the reference that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Bos
from gateway.template.spec import TemplateSpec

Render = Callable[[Dialogue], str]
"""Returns the source's own prompt; raises ``GatewayError`` for a conversation that the source refuses."""

SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Conversations that are left out of the comparison."""

    name: str
    """As the verdict lists it."""
    matches: Callable[[Dialogue], bool]
    open_only: bool = False
    """True: complete conversations, which open no turn, are compared all the same."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A renderer of the source's own prompts."""

    name: str
    """As the verdict and the header call it."""
    render: Render
    """The prompt, with the assistant's turn opened at its end."""
    whole: Render | None = None
    """The text with no turn left open; None: the source has no such text."""
    bos: Bos = "none"
    """``engine``: the engine puts the BOS before these texts."""
    default_system: str = ""
    """The source's own system message for conversations without one. The comparison puts it in front of them."""
    excluded: tuple[Exclusion, ...] = ()
    hint: str = ""
    """Advice for a difference between template and reference, if the format needs its own."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One template file before its examples are added."""

    name: str
    """Of the file, unless the command line gives another."""
    origin: str
    """The format, the file and the place in it, for the header."""
    sha256: str
    """Of the source file, in hex."""
    keys: Mapping[str, Any]
    """The keys of the template file, in the order of the file."""
    notes: tuple[str, ...] = ()
    """Keys that were not imported, and points that a person should check."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Paths and contents for the folder of the template's name."""
    reference: Reference | None = None
    port: Callable[[TemplateSpec], Reference | None] | None = None
    """Makes the reference of the checked template, for formats whose own code is ported here."""
    examples_by: str = ""
    """The renderer of the examples if there is no reference."""


def has_system(dialogue: Dialogue) -> bool:
    """A system message."""
    return any(message.role in SYSTEM_ROLES for message in dialogue.messages)


def has_odd_system(dialogue: Dialogue) -> bool:
    """A system message that is not the first, or alone."""
    later = any(message.role in SYSTEM_ROLES for message in dialogue.messages[1:])
    return later or (has_system(dialogue) and len(dialogue.messages) == 1)


def starts_with_assistant(dialogue: Dialogue) -> bool:
    """The first message behind the system messages is not the user's."""
    roles = [message.role for message in dialogue.messages if message.role not in SYSTEM_ROLES]
    return bool(roles) and roles[0] != "user"


def ends_with_assistant(dialogue: Dialogue) -> bool:
    """The last message is the assistant's, and another answer is requested."""
    return bool(dialogue.messages) and dialogue.messages[-1].role == "assistant" and not dialogue.options.continue_final


def has_neighbours(dialogue: Dialogue) -> bool:
    """Two messages of one role in a row."""
    return any(one.role == other.role for one, other in pairwise(dialogue.messages))


TOOLS = Exclusion(
    "tools, calls and results",
    lambda one: (
        bool(one.options.tools) or any(this.role == "tool" or this.raw.get("tool_calls") for this in one.messages)
    ),
)
EMPTY = Exclusion("empty messages", lambda one: any(not message.text for message in one.messages))
NO_SYSTEM = Exclusion(
    "conversations without a system message, to which the source adds one of its own", lambda one: not has_system(one)
)
CONTINUED = Exclusion("messages to be continued", lambda one: one.options.continue_final)

STRICT_TURNS = (
    TOOLS,
    Exclusion("two messages of one role in a row", has_neighbours),
    Exclusion("system messages behind the first message, or alone", has_odd_system),
    Exclusion("conversations that the assistant begins", starts_with_assistant),
    Exclusion("conversations that end with the assistant", ends_with_assistant, open_only=True),
    CONTINUED,
)
"""For references that know only user and assistant in turns."""

SUBSETS = {
    "system": Exclusion("system messages", has_system),
    "blanks": Exclusion(
        "messages with white space at their ends",
        lambda one: any(this.text != this.text.strip() for this in one.messages),
    ),
    "empty": EMPTY,
    "odd": Exclusion(
        "conversations in which user and assistant do not take turns behind one system message",
        lambda one: (
            has_neighbours(one) or has_odd_system(one) or starts_with_assistant(one) or ends_with_assistant(one)
        ),
        open_only=True,
    ),
    "continued": CONTINUED,
}
"""The exclusions of ``--without``, in addition to those of the reference."""
