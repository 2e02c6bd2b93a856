"""How much work has a render done? Counted while it is done, so that it can be stopped before it holds anybody up.

Every loop, call and text that a template makes is paid from one purse. A step is dearer the more text there is, because
comparing and slicing take longer then; so the purse bounds the time, and the size of every value, whatever the template
does with the conversation (``specs/reliability.md`` 3.3: the sandbox itself bounds nothing).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from jinja2.runtime import Undefined

PURSE = 200_000
"""Steps that one render may take in this process: some ten milliseconds of ordinary templates."""
MOST_TEXT = 256 * 1024
"""Characters of a conversation that is rendered in this process; longer ones go to the worker."""
LEAF = 16
"""What a value in a list or mapping weighs, beside its text."""
WORD = 8
"""What a text weighs beside its characters; the empty ones have to be counted too."""
COUNTED = 64
"""The same where it has to be counted by ``Meter.weigh``, which takes longer than copying it."""
PLAIN = frozenset({int, float, bool, type(None)})
NUMBERS = frozenset({int, float, bool})
"""Types whose values are worth no more than a step."""
BIG_INT = 2**64


class Beyond(Exception):
    """This render cannot be finished here: the purse is empty, or a step's cost is not known. The worker takes over."""


class Meter:
    """The purse of one render, and what it met on its way."""

    __slots__ = ("left", "size", "undefined")

    def __init__(self, size: int) -> None:
        """``size``: characters of the conversation."""
        if size > MOST_TEXT:
            raise Beyond
        self.left = PURSE
        self.size = size
        """No value is larger than this."""
        self.undefined: dict[str, None] = {}
        """Names that printed nothing because nobody had given them a value."""

    def step(self, steps: int = 1) -> None:
        """Pay for so many steps of the template."""
        self.left -= steps * (1 + (self.size >> 15))
        if self.left < 0:
            raise Beyond

    def read(self, characters: int) -> None:
        """Pay for going over a text once."""
        self.left -= 1 + (characters >> 5)
        if self.left < 0:
            raise Beyond

    def search(self, characters: int) -> None:
        """Pay for looking for something in a text: at worst many times over."""
        self.left -= 1 + (characters >> 2)
        if self.left < 0:
            raise Beyond

    def made(self, characters: int) -> None:
        """Pay for a new text."""
        self.size += characters
        self.left -= 1 + (characters >> 5)
        if self.left < 0:
            raise Beyond

    def weigh(self, value: Any) -> int:
        """How long a value is, all that is in it counted each time it occurs. Raises ``Beyond`` if that cannot be told.

        Two lists of two lists of two … take no room, but writing them out does.
        """
        if type(value) is str:
            return len(value)
        most = self.left << 5
        weight, waiting = 0, [value]
        while waiting:
            one = waiting.pop()
            kind = type(one)
            weight += COUNTED
            if kind is str:
                weight += len(one)
            elif kind is dict:
                waiting += one.keys()
                waiting += one.values()
            elif kind is list or kind is tuple:
                waiting += one
            elif kind is int:
                if not -BIG_INT < one < BIG_INT:
                    raise Beyond
            elif kind not in PLAIN and not isinstance(one, (str, Undefined, *VIEWS)):
                raise Beyond
            elif isinstance(one, str):
                weight += len(one)
            elif isinstance(one, VIEWS):  # dict views and ranges
                waiting += list(cast(Iterable[Any], one))
            if weight > most or len(waiting) > most:
                raise Beyond
        return weight

    def listed(self, value: Any) -> Any:
        """A value that can be counted: what would only come one by one is fetched, and paid for."""
        if not hasattr(value, "__next__"):
            return value
        return list(self._paid(value))

    def _paid(self, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            self.step()
            yield value


VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()), range)


def size_of(value: Any) -> int:
    """Characters in what a request brings: plain JSON, however nested. Beyond ``MOST_TEXT`` nobody counts on."""
    size, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if type(one) is str:
            size += WORD + len(one)
        else:
            size += LEAF
            if isinstance(one, (list, tuple)):
                waiting += one
            elif isinstance(one, Mapping):
                waiting += one.keys()
                waiting += one.values()
        if size + WORD * len(waiting) > MOST_TEXT:
            return size + WORD * len(waiting)
    return size
