"""Measures the detector of loops on ordinary texts and on loops: ``python -m tests.evaluate.analysis.loop_texts``.

The thresholds were chosen on one half of the texts, and the table shows the other half. Ordinary texts are cut at a
random character, as by a token limit, but for requested repetitions: a model ends these itself.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from gateway.evaluate.analysis.answer_class import class_of
from gateway.evaluate.analysis.rows import RunAnswer, RunRow
from gateway.evaluate.analysis.tool_check import ToolChecker

CHECKER = ToolChecker()

EACH = 700
"""Texts of each ordinary kind."""
LOOPS = 600
PYTHON = Path(sysconfig.get_paths()["stdlib"])
DOCS = Path(__file__).resolve().parents[3] / "docs"
WORDS = (
    "the",
    "a",
    "value",
    "of",
    "model",
    "prompt",
    "is",
    "not",
    "in",
    "answer",
    "it",
    "we",
    "and",
    "then",
    "token",
    "was",
    "yes",
    "number",
    "so",
    "list",
    "12",
    "7",
)
Rng = random.Random


def _excerpt(rng: Rng, texts: list[str]) -> str:
    text = rng.choice(texts)
    start = rng.randrange(max(1, len(text) - 400))
    return text[start : start + rng.randrange(200, 4000)]


def _sources(pattern: str, folder: Path, most: int) -> list[str]:
    files = sorted(folder.glob(pattern))[:most]
    return [text for file in files if len(text := file.read_text(encoding="utf-8", errors="replace")) > 600]


def _prose(rng: Rng) -> Iterator[str]:
    texts = _sources("*.md", DOCS, 100)
    texts += [" ".join(text.split('"""')[1::2]) for text in _sources("*.py", PYTHON, 200)]
    texts = [text for text in texts if len(text) > 600]
    while True:
        yield _excerpt(rng, texts)


def _code(rng: Rng) -> Iterator[str]:
    texts = _sources("*.py", PYTHON, 200) + _sources("json/*.py", PYTHON, 10)
    while True:
        yield _excerpt(rng, texts)


def _tables(rng: Rng) -> Iterator[str]:
    while True:
        columns, few = rng.randrange(2, 9), ["yes", "no"] if rng.random() < 0.3 else WORDS
        cells: list[Callable[[], str]] = [
            lambda: rng.choice(WORDS),
            lambda: str(rng.randrange(1000)),
            lambda: f"{rng.random():.2f}",
            partial(rng.choice, few),
            lambda: "-",
        ]
        kinds = [rng.choice(cells) for _ in range(columns)]
        kinds[0] = rng.choice(cells[:3])
        lines = [" | ".join(rng.choice(WORDS) for _ in kinds), "|".join(["---"] * columns)]
        lines += [" | ".join(kind() for kind in kinds) for _ in range(rng.randrange(5, 60))]
        text = "\n".join([f"| {line} |" for line in lines])
        yield text[: rng.randrange(200, max(201, len(text)))]


def _numbers(rng: Rng) -> Iterator[str]:
    while True:
        count, step = rng.randrange(60, 400), rng.randrange(1, 9)
        values: list[object] = [
            list(range(0, count * step, step)),
            [rng.randrange(10) for _ in range(count)],
            [round(rng.gauss(0, 1), 2) for _ in range(count)],
            [at * at for at in range(count)],
            [rng.choice("01") for _ in range(count)],
        ][rng.randrange(5)]  # type: ignore[assignment]  # lists of different numbers
        text = rng.choice([", ", "\n", " "]).join([str(one) for one in values])
        yield text[: rng.randrange(200, max(201, len(text)))]


def _requested(rng: Rng) -> Iterator[str]:
    while True:
        block = _block(rng, rng.randrange(2, 60))
        yield rng.choice(["", "Of course!\n"]) + block * rng.randrange(10, 200)


def _block(rng: Rng, length: int) -> str:
    text = " ".join(rng.choice(WORDS) for _ in range(length))
    return text[:length] + rng.choice([" ", "\n", ". ", ""])


def _loops(rng: Rng) -> Iterator[str]:
    starts = _prose(rng)
    while True:
        block = _block(rng, rng.choice([1, 3, 8, 20, 60, 150, 300]))
        while len(block) < 1:
            block = _block(rng, 3)
        length = max(240, len(block) * rng.randrange(5, 30)) + rng.randrange(len(block))
        yield next(starts)[: rng.randrange(2000)] + (block * (length // len(block) + 1))[:length]


KINDS: Mapping[str, tuple[Callable[[Rng], Iterator[str]], int, str]] = {
    "prose": (_prose, EACH, "length"),
    "code": (_code, EACH, "length"),
    "tables": (_tables, EACH, "length"),
    "lists of numbers": (_numbers, EACH, "length"),
    "requested repetition": (_requested, EACH, "stop"),
    "loops": (_loops, LOOPS, "length"),
}
"""Kind of text → its generator, the number of texts, and their finish reason."""


def found(kind: str, half: int) -> tuple[int, int]:
    """Return the number of texts that are classed as looping, and of all texts, of one half (0 or 1) of a kind."""
    texts, number, finish = KINDS[kind]
    source = texts(Rng(f"{kind} {half}"))
    rows = [
        RunRow("row", "m", answers=(RunAnswer(text=next(source), finish_reason=finish),)) for _ in range(number // 2)
    ]
    return sum(class_of(row, CHECKER) == "looping" for row in rows), len(rows)


if __name__ == "__main__":
    for name in KINDS:
        for half in (0, 1):
            loops, number = found(name, half)
            print(f"{name:<22}{('chosen on', 'reported')[half]:<10}{loops:>4} of {number}: {loops / number:.1%}")
