"""What do conversations have in common whose speakers follow each other in the same order? Every word but their own.

So the words of a template are laid out once for such an order, with a gap for each text, and a request puts its texts
into the gaps. The orders are the clients' choice: how many are kept, and how long they are, has an end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gateway.core.prompt import Notice

ORDERS = 64
"""Orders of speakers whose frames a template keeps."""
LONGEST = 512
"""Messages of the longest order that is kept; a longer one is laid out anew each time."""

Gap = int | tuple[str]
"""What belongs there: the text of ``messages[2]``, or the value of ``(variable,)``."""


class Frame(NamedTuple):
    """A conversation without its texts."""

    words: list[str]
    """The template's words, one more than there are gaps; between any two of them is a place for a text."""
    notices: tuple[Notice, ...] = ()

    def filled(self, texts: Iterable[str]) -> str:
        """The whole, with a text in each gap."""
        pieces = self.words.copy()
        pieces[1::2] = texts
        return "".join(pieces)


def spaced(words: Iterable[str | Gap]) -> tuple[list[str], list[Gap]]:
    """The words of a frame, and what belongs into its gaps: all that is no string. Words in a row are one."""
    pieces: list[str] = [""]
    gaps: list[Gap] = []
    for word in words:
        if isinstance(word, str):
            pieces[-1] += word
        else:
            pieces += ("", "")
            gaps.append(word)
    return pieces, gaps
