"""What a template makes of a dialogue: segments that remember where they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from gateway.core.dialogue import Dialogue
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


SegmentLabel = tuple[str, str, bool]
"""Where a piece of a prompt comes from: a segment's ``role``, ``origin`` and ``scaffold``."""


Segments = tuple[Segment, ...]
"""All of a prompt's text, in order."""
Messages = tuple[Mapping[str, Any], ...]
"""OpenAI messages, as they go on the wire."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a text was joined from, with a mark for each."""

    texts: tuple[str, ...] = ()
    marks: tuple[SegmentLabel | None, ...] = ()
    """None: an empty piece that is no segment."""

    def segments(self) -> Segments:
        """The pieces with their marks."""
        return tuple([Segment(text, *mark) for text, mark in zip(self.texts, self.marks, strict=True) if mark])


@dataclass(frozen=True, slots=True)
class DeferredSegments:
    """What a text was made of, where it takes more renderings to find out."""

    segments: Callable[[], Segments] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PromptMetadata:
    """What prompts of one template have in common when their speakers follow each other in the same order.

    It is made once for such an order, so that a prompt itself is little more than its text.
    """

    stops: tuple[str, ...] = ()
    """The template's stop strings, in order of precedence (design 4.2)."""
    stop_token_ids: tuple[int, ...] = ()
    bos: Bos = "none"
    bos_text: str = ""
    """With ``bos: text``: the BOS as the template writes it."""
    notices: tuple[Notice, ...] = ()
    opened: str = ""
    """What the text ends with on the model's behalf: the beginning of a call that ``tool_choice`` demands."""
    segments_of: Callable[[Dialogue], Segments] | None = field(default=None, compare=False, repr=False)
    """Finds the segments of a dialogue's prompt, for texts that are made without looking at their pieces."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model will see, and where its answer ends.

    A string template makes a text; a message template makes messages, which are then the ``source``.
    """

    text: str = ""
    """The exact string; ``""`` for message templates."""
    manner: PromptMetadata = PromptMetadata()
    source: Dialogue | Pieces | DeferredSegments | Messages = field(default=Pieces(), hash=False)
    """What it was made of. With a dialogue, ``manner`` finds the segments when somebody asks."""

    @property
    def messages(self) -> Messages | None:
        """What a message template makes; None for string templates."""
        return self.source if isinstance(self.source, tuple) else None

    @property
    def segments(self) -> Segments | None:
        """The pieces with their marks, made when somebody looks at them; None for message templates."""
        source = self.source
        if isinstance(source, tuple):
            return None
        if isinstance(source, Dialogue):
            return self.manner.segments_of(source) if self.manner.segments_of is not None else ()
        return source.segments()

    @property
    def stops(self) -> tuple[str, ...]:
        """See ``PromptMetadata``."""
        return self.manner.stops

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """See ``PromptMetadata``."""
        return self.manner.stop_token_ids

    @property
    def bos(self) -> Bos:
        """See ``PromptMetadata``."""
        return self.manner.bos

    @property
    def bos_text(self) -> str:
        """See ``PromptMetadata``."""
        return self.manner.bos_text

    @property
    def notices(self) -> tuple[Notice, ...]:
        """See ``PromptMetadata``."""
        return self.manner.notices

    @property
    def opened(self) -> str:
        """See ``PromptMetadata``."""
        return self.manner.opened
