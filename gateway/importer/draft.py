"""What did a source become? The keys of a template file, what else there is to say, and who can vouch for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Bos
from gateway.template.spec.template import TemplateSpec

Render = Callable[[Dialogue], str]
"""The prompt that the source means; raises ``GatewayError`` for a conversation that it refuses."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Conversations in which the reference does something that no template of ours says."""

    why: str
    """``tools``, or a sentence's end: ``neighbours of one role, which it joins``."""
    holds: Callable[[Dialogue], bool]
    """Is this one of them?"""
    opens: bool = False
    """True: complete conversations, which open no turn, are none of them."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that writes the prompts as the source means them."""

    title: str
    """Who it is: ``the chat template``, ``this gateway's reader of Go templates``."""
    render: Render
    whole: Render | None = None
    """The same with no turn left open; None: it knows no such text."""
    bos: Bos = "none"
    """``engine``: its texts come without the BOS that its engine puts before them."""
    default_system: str = ""
    """The system message that the source itself puts before conversations without one; compared with it in front."""
    excluded: tuple[Exclusion, ...] = ()
    """What it is not asked for, each told in the verdict."""
    hint: str = ""
    """What to do where the two part, if the format has a way of its own."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One template to be."""

    name: str
    """A file's name, unless the person gives another."""
    origin: str
    """What it was made from, for the header: the format, the file, the place in it."""
    digest: str
    """The SHA-256 of that file."""
    keys: Mapping[str, Any]
    """The template file's keys, in the order in which they are written; examples are added later."""
    notes: tuple[str, ...] = ()
    """What was not carried over, and what a person should look at."""
    beside: tuple[tuple[str, bytes], ...] = ()
    """Files for the folder of the template's name, by their names in it."""
    reference: Reference | None = None
    """None: nothing but ``port`` can write the source's own prompts."""
    port: Callable[[TemplateSpec], Reference | None] | None = None
    """Makes a reference of the template itself, for formats whose own code is ported here."""
    stands_for: str = ""
    """Without a reference: who writes the examples then."""

    subset: tuple[str, ...] = ()
    """Words of ``--without`` that were taken."""


# ---------------------------------------------------------------- what references are not asked for


def has_tools(dialogue: Dialogue) -> bool:
    """Tools, calls or results."""
    return bool(dialogue.tools) or any(
        message.role == "tool" or message.raw.get("tool_calls") for message in dialogue.messages
    )


def has_empty(dialogue: Dialogue) -> bool:
    """A message that says nothing."""
    return any(not message.text for message in dialogue.messages)


def has_neighbours(dialogue: Dialogue) -> bool:
    """Two messages of one role in a row."""
    roles = [message.role for message in dialogue.messages]
    return any(one == other for one, other in pairwise(roles))


def has_system(dialogue: Dialogue) -> bool:
    """A system message."""
    return any(message.role in ("system", "developer") for message in dialogue.messages)


def has_no_system(dialogue: Dialogue) -> bool:
    """No system message."""
    return not has_system(dialogue)


def has_blanks(dialogue: Dialogue) -> bool:
    """A message with white space at an end."""
    return any(message.text != message.text.strip() for message in dialogue.messages)


def has_odd_system(dialogue: Dialogue) -> bool:
    """A system message that is not the first, or alone."""
    places = [place for place, one in enumerate(dialogue.messages) if one.role in ("system", "developer")]
    return bool(places) and (places != [0] or len(dialogue.messages) == 1)


def is_continued(dialogue: Dialogue) -> bool:
    """The last message is to be gone on with."""
    return dialogue.continue_final


def starts_late(dialogue: Dialogue) -> bool:
    """The assistant speaks first."""
    spoken = [message.role for message in dialogue.messages if message.role not in ("system", "developer")]
    return bool(spoken) and spoken[0] != "user"


def ends_early(dialogue: Dialogue) -> bool:
    """The assistant has spoken last, and is to speak again."""
    return bool(dialogue.messages) and dialogue.messages[-1].role == "assistant" and not dialogue.continue_final


TOOLS = Exclusion("tools, calls and results", has_tools)
EMPTY = Exclusion("empty messages", has_empty)
NEIGHBOURS = Exclusion("two messages of one role in a row", has_neighbours)
SYSTEM = Exclusion("system messages", has_system)
NO_SYSTEM = Exclusion("conversations without a system message, to which the source adds one of its own", has_no_system)
BLANKS = Exclusion("messages with white space at their ends", has_blanks)
ODD_SYSTEM = Exclusion("system messages behind the first message, or alone", has_odd_system)
CONTINUED = Exclusion("messages to be continued", is_continued)
STARTS_LATE = Exclusion("conversations that the assistant begins", starts_late)
ENDS_EARLY = Exclusion("conversations that end with the assistant", ends_early, opens=True)
ODD = Exclusion(
    "conversations in which user and assistant do not take turns behind one system message",
    lambda dialogue: any(holds(dialogue) for holds in (has_neighbours, has_odd_system, starts_late, ends_early)),
    opens=True,
)

SUBSETS = {"system": SYSTEM, "blanks": BLANKS, "empty": EMPTY, "odd": ODD, "continued": CONTINUED}
"""What a person may leave out by ``--without``, beyond what a reference is never asked for."""
