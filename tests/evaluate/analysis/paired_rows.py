"""Pairs the rows of two runs of 10 000 rows that harnesses write in two ways, and counts wrong and missing pairs.

``python -m tests.evaluate.analysis.paired_rows`` prints a line for each two styles and each kind of examples. Each run
asks four fifths or one fifth of the rows of one dataset in an order of its own, so each has rows which the other lacks.
The dataset has what makes a wrong pair likely: see ``dataset``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from gateway.evaluate.analysis.pairing import pairs_of

SHARES = (0.8, 0.2)
"""The share of the dataset that each run asks: with the smaller one, most rows have no partner."""


def _made(count: int, seed: int) -> list[str]:
    """Words of three to six letters."""
    rng = random.Random(seed)
    return [
        "".join([rng.choice(("bdfgklmnprst", "aeiou")[at % 2]) for at in range(rng.randrange(3, 7))])
        for _ in range(count)
    ]


WORDS, NAMES, CITIES = _made(120, 1), [one.title() for one in _made(26, 2)], [one.title() for one in _made(16, 3)]
LETTERS = "ABCDEFGH"


@dataclass(frozen=True, slots=True)
class Question:
    """A row of the dataset."""

    text: str
    answer: str
    options: tuple[str, ...] = ()


# ---------------------------------------------------------------- the dataset


def _sum(rng: random.Random) -> Question:
    a, b = rng.randrange(100, 1000), rng.randrange(100, 1000)
    return Question(f"{a}+{b}=?", str(a + b))


def _prime(rng: random.Random) -> Question:
    number = rng.randrange(10_000)
    return Question(f"Is {number} prime?", rng.choice(("yes", "no")))


def _problem(rng: random.Random) -> Question:
    """Sentences that other rows share; only names and numbers differ."""
    name, thing, more = rng.choice(NAMES), rng.choice(WORDS), rng.randrange(2, 9)
    count = rng.randrange(2, 50)
    text = (
        f"{name} has {count} boxes of the {thing} that the {rng.choice(WORDS)} left. Each box has {more} pieces. "
        f"How many pieces does {name} have in all of the boxes together at the end of the day?"
    )
    return Question(text, str(count * more))


def _choice(rng: random.Random) -> Question:
    """A stem that several rows have, and options that others have too."""
    stem = rng.choice(
        (
            f"Which of these is nearest to the {rng.choice(WORDS)} of {rng.choice(CITIES)}?",
            "Which of the following statements is true?",
            f"Which number is the {rng.choice(WORDS)}?",
        )
    )
    options = rng.choice(
        (
            rng.sample(CITIES, 4),
            [str(rng.randrange(40)) for _ in range(4)],
            [f"The {a} is larger than the {b} of {c}" for a, b, c in (rng.sample(WORDS, 3) for _ in range(4))],
        )
    )
    return Question(stem, rng.choice(LETTERS[:4]), tuple(options))


def _passage(rng: random.Random) -> str:
    return " ".join(
        f"The {rng.choice(WORDS)} of {rng.choice(NAMES)} was a {rng.choice(WORDS)} {rng.choice(WORDS)} in "
        f"{rng.choice(CITIES)}."
        for _ in range(rng.randrange(3, 9))
    )


def _on_passage(rng: random.Random) -> Iterator[Question]:
    """Questions about one text, which stands before or after them."""
    passage, first = _passage(rng), rng.random() < 0.5
    general = ["What is the main idea of the text?", "Which title would be the best one for this text?"]
    for at in range(rng.randrange(1, 4)):
        asks = rng.choice((f"What did {rng.choice(NAMES)} say about the {rng.choice(WORDS)}?", general[at % 2]))
        text = f"{asks}\n{passage}" if first else f"{passage}\n{asks}"
        yield Question(text, rng.choice(WORDS))


def _begun(rng: random.Random) -> Iterator[Question]:
    """A question, and one that begins with it; and their translations."""
    name, thing = rng.choice(NAMES), f"{rng.choice(WORDS)} {rng.choice(WORDS)} {rng.choice(WORDS)}"
    yield Question(f"Who gave {name} the {thing}?", rng.choice(NAMES))
    yield Question(f"Who gave {name} the {thing}? And when?", rng.choice(NAMES))
    yield Question(f"Wer gab {name} das Wort „{thing}“?", rng.choice(NAMES))


def _twice(rng: random.Random) -> Iterator[Question]:
    """A question that the dataset has twice, with two answers."""
    text = f"Name a {rng.choice(WORDS)} of the {rng.choice(WORDS)} near the {rng.choice(WORDS)}."
    yield Question(text, rng.choice(WORDS))
    yield Question(text, rng.choice(NAMES))


def _symbolic(rng: random.Random) -> Iterator[Question]:
    """One problem with two numbers: all other sentences are the same."""
    one, two, three = rng.sample(WORDS, 3)
    tail = f"The {two} takes half of the {three} to the {rng.choice(WORDS)} of {rng.choice(CITIES)}. How much is left?"
    for number in rng.sample(range(2, 99), 2):
        yield Question(f"A {one} has {number} pieces of {three}. {tail}", str(number))


def one(make: Callable[[random.Random], Question]) -> Callable[[random.Random], Iterator[Question]]:
    return lambda rng: iter((make(rng),))


KINDS = (
    *(one(make) for make in (_sum, _prime, _problem, _problem, _choice, _choice)),
    *(_on_passage, _begun, _twice, _symbolic),
)


@cache
def dataset(rows: int, seed: int) -> list[Question]:
    """Short and long questions, of which many differ in one word, have the same options, text or beginning."""
    rng, found = random.Random(seed), list[Question]()
    while len(found) < rows:
        found += rng.choice(KINDS)(rng)
    return found[:rows]


# ---------------------------------------------------------------- how a harness writes a row

Shots = Sequence[Question]
Style = Callable[[random.Random, Shots, Question], str]


def _options(question: Question, form: str) -> str:
    lines = [form.format(letter, text) for letter, text in zip(LETTERS, question.options, strict=False)]
    return "".join([f"\n{line}" for line in lines])


def lm_eval(rng: random.Random, shots: Shots, asked: Question) -> str:
    """Examples in one text, with blank lines between them and labels."""
    texts = [f"Question: {one.text}{_options(one, '{}. {}')}\nAnswer:" for one in (*shots, asked)]
    return "\n\n".join([f"{text} {shot.answer}" for text, shot in zip(texts, shots, strict=False)] + texts[-1:])


def evalscope(rng: random.Random, shots: Shots, asked: Question) -> str:
    """An instruction before and after the question, other letters of the options, and a system text."""
    before = "Answer the following question. The last line of your answer has the form 'ANSWER: X'.\n\n"
    text = f"{before}{asked.text}\n{_options(asked, '{}) {}')}\n\nThink step by step before you answer."
    examples = "\n\n".join([f"{one.text}\n{_options(one, '{}) {}')}\n\nANSWER: {one.answer}" for one in shots])
    head = f"Here are examples of the task:\n\n{examples}\n\n\n" if shots else ""
    return f"You are a helpful assistant.\n{head}{text}"


def opencompass(rng: random.Random, shots: Shots, asked: Question) -> str:
    """One line for each part, without blank lines; other white space."""
    texts = [f"Q:  {one.text.replace(' ', '  ', 1)}{_options(one, '({}) {}')}\nA: " for one in (*shots, asked)]
    return "\n".join([f"{text}{shot.answer}" for text, shot in zip(texts, shots, strict=False)] + texts[-1:])


def inline(rng: random.Random, shots: Shots, asked: Question) -> str:
    """The question inside of a sentence."""
    texts = [f"Please tell me: {one.text}{_options(one, ' {}: {}')} Answer with one word." for one in (*shots, asked)]
    return "\n".join([f"{text} {shot.answer}" for text, shot in zip(texts, shots, strict=False)] + texts[-1:])


def shuffled(rng: random.Random, shots: Shots, asked: Question) -> str:
    """As ``evalscope``, with the options in another order."""
    return evalscope(rng, shots, replace(asked, options=tuple(rng.sample(asked.options, len(asked.options)))))


STYLES: dict[str, Style] = {style.__name__: style for style in (lm_eval, evalscope, opencompass, inline, shuffled)}


def write_run(style: Style, examples: str, asked: Sequence[Question], seed: int) -> list[str]:
    """The texts of the rows of a run."""
    rng = random.Random(seed)
    pool = list(asked) if "asked" in examples else dataset(200_000 if "200" in examples else 7_000, 77)
    fixed = rng.sample(pool, 5)
    return [
        style(rng, fixed if examples == "same for all" else rng.sample(pool, 5) if "random" in examples else (), one)
        for one in asked
    ]


# ---------------------------------------------------------------- the count


@dataclass(frozen=True, slots=True)
class Count:
    """What became of the rows."""

    both: int
    """The rows that both runs ask."""
    paired: int
    wrong: tuple[tuple[str, str], ...]
    unclear: int
    seconds: float


def counted_pairs(
    rows: int, styles: tuple[str, str], examples: tuple[str, str], share: float = SHARES[0], seed: int = 1
) -> Count:
    """Write two runs and pair their rows. A pair is right if both rows have the same question and options."""
    asked = dataset(round(rows / share), seed)
    rng = random.Random(seed)
    runs = [rng.sample(asked, rows) for _ in range(2)]
    texts = [
        write_run(STYLES[style], shots, run, seed + at)
        for at, (style, shots, run) in enumerate(zip(styles, examples, runs, strict=True))
    ]
    written = [
        {text: (one.text, frozenset(one.options)) for text, one in zip(*run, strict=True)}
        for run in zip(texts, runs, strict=True)
    ]
    started = time.process_time()
    pairs, unclear = pairs_of(*written)
    seconds = time.process_time() - started
    (one, other), (keys, others) = [list(run) for run in written], [list(run.values()) for run in written]
    wrong = [(one[a], other[b]) for a, b in pairs if keys[a] != others[b]]
    return Count(len({*keys} & {*others}), len(pairs), tuple(wrong), unclear, seconds)


TWO = (
    ("lm_eval", "lm_eval"),
    ("lm_eval", "evalscope"),
    ("evalscope", "opencompass"),
    ("lm_eval", "inline"),
    ("opencompass", "shuffled"),
)
SHOTS = {
    ("none", "none"): True,
    ("same for all", "same for all"): True,
    ("none", "random of 200 000"): True,
    ("same for all", "random of the asked rows"): True,
    ("random of 7 000", "random of 7 000"): False,
}
"""The examples of both runs → whether rows pair: nothing shows where other examples in each row of both runs end."""


def main() -> int:
    """Print the counts. The exit code is 1 if a pair is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    all_wrong = 0
    for (one, other), shots, share in product(TWO, SHOTS, SHARES):
        found = counted_pairs(given.rows, (one, other), shots, share, given.seed)
        all_wrong += len(found.wrong)
        print(
            f"{one} ({shots[0]}) and {other} ({shots[1]}), {share:.0%} asked: {found.paired} of {found.both} paired, "
            f"{len(found.wrong)} wrong, {found.unclear} not certain, {found.seconds:.1f} s",
            flush=True,
        )
        for pair in found.wrong[:2]:
            print(*[f"    {text[-300:]!r}" for text in pair], sep="\n")
    return int(all_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
