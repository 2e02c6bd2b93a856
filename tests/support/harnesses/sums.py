"""The questions of the harnesses: the same sums for every client, as a question and as a choice of four."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

MORE = (0, 1, 10, 11)
"""What the four choices of a sum add to it."""


def sums(count: int) -> Iterator[tuple[int, int]]:
    """``count`` pairs of numbers below 100."""
    rng = random.Random(2_026_11_22)
    for _ in range(count):
        yield rng.randrange(100), rng.randrange(100)


def rows(count: int, wrong: int = 0) -> str:
    """The sums as JSON lines, with question and answer under the field names of every client's dataset.

    The expected answers of the first ``wrong`` rows are one too high, so a model that adds is wrong there.
    """
    lines = []
    order = random.Random(4)
    for number, (a, b) in enumerate(sums(count)):
        question, answer = f"{a}+{b}=?", str(a + b + (number < wrong))
        choices = [str(a + b + more) for more in MORE]
        order.shuffle(choices)
        row = {
            "question": question,
            "query": question,
            "input": question,
            "answer": answer,
            "response": answer,
            "target": answer,
            "prompt": f"<HUMAN>: {question}<eoh>\n<BOT>: ",
            "choices": choices,
            "gold": choices.index(answer),
            "vars": {"question": question, "answer": answer},
        }
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"
