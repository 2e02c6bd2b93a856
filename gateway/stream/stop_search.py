"""Where does the answer end? Finds stop strings in text that arrives in pieces.

The stop that is complete first ends the answer; of two that are complete at the same character, the longer one does,
since it begins earlier and nothing of it may be seen. So with ``ab`` and ``abc`` it is always ``ab``: the text
before it is the same, and the model's server can be released one character sooner.
The outcome depends on the text alone, never on how it was sliced, nor on the order of the stops.

The machine is Aho and Corasick's ("Efficient string matching", 1975). Its state says which stop the text may be
in the middle of, and how far: the text held back is a prefix of that stop, so it need not be stored. The work is
linear in the text, and text without a stop's first character is passed over in one search.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache


class StopSet:
    """Stop strings made ready for scanning; immutable, shared by all choices.

    Node 0 is "not in any stop". Every other node is a prefix of a stop.
    """

    __slots__ = ("depth", "ends", "fallback", "first", "prefix_of", "step")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.step: list[dict[str, int]] = [{}]
        self.depth = [0]
        self.prefix_of = [""]
        """A stop that the node is a prefix of; ``prefix_of[node][:depth[node]]`` is the node's text."""
        self.ends: list[str | None] = [None]
        """The longest stop that is complete at the node."""
        self.fallback = [0]
        """The longest other node that the node's text ends with."""
        for stop in stops:
            if stop:  # an empty stop is everywhere, so it says nothing
                self._add(stop)
        self._link()
        self.first = re.compile("[" + "".join(map(re.escape, self.step[0])) + "]" if self.step[0] else r"(?!)")
        """Finds the next character with which a stop begins."""

    def _add(self, stop: str) -> None:
        node = 0
        for depth, character in enumerate(stop, 1):
            child = self.step[node].get(character)
            if child is None:
                child = len(self.step)
                self.step[node][character] = child
                self.step.append({})
                self.depth.append(depth)
                self.prefix_of.append(stop)
                self.ends.append(None)
                self.fallback.append(0)
            node = child
        self.ends[node] = stop

    def _link(self) -> None:
        """Fill ``fallback`` and ``ends`` in order of depth, as each needs those of shorter nodes."""
        waiting = deque(self.step[0].values())
        while waiting:
            node = waiting.popleft()
            for character, child in self.step[node].items():
                waiting.append(child)
                back = self.fallback[node]
                while back and character not in self.step[back]:
                    back = self.fallback[back]
                self.fallback[child] = self.step[back].get(character, 0)
            if self.ends[node] is None:
                self.ends[node] = self.ends[self.fallback[node]]


KEPT, KEPT_LENGTH = 64, 1024
"""How many sets are kept, and of how many characters at most: some 300 bytes of memory and 0.6 µs each."""

_kept = lru_cache(maxsize=KEPT)(StopSet)


def stop_set(stops: tuple[str, ...]) -> StopSet:
    """The set for these stops; an ordinary one is made once, not for every call.

    A long one is made anew each time: stops and names of tools come from clients, who must not fill our memory.
    """
    return _kept(stops) if len(stops) + sum(map(len, stops)) <= KEPT_LENGTH else StopSet(stops)


class StopScanner:
    """Follows one choice's text; holds back only what may still become a stop."""

    __slots__ = ("_set", "node")

    def __init__(self, stops: tuple[str, ...] | StopSet) -> None:
        self._set = stops if isinstance(stops, StopSet) else StopSet(stops)
        self.node = 0

    @property
    def held(self) -> int:
        """How many characters are held back; always fewer than the longest stop has."""
        return self._set.depth[self.node]

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that may go out now, and the stop if this text completes one.

        The stop itself and what follows it are dropped; after a stop the scanner is done and must not be fed.
        """
        machine, before = self._set, self.node
        node, at, end = before, 0, len(text)
        while at < end:
            if not node:
                found = machine.first.search(text, at)
                if found is None:
                    at = end
                    break
                at = found.start()
            character = text[at]
            while node and character not in machine.step[node]:
                node = machine.fallback[node]
            node = machine.step[node].get(character, 0)
            at += 1
            stop = machine.ends[node]
            if stop is not None:
                self.node = 0
                return self._first(before, text, at - len(stop)), stop
        self.node = node
        return self._first(before, text, end - machine.depth[node]), None

    def flush(self) -> str:
        """The end of the text: what was held back is no stop after all."""
        held = self._set.prefix_of[self.node][: self.held]
        self.node = 0
        return held

    def _first(self, before: int, text: str, end: int) -> str:
        """Held text and new text, up to ``end`` counted from the start of the new text (negative: inside the held)."""
        depth = self._set.depth[before]
        if end <= 0:
            return self._set.prefix_of[before][: depth + end]
        if not depth:
            return text if end == len(text) else text[:end]
        return self._set.prefix_of[before][:depth] + text[:end]
