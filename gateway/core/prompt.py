"""What a template makes of a dialogue: segments that remember where they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from gateway.core.frozen import dataclass

Bos = Literal["none", "text", "engine"]
"""Who writes the begin-of-sequence token (design 4.3).

``none``    the template says nothing about it; the engine's habit stands
``text``    the template writes it as text; the engine must not add another
``engine``  the engine is expected to add it
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt that remembers where it came from."""

    text: str
    role: str
    """The template's role that speaks; empty for the template's own begin and end."""
    origin: str
    """``template`` (meta begin or end, default prompts), ``messages[2]``, ``tools[0]``, ``tool_choice``,
    ``generate``; ``mixed`` where a template has worked on the very words, so that nobody can tell.
    """
    scaffold: bool
    """True: written by the template. False: content from the client."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A rewrite that the client should know of; shown in ``x-gateway-notice``."""

    rule: str
    """A closed set of words: ``fallback_role``, ``merged_turns``, ``default_prompt`` …"""
    detail: str = ""
    """ASCII, short, and free of client text: ``messages[0].role=HUMAN``."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}" if self.detail else self.rule


Mark = tuple[str, str, bool]
"""Where a piece of a prompt comes from: a segment's ``role``, ``origin`` and ``scaffold``."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model will see, and where its answer ends.

    A string template makes a text, from pieces with one mark each; a message template makes messages.
    """

    text: str = ""
    """The exact string: all pieces, joined; ``""`` for message templates."""
    messages: tuple[Mapping[str, Any], ...] | None = None
    """OpenAI messages, as they go on the wire; None for string templates."""
    stops: tuple[str, ...] = ()
    """The template's stop strings, in order of precedence (design 4.2)."""
    stop_token_ids: tuple[int, ...] = ()
    bos: Bos = "none"
    bos_text: str = ""
    """With ``bos: text``: the BOS as the template writes it."""
    notices: tuple[Notice, ...] = ()
    pieces: tuple[str, ...] = ()
    marks: tuple[Mark | None, ...] = ()
    """None: an empty piece that is no segment."""
    opened: str = ""
    """What the text ends with on the model's behalf: the beginning of a call that ``tool_choice`` demands."""
    origins: Callable[[], tuple[Segment, ...]] | None = field(default=None, compare=False, repr=False)
    """Finds the segments, for a text whose pieces are not known while it is made; may take long."""

    @property
    def segments(self) -> tuple[Segment, ...] | None:
        """The pieces with their marks, made when somebody looks at them; None for message templates."""
        if self.messages is not None:
            return None
        if self.origins is not None:
            return self.origins()
        return tuple([Segment(text, *mark) for text, mark in zip(self.pieces, self.marks, strict=True) if mark])
