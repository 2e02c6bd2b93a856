"""What do conversations have in common whose speakers follow each other in the same order? Every word but their own.

So the words of a template are laid out once for such an order, with a gap for each text, and a request puts its texts
into the gaps. The orders are the clients' choice: how many are kept, and how long they are, has an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from gateway.core.prompt import PromptMetadata

ORDERS = 64
"""Orders of speakers whose frames a template keeps; and one more for each of as many lengths, at worst."""
LONGEST = 512
"""Messages of the longest order that is kept; a longer one is laid out anew each time."""

Roles = tuple[str, ...]
Gap = int | tuple[str]
"""What belongs there: the text of ``messages[2]``, or the value of ``(variable,)``."""

Layout = TypeVar("Layout")


class PromptLayout:
    """A conversation without its texts."""

    __slots__ = ("around", "head", "manner", "words")

    def __init__(self, words: Sequence[str], manner: PromptMetadata) -> None:
        """``words``: the template's, one more than there are gaps."""
        self.manner = manner
        self.around = tuple(words) if len(words) == 2 else None
        """The words, where there is one gap."""
        # One character beyond Latin-1 makes every character of a string two bytes or four, and a join then widens
        # piece by piece. If only the first word may have such, the rest is joined narrow and widened once.
        apart = not words[0].isascii() and all(map(str.isascii, words[1:]))
        self.head = words[0] if apart else ""
        self.words = with_gaps(["", *words[1:]] if apart else words)
        """The words but ``head``, with a place for a text between any two of them."""

    def filled(self, texts: Sequence[str]) -> str:
        """The whole, with a text in each gap."""
        if self.around is not None:
            return texts[0].join(self.around)
        pieces = self.words.copy()
        pieces[1::2] = texts
        return self.head + "".join(pieces)


class LayoutCache(Generic[Layout]):
    """What is laid out for each order of speakers, kept."""

    __slots__ = ("_laid_out", "_lay_out", "latest")

    def __init__(self, lay_out: Callable[[Roles], Layout]) -> None:
        self._lay_out = lay_out
        self._laid_out = lru_cache(maxsize=ORDERS)(lay_out)
        self.latest: dict[int, tuple[Roles | None, Layout]] = {}
        """By the number of messages: the order that came last, which is nearly always the next one too. (No order is
        None; it lets whoever looks here say that there was none.)

        To compare two orders is to see that their roles are the same objects; to hash one costs three times that.
        """

    def of(self, roles: Roles) -> Layout:
        """The one for this order. Raises what laying out raises."""
        try:
            known, laid = self.latest[len(roles)]
        except KeyError:
            return self.found(roles)
        return laid if known == roles else self.found(roles)

    def found(self, roles: Roles) -> Layout:
        """The same for an order that is not among the latest."""
        if len(roles) > LONGEST:
            return self._lay_out(roles)
        laid = self._laid_out(roles)
        if len(self.latest) >= ORDERS and len(roles) not in self.latest:
            self.latest.clear()
        self.latest[len(roles)] = roles, laid
        return laid


def with_gaps(words: Sequence[str]) -> list[str]:
    """The words with a place for a text between any two of them, at ``[1::2]``."""
    return [piece for word in words for piece in ("", word)][1:]


def spaced(words: Iterable[str | Gap]) -> tuple[list[str], list[Gap]]:
    """The words of a frame, and what belongs into its gaps: all that is no string. Words in a row are one."""
    pieces: list[str] = [""]
    gaps: list[Gap] = []
    for word in words:
        if isinstance(word, str):
            pieces[-1] += word
        else:
            pieces.append("")
            gaps.append(word)
    return pieces, gaps
