"""Search for stop strings in text that arrives in pieces.

The stop that is complete first ends the answer; of two that are complete at the same character the longer one, because
it begins earlier and none of it may be sent. So of ``ab`` and ``abc`` always ``ab`` is found, one character sooner.
The result depends on the text alone, not on its slicing nor on the order of the stops.

The algorithm is Aho and Corasick's ("Efficient string matching", 1975). Its state is the prefix of a stop that the text
ends with; the held text is that prefix, so it need not be stored. The work is linear in the text, and text without a
stop's first character is skipped in one search.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache


class StopSet:
    """The automaton of some stop strings; immutable, shared by all choices.

    Node 0 is the empty text. Every other node is a prefix of a stop.
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
            if stop:  # an empty stop would match everywhere
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
"""Number of cached sets, and characters of one at most (300 bytes of memory and 0.6 µs a character)."""

_cached = lru_cache(maxsize=CACHED)(StopSet)


def stop_set(stops: tuple[str, ...]) -> StopSet:
    """The set for these stops. Long sets are not cached, because clients choose stops and could fill the memory."""
    return _cached(stops) if len(stops) + sum(map(len, stops)) <= CACHED_LENGTH else StopSet(stops)


class StopScanner:
    """Search state of one choice; holds only text that may still become a stop."""

    __slots__ = ("_set", "node")

    def __init__(self, stops: tuple[str, ...] | StopSet) -> None:
        self._set = stops if isinstance(stops, StopSet) else StopSet(stops)
        self.node = 0

    @property
    def held(self) -> int:
        """Characters held; always fewer than the longest stop has."""
        return self._set.depth[self.node]

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that can be sent now, and the stop if this text completes one.

        The stop and the text behind it are dropped. Must not be called after a stop was found.
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
        """The held text, when the text has ended."""
        held, self.node = self._held_text, 0
        return held

    @property
    def _held_text(self) -> str:
        return self._set.prefix_of[self.node][: self.held]
