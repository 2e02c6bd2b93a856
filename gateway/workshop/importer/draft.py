"""A draft of a template or prompt file: its keys, notes for the user, and the reference for the comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gateway.workshop.parity.sides import Side
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.dialogue import SYSTEM_ROLES, Dialogue


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A kind of conversation that is left out of the comparison."""

    name: str
    """The description of the excluded conversations in the result of the comparison."""
    matches: Callable[[Dialogue], bool]
    open_only: bool = False
    """True: complete conversations are still compared, and only prompts that end with an open turn are left out."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A renderer that makes the same prompts as the source."""

    name: str
    """The name of the reference in the result of the comparison and in the header of the file."""
    side: Side
    """Makes the prompt of a conversation, as the source does."""
    excluded: tuple[Exclusion, ...] = ()
    hint: str = ""
    """Advice for users if template and reference differ; empty if the format has no special advice."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One template file before its examples are added, or one prompt file."""

    name: str
    """The default name of the file. The command line can give another name."""
    origin: str
    """A phrase for the header that names the format of the source, the source file and the place in the file."""
    sha256: str
    """The SHA-256 of the source file, in hex."""
    keys: Mapping[str, Any]
    """The keys of the template file, in the order of the file."""
    notes: tuple[str, ...] = ()
    """Notes about keys that were not imported, and about points that the user should check."""
    files: tuple[tuple[str, bytes], ...] = ()
    """(path, content) of each further file. These files are written to a folder with the template's name."""
    reference: Reference | None = None
    port: Callable[[TemplateSpec], Reference | None] | None = None
    """Makes the reference from the checked template, for formats whose original renderer is ported to the gateway."""
    examples_by: str = ""
    """The name of the renderer that writes the examples of a draft without a reference."""
    not_read: tuple[str, ...] = ()
    """A line for each model or dataset that was found in the source and not read, with the reason."""
    is_prompt: bool = False
    """True: a dataset's prompt file, whose keys already contain the examples. False: a template file."""


def policy_default(name: str, more: str = "") -> str:
    """Return where to set a parameter of a source in the gateway. In it, ``{value}`` stands for the source's value.

    ``more``: further text of the policy's ``params``.
    """
    return "write in a policy `params: {default: {" + name + ": {value}}" + more + "}`"


BOS = re.compile(r"<s>|<bos>|<[|｜](?:begin[_▁]of[_▁](?:text|sentence)|startoftext)[|｜]>", re.IGNORECASE)
"""The texts that many tokenizers use as the BOS."""


def bos_notes(prompt: str, bos: str) -> list[str]:
    """Return a warning if a prompt begins with the text of a BOS, because an engine may add a second BOS.

    ``bos``: the key ``bos`` of the template.
    """
    found = BOS.match(prompt)
    if found is None or bos == "text":
        return []
    return [
        f"the prompts begin with {found[0]!r}. If this text is the model's BOS, an engine such as vLLM adds a second "
        f'BOS; to prevent this, write `bos: text` and `bos_text: "{found[0]}"`'
    ]


def has_system(dialogue: Dialogue) -> bool:
    """Return whether the conversation has a system message."""
    return any(message.role in SYSTEM_ROLES for message in dialogue.messages)


def has_odd_system(dialogue: Dialogue) -> bool:
    """Return whether a system message is not the first message, or is the only message."""
    later = any(message.role in SYSTEM_ROLES for message in dialogue.messages[1:])
    return later or (has_system(dialogue) and len(dialogue.messages) == 1)


def starts_with_assistant(dialogue: Dialogue) -> bool:
    """Return whether the first message after the system messages is not from the user."""
    roles = [message.role for message in dialogue.messages if message.role not in SYSTEM_ROLES]
    return bool(roles) and roles[0] != "user"


def ends_with_assistant(dialogue: Dialogue) -> bool:
    """Return whether the last message is from the assistant and another answer is requested."""
    return bool(dialogue.messages) and dialogue.messages[-1].role == "assistant" and not dialogue.options.continue_final


def has_neighbours(dialogue: Dialogue) -> bool:
    """Return whether two messages in a row have the same role."""
    return any(one.role == other.role for one, other in pairwise(dialogue.messages))


TOOLS_EXCLUDED = Exclusion(
    "tools, calls and results",
    lambda one: (
        bool(one.options.tools) or any(this.role == "tool" or this.raw.get("tool_calls") for this in one.messages)
    ),
)
EMPTY = Exclusion("empty messages", lambda one: any(not message.text for message in one.messages))
CONTINUED = Exclusion("messages to be continued", lambda one: one.options.continue_final)

STRICT_TURNS = (
    TOOLS_EXCLUDED,
    Exclusion("two messages of one role in a row", has_neighbours),
    Exclusion("system messages behind the first message, or alone", has_odd_system),
    Exclusion("conversations that the assistant begins", starts_with_assistant),
    Exclusion("conversations that end with the assistant", ends_with_assistant, open_only=True),
    CONTINUED,
)
"""The exclusions for references that support only alternating user and assistant messages after a system message."""

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
"""Value of the option ``--without`` → exclusion, in addition to the exclusions of the reference."""
