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


def spaced(words: Iterable[str | None]) -> list[str]:
    """The words of a frame. None is a gap; words that follow each other are one, and equal ones the same object."""
    pieces = [""]
    for word in words:
        if word is None:
            pieces += ("", "")
        else:
            pieces[-1] += word
    once: dict[str, str] = {}
    return [once.setdefault(piece, piece) for piece in pieces]
