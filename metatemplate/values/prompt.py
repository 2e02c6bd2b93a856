"""The result of rendering a dialogue: a prompt of segments with their origins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from metatemplate.values.dialogue import Dialogue
from metatemplate.values.frozen import dataclass

Bos = Literal["none", "text", "engine"]
"""Origin of the begin-of-sequence token.

``none``    the template does not define the BOS; the gateway leaves the engine's behaviour unchanged
``text``    the template writes the BOS as text; the engine must not add another BOS
``engine``  the engine is expected to add the BOS
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt with its origin."""

    text: str
    role: str
    """The name of the role in the template; empty for the begin and the end of the template itself."""
    origin: str
    """``template`` (meta begin or end, default prompts), ``messages[2]``, ``tools[0]``, ``tool_choice``,
    ``generate``; ``mixed`` where a template has changed the text itself, so that the origin is unknown.
    """
    scaffold: bool
    """True: written by the template. False: content from the client."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One change of a request by the gateway, reported in ``x-gateway-notice``."""

    rule: str
    """The kind of change: ``fallback_role``, ``merged_turns``, ``default_prompt`` …"""
    detail: str = ""
    """A short ASCII text such as ``messages[0].role=HUMAN``. It contains no text of the client."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}" if self.detail else self.rule


MarkerAction = Literal["escape", "reject", "strip", "allow", "report", "token_ids"]
"""What is done with a marker of the template in a text of the input."""

SegmentLabel = tuple[str, str, bool]
"""A segment's ``role``, ``origin`` and ``scaffold``."""


MIXED = "mixed"
"""The origin of a text that may come from the template or from the client."""
Segments = tuple[Segment, ...]
"""The segments of a whole prompt, in order."""
Messages = tuple[Mapping[str, Any], ...]
"""The OpenAI messages that are sent."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a text, with a label for each."""

    texts: tuple[str, ...] = ()
    marks: tuple[SegmentLabel | None, ...] = ()
    """The label of each piece; None for an empty piece, which has no segment."""

    def segments(self) -> Segments:
        """Return the pieces as segments. Empty pieces are left out."""
        return tuple([Segment(text, *mark) for text, mark in zip(self.texts, self.marks, strict=True) if mark])


@dataclass(frozen=True, slots=True)
class DeferredSegments:
    """Segments that are computed on request, because they need further renderings of the template."""

    segments: Callable[[], Segments] = field(compare=False, repr=False)
    render_without_texts: Callable[[Callable[[str, str], bool]], Awaitable[str]] = field(compare=False, repr=False)
    """Renders the conversation with numbers in place of the client's texts, except texts for which the given function
    of a key and its text returns True. Raises ``MetaTemplateError``."""
    in_process: bool
    """False: the renderings need the subprocess for which calls wait."""


@dataclass(frozen=True, slots=True)
class PromptMetadata:
    """Fields that are equal in all prompts of one template with the same order of roles. Created once per order."""

    stops: tuple[str, ...] = ()
    """The template's stop strings, in order of precedence."""
    stop_token_ids: tuple[int, ...] = ()
    bos: Bos = "none"
    bos_text: str = ""
    """The BOS as the template writes it, if ``bos`` is ``text``."""
    notices: tuple[Notice, ...] = ()
    opened: str = ""
    """The beginning of the answer, if the prompt ends with it: the start of a tool call required by ``tool_choice``."""
    segments_of: Callable[[Dialogue], Segments] | None = field(default=None, compare=False, repr=False)
    """Computes the segments of a dialogue's prompt, for prompts rendered without segments."""

    def stops_and(self, *others: tuple[str, ...]) -> tuple[str, ...]:
        """Return the template's stop strings, which are never replaced, and then all others, without duplicates."""
        return tuple(dict.fromkeys(sum(others, self.stops))) if any(others) else self.stops


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a call: a text from a string template, or messages (in ``source``) from a message template."""

    text: str = ""
    """The exact string; ``""`` for message templates."""
    metadata: PromptMetadata = PromptMetadata()
    source: Dialogue | Pieces | DeferredSegments | Messages = field(default=Pieces(), hash=False)
    """Pieces, deferred segments or messages; or a dialogue, whose segments ``metadata.segments_of`` computes."""
    breaks: tuple[int, ...] = ()
    """The offsets in the text at which a tokenizer must begin a new token. See ``SafeSegments``."""

    @classmethod
    def of(cls, segments: Sequence[Segment], metadata: PromptMetadata, breaks: tuple[int, ...] = ()) -> Prompt:
        """Return the prompt that consists of these segments."""
        texts = tuple([one.text for one in segments])
        marks = tuple([(one.role, one.origin, one.scaffold) for one in segments])
        return cls("".join(texts), metadata, Pieces(texts, marks), breaks)

    @property
    def messages(self) -> Messages | None:
        """The messages of a message template; None for string templates."""
        return self.source if isinstance(self.source, tuple) else None

    @property
    def segments(self) -> Segments | None:
        """The segments, computed on access; None for message templates."""
        source = self.source
        if isinstance(source, tuple):
            return None
        if isinstance(source, Dialogue):
            return self.metadata.segments_of(source) if self.metadata.segments_of is not None else ()
        return source.segments()
