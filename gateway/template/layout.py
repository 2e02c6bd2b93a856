"""Prompt layouts, a fast path: a template's text around the messages, once for each order of roles.

Conversations of text messages with the same order of roles differ in their texts only. The layout of such an order is
made from the general rendering, and a request puts its texts into the gaps. Clients choose the orders, so their number
and length are bounded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from gateway.core import fast_paths
from gateway.core.dialogue import DEFAULT_OPTIONS, Dialogue, PlainMessages
from gateway.core.prompt import Prompt, PromptMetadata

MAX_LAYOUTS = 256
"""Layouts that a template keeps."""
MAX_MESSAGES = 512
"""Messages of the longest order that is kept."""

Roles = tuple[str, ...]
Gap = int | tuple[str]
"""The text that belongs there: of ``messages[2]``, or of ``(variable,)``."""


class PromptLayout:
    """The text of a conversation around its messages."""

    __slots__ = ("_head", "_pieces", "metadata")

    def __init__(self, words: Sequence[str], metadata: PromptMetadata) -> None:
        """``words``: the texts around the gaps, one more than there are gaps."""
        self.metadata = metadata
        # If only the first text holds characters beyond Latin-1, it is joined last: "".join is several times slower
        # on strings of different widths.
        is_wide_head = not words[0].isascii() and all(map(str.isascii, words[1:]))
        self._head = words[0] if is_wide_head else ""
        self._pieces = with_gaps(["", *words[1:]] if is_wide_head else words)

    def fill(self, texts: Sequence[str]) -> str:
        """The prompt with a text in each gap."""
        pieces = self._pieces.copy()
        pieces[1::2] = texts
        return self._head + "".join(pieces)


class LayoutTemplate(ABC):
    """A template that renders text messages without options by a layout, and every other dialogue in general."""

    def __init__(self, lay_out: Callable[[Roles], PromptLayout | None]) -> None:
        """``lay_out`` returns None for an order whose prompt depends on more than the texts."""
        self._layouts = lru_cache(maxsize=MAX_LAYOUTS)(lay_out)

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``."""
        prompt = self._fast_render(dialogue) if fast_paths.ENABLED else None
        return self._render_general(dialogue) if prompt is None else prompt

    def _fast_render(self, dialogue: Dialogue) -> Prompt | None:
        """The prompt by its layout; None: the dialogue needs the general form."""
        messages = dialogue.messages
        if dialogue.options is not DEFAULT_OPTIONS or not isinstance(messages, PlainMessages):
            return None
        if len(messages.roles) > MAX_MESSAGES:
            return None
        layout = self._layouts(messages.roles)
        return Prompt(layout.fill(messages.texts), layout.metadata, dialogue) if layout is not None else None

    @abstractmethod
    def _render_general(self, dialogue: Dialogue) -> Prompt:
        """``render`` for every dialogue."""


def with_gaps(words: Sequence[str]) -> list[str]:
    """The words with an empty string between any two of them, at ``[1::2]``."""
    return [piece for word in words for piece in ("", word)][1:]


def split_at_gaps(words: Iterable[str | Gap]) -> tuple[list[str], list[Gap]]:
    """The texts around the gaps, one more than there are gaps, and the gaps. Neighbouring texts become one."""
    texts: list[str] = [""]
    gaps: list[Gap] = []
    for word in words:
        if isinstance(word, str):
            texts[-1] += word
        else:
            texts.append("")
            gaps.append(word)
    return texts, gaps
