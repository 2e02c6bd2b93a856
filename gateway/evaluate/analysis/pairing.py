"""Pairs the rows of two runs by the texts of their questions, which two harnesses write in two ways.

A text has parts: sentences and lines. A part, or two that follow each other, belong to the row in which they stand
nearest to the end, where harnesses put the question; if several rows are equally near, to none. Two rows that own the
same are a pair if the rest of the two texts is a harness' own. Rows that are not certain stay without a partner.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

BREAK = re.compile(r"\n(?:\s*(?:\W?\w[.)\]]|[-*•])\s)?|(?<=[.?!:)\]])\s+|(?<=[。？！：])|<[^<>\s]{1,40}>")
"""Between two parts: the end of a line, of a sentence or of a label (``(A)``, ``Question:``), or a marker (``<eoh>``).
"""
AROUND = " \t\r\"'“”‘’()[]{}*_#`.,:;?!。？！：，"
"""Characters around a part that a harness adds or leaves out."""
LEAST, SHARE = 3, 0.002
"""How many pairs, and which share of all that may be pairs, must have a rest in common that is a harness' own."""
LABEL = 0.1
"""The share of pairs whose question has the same label."""
NO_ROW = -1
Parts = tuple[str, ...]
Links = dict[int, list[int]]
"""Row of the other run → the places of what both rows own."""


class RunTexts:
    """The texts of a run as parts, and the rows that own them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.rows: list[Parts] = []
        self._owners: dict[str, tuple[int, int]] = {}
        """Key → the number of keys from it to the end of its row, and the row or ``NO_ROW``. See ``_keys``."""
        known: dict[str, Parts] = {}  # each line is read once: the rows of a run have many in common
        for number, text in enumerate(texts):
            lines = [f"\n{line}" for line in text.split("\n")]
            known.update([(line, parts_of(line)) for line in lines if line not in known])
            self.rows.append(tuple([part for line in lines for part in known[line]]))
            for distance, (_, key) in enumerate(reversed(_keys(self.rows[-1]))):
                nearest, owner = self._owners.get(key, (distance + 1, NO_ROW))
                if distance < nearest:
                    self._owners[key] = (distance, number)
                elif distance == nearest and owner != number:
                    self._owners[key] = (distance, NO_ROW)

    def owner(self, key: str) -> int:
        """Return the row that owns a key, or ``NO_ROW``."""
        return self._owners.get(key, (0, NO_ROW))[1]

    def links(self, row: int, other: RunTexts) -> Links:
        """Return the rows of the other run that own what a row owns."""
        found: Links = {}
        for at, key in _keys(self.rows[row]):
            if self.owner(key) == row and (owner := other.owner(key)) != NO_ROW:
                found.setdefault(owner, []).append(at)
        return found


@dataclass(frozen=True, slots=True)
class Question:
    """What two rows have in common, and what is around it."""

    before: tuple[Parts, Parts]
    """The last part before it, which is another one in each row; empty at the beginning of a text."""
    same: Parts
    """The parts from there on that both rows have. The first one is the label of a question, or its beginning."""
    left: tuple[Parts, Parts]
    """The parts from there on that only one row has, such as ``Answer:``."""


def pairs_of(a: RunTexts, b: RunTexts) -> tuple[list[tuple[int, int]], int]:
    """Return the pairs of row numbers, and how many rows of ``a`` may have a partner that is not certain.

    What is around a question must be around many, and seldom be in common: then it is the text of a harness. Only
    before a label that many questions have, there may be any text, such as examples.
    """
    links, links_b = ([one.links(row, other) for row in range(len(one.rows))] for one, other in ((a, b), (b, a)))
    maybe = [(row, best) for row, found in enumerate(links) for best in _best(found) if row in _best(links_b[best])]
    questions = [
        _question(a.rows[row], links[row][best][0], b.rows[best], links_b[best][row][0]) for row, best in maybe
    ]
    times = Counter([around for one in questions for around in (one.before, one.left)])
    same, first = Counter([part for one in questions for part in one.same]), Counter([one.same[0] for one in questions])

    def is_of_harness(around: tuple[Parts, Parts]) -> bool:
        asked = [10 * same[part] for parts in around for part in parts]
        return not any(around) or times[around] >= max([LEAST, SHARE * len(maybe), *asked])

    found = [
        pair
        for pair, one in zip(maybe, questions, strict=True)
        if is_of_harness(one.left) and (is_of_harness(one.before) or first[one.same[0]] >= LABEL * len(maybe))
    ]
    seen = [Counter(rows) for rows in zip(*found, strict=True)]
    pairs = [(row, other) for row, other in found if seen[0][row] == seen[1][other] == 1]
    return pairs, len({row for row, _ in maybe} - {row for row, _ in pairs})


def _question(row: Parts, at: int, other: Parts, to: int) -> Question:
    """``at``, ``to``: the first places of what both rows own."""
    while at and to and row[at - 1] == other[to - 1]:
        at, to = at - 1, to - 1
    one, two = dict.fromkeys(row[at:]), dict.fromkeys(other[to:])
    left = tuple([part for part in one if part not in two]), tuple([part for part in two if part not in one])
    return Question((row[:at][-1:], other[:to][-1:]), tuple([part for part in one if part in two]), left)


def _best(links: Links) -> set[int]:
    """Return the rows with the most keys, and with the last one: before a question, there may be examples."""
    return {max(links, key=lambda row: len(links[row])), max(links, key=lambda row: links[row][-1])} if links else set()


def _keys(row: Parts) -> list[tuple[int, str]]:
    """Return the place and the text of each part, and of each two parts that follow each other."""
    return [(at, key) for at, part in enumerate(row) for key in (part, "\n".join(row[at : at + 2]))]


def parts_of(text: str) -> Parts:
    """Return the parts of a text."""
    return tuple([" ".join(words) for part in BREAK.split(text) if (words := part.strip(AROUND).split())])
