"""Search for stop strings in text that arrives in pieces.

The answer ends at the first stop that is complete. If two stops are complete at the same character, the longer stop is
used, because it begins earlier and none of its text may be sent. With the stops ``ab`` and ``abc``, ``ab`` is always
found first. The result does not depend on how the text is divided into pieces, nor on the order of the stops.

The algorithm is Aho and Corasick's ("Efficient string matching", 1975). The state of the search is the longest prefix
of a stop with which the text ends. Exactly this prefix is held back, so the held text need not be stored. The work is
linear in the text. Text that contains no first character of a stop is skipped in one search.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache


class StopSet:
    """The search automaton for a set of stop strings. It never changes, and all choices share it.

    Node 0 is the empty text. Every other node is a prefix of a stop.
    """

    __slots__ = ("depth", "ends", "fallback", "first", "prefix_of", "step")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.step: list[dict[str, int]] = [{}]
        self.depth = [0]
        self.prefix_of = [""]
        """For each node, a stop that begins with the node's text. This text is ``prefix_of[node][:depth[node]]``."""
        self.ends: list[str | None] = [None]
        """For each node, the longest stop at the end of the node's text; None if the text ends with no stop."""
        self.fallback = [0]
        """For each node, the other node with the longest text at the end of the node's text."""
        for stop in stops:
            if stop:  # an empty stop would match at every position
                self._add(stop)
        self._link()
        self.first = re.compile("[" + "".join(map(re.escape, self.step[0])) + "]" if self.step[0] else r"(?!)")
        """Matches any character with which a stop begins."""

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
        """Fill ``fallback`` and ``ends``, shorter nodes first, because longer nodes use the values of shorter nodes."""
        queue = deque(self.step[0].values())
        while queue:
            node = queue.popleft()
            for character, child in self.step[node].items():
                queue.append(child)
                back = self.fallback[node]
                while back and character not in self.step[back]:
                    back = self.fallback[back]
                self.fallback[child] = self.step[back].get(character, 0)
            if self.ends[node] is None:
                self.ends[node] = self.ends[self.fallback[node]]


CACHED, CACHED_LENGTH = 64, 1024
"""Maximum cached sets, and maximum characters in a cached set. A character costs 300 bytes of memory and 0.6 µs."""

_cached = lru_cache(maxsize=CACHED)(StopSet)


def stop_set(stops: tuple[str, ...]) -> StopSet:
    """Return the ``StopSet`` of these stops. A long set is not cached, because clients could fill the memory."""
    return _cached(stops) if len(stops) + len("".join(stops)) <= CACHED_LENGTH else StopSet(stops)


class StopScanner:
    """Searches the text of one choice for stops, and holds back only text that may become a stop."""

    __slots__ = ("_set", "node")

    def __init__(self, stops: tuple[str, ...] | StopSet) -> None:
        self._set = stops if isinstance(stops, StopSet) else StopSet(stops)
        self.node = 0

    @property
    def held(self) -> int:
        """Number of characters held back; always smaller than the length of the longest stop."""
        return self._set.depth[self.node]

    def feed(self, text: str) -> tuple[str, str | None]:
        """Add text. Returns the text that can be sent now, and the stop if a stop is complete.

        The stop and the text after it are dropped. ``feed`` must not be called after a stop was found.
        """
        machine, held = self._set, self._held_text
        node, at, end = self.node, 0, len(text)
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
                return (held + text)[: len(held) + at - len(stop)], stop
        self.node = node
        return (held + text)[: len(held) + end - machine.depth[node]], None

    def flush(self) -> str:
        """Return the held text. Call when the text has ended."""
        held, self.node = self._held_text, 0
        return held

    @property
    def _held_text(self) -> str:
        return self._set.prefix_of[self.node][: self.held]
