"""The questions of the harnesses: the same sums for every client."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator


def sums(count: int) -> Iterator[tuple[int, int]]:
    """``count`` pairs of numbers below 100."""
    rng = random.Random(2_026_11_22)
    for _ in range(count):
        yield rng.randrange(100), rng.randrange(100)


def rows(count: int) -> str:
    """The sums as JSON lines, with question and answer under the field names of every client's dataset."""
    lines = []
    for a, b in sums(count):
        question, answer, wrong = f"{a}+{b}=?", str(a + b), str(a + b + 11)
        row = {
            "question": question,
            "query": question,
            "input": question,
            "answer": answer,
            "response": answer,
            "target": answer,
            "prompt": f"<HUMAN>: {question}<eoh>\n<BOT>: ",
            "choices": [answer, wrong],
            "vars": {"question": question, "answer": answer},
        }
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"
