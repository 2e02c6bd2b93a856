"""Pairs the rows of two runs by the texts of their questions, which two harnesses write in two ways.

A text has parts: its lines, sentences and labels. A part that many rows of one run have and no row of the other, or
that nearly all rows have, was written by a harness. Two rows are a pair if all their other parts are equal, or if one
row ends with all those of the other, as after examples. A row with several possible partners has none.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache

BREAK = re.compile(r"^(?:\s*(?:\W?\w[.)\]]|[-*•])\s)|(?<=[.?!:)\]])\s+|(?<=[。？！：])|<[^<>\s]{1,40}>")
"""Between two parts of a line: the end of a sentence or of a label (``(A)``, ``Question:``), or a marker (``<eoh>``).
"""
AROUND = " \t\r\"'“”‘’()[]{}*_#`.,:;?!。？！：，"
"""Characters around a part that a harness adds or leaves out."""
LEAST, MANY, NEARLY_ALL = 3, 0.2, 0.9
"""The number of rows that have a part of a harness, and the shares of a run that are many, and nearly all."""
Parts = tuple[str, ...]
Group = tuple[list[int], list[int]]
"""The rows of both runs that may be partners of each other, by their numbers."""


def pairs_of(a: Iterable[str], b: Iterable[str]) -> tuple[list[tuple[int, int]], int]:
    """Return the pairs of row numbers, and how many rows of ``a`` have possible partners, of which none is certain."""
    runs = [_rows(a), _rows(b)]
    harness = _harness_parts(*runs)
    questions = [[tuple([part for part in row if part not in harness]) for row in run] for run in runs]
    # Options may stand in another order.
    equal = _groups(*[[(tuple(sorted(row)), at) for at, row in enumerate(run) if row] for run in questions])
    seen = [{at for group in equal for at in group[side]} for side in (0, 1)]
    left = [
        {at: row for at, row in enumerate(run) if row and at not in known}
        for run, known in zip(questions, seen, strict=True)
    ]
    whole = [[(row, at) for at, row in run.items()] for run in left]
    after = _groups(_ends(left[0], {*map(len, left[1].values())}), whole[1])
    before = _groups(whole[0], _ends(left[1], {*map(len, left[0].values())}))
    groups = [*equal, *after, *before]
    times = [Counter([at for group in groups for at in group[side]]) for side in (0, 1)]
    pairs = [
        (one[0], other[0])
        for one, other in groups
        if len(one) == len(other) == times[0][one[0]] == times[1][other[0]] == 1
    ]
    return pairs, len(times[0]) - len(pairs)


def _harness_parts(a: list[Parts], b: list[Parts]) -> Set[str]:
    """Return the parts that a harness has written."""
    counts, counts_b = (Counter([part for row in run for part in {*row}]) for run in (a, b))
    return {
        part
        for rows, own, other in ((len(a), counts, counts_b), (len(b), counts_b, counts))
        for part, count in own.items()
        if count >= max(LEAST, (NEARLY_ALL if part in other else MANY) * rows)
    }


def _groups(*runs: Iterable[tuple[Parts, int]]) -> list[Group]:
    """Return the groups of rows with the same parts, of those that both runs have."""
    found = defaultdict[Parts, Group](lambda: ([], []))
    for side, run in enumerate(runs):
        for parts, at in run:
            found[parts][side].append(at)
    return [group for group in found.values() if all(group)]


def _ends(rows: Mapping[int, Parts], lengths: Set[int]) -> Iterator[tuple[Parts, int]]:
    """Yield the last parts of each row, as many as another row has."""
    for at, row in rows.items():
        yield from [(row[-length:], at) for length in lengths if length < len(row)]


def parts_of(text: str) -> Parts:
    """Return the parts of a text."""
    return _rows([text])[0]


def _rows(texts: Iterable[str]) -> list[Parts]:
    parts_of_line = cache(_parts_of_line)  # the rows of a run have many lines in common
    return [tuple([part for line in text.split("\n") for part in parts_of_line(line)]) for text in texts]


def _parts_of_line(line: str) -> Parts:
    return tuple([" ".join(words) for part in BREAK.split(line) if (words := part.strip(AROUND).split())])
