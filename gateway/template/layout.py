"""Prompt layouts, a fast path: a template's text around the messages, once for each order of roles.

Conversations of text messages with the same order of roles differ in their texts only. The layout of such an order is
made from the general rendering, and a request puts its texts into the gaps. Clients choose the orders, so their number
and length are bounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.prompt import PromptMetadata

MAX_LAYOUTS = 256
"""Layouts that a template keeps."""
MAX_MESSAGES = 512
"""Messages of the longest order that is kept."""

Roles = tuple[str, ...]


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
        words = ["", *words[1:]] if is_wide_head else words
        self._pieces = [piece for word in words for piece in ("", word)][1:]

    def fill(self, texts: Sequence[str]) -> str:
        """The prompt with a text in each gap."""
        pieces = self._pieces.copy()
        pieces[1::2] = texts
        return self._head + "".join(pieces)
