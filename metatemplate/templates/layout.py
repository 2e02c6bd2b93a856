"""Prompt layouts, a fast path: the template's text around the messages, stored for each order of roles.

The prompts of two conversations with the same order of roles differ only in the texts of the messages. The general
renderer makes the layout of an order once. For a later request, the texts of the messages are put into the gaps of the
layout. Clients choose the orders of roles, so the number of layouts and the number of messages have limits.
"""

from __future__ import annotations

from collections.abc import Sequence

from metatemplate.values.prompt import PromptMetadata

MAX_LAYOUTS = 256
"""The largest number of layouts that a template keeps."""
MAX_LAYOUT_MESSAGES = 512
"""The largest number of messages in a layout."""

Roles = tuple[str, ...]


class PromptLayout:
    """The fixed text of a prompt, with a gap for the text of each message."""

    __slots__ = ("_head", "_pieces", "metadata")

    def __init__(self, words: Sequence[str], metadata: PromptMetadata) -> None:
        """Create a layout. ``words``: the texts before, between and after the gaps (one text more than gaps)."""
        self.metadata = metadata
        # If only the first text has characters beyond Latin-1, this text is joined last, because "".join is several
        # times slower on strings of different widths.
        is_wide_head = not words[0].isascii() and all(map(str.isascii, words[1:]))
        self._head = words[0] if is_wide_head else ""
        words = ["", *words[1:]] if is_wide_head else words
        self._pieces = [piece for word in words for piece in ("", word)][1:]

    def fill(self, texts: Sequence[str]) -> str:
        """Return the prompt with ``texts`` in the gaps, in order."""
        pieces = self._pieces.copy()
        pieces[1::2] = texts
        return self._head + "".join(pieces)
