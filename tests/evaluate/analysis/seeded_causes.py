"""Changes one thing between two runs, or two, and compares the answer of ``gateway why`` with what was changed.

``python -m tests.evaluate.analysis.seeded_causes`` runs every cause alone, and with ``--pairs`` all pairs. Each takes
minutes.
The runs are those of ``gateway run --evidence`` on a loopback engine with the demo model.
Of the pairs, the order of the examples and the retry touch disjoint rows.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from gateway.evaluate.analysis.differences import DIFFERENCES
from gateway.evaluate.analysis.rows import OpenRuns, RunRow
from gateway.evaluate.reporting.source import read_run
from tests.cli.command import command
from tests.evaluate.analysis.seeded_engine import SeededEngine, seeded_engine
from tests.support.serving import write_files

PROMPT = ("prompt", "prompt ids")
"""Another prompt also has other token ids."""
TURN = "<HUMAN>: {}<eoh>\\n<BOT>: "


@dataclass(frozen=True, slots=True)
class DataRow:
    """One row of the dataset: a sum, or a number after two examples."""

    custom_id: str
    question: str
    answer: str
    shots: tuple[tuple[str, str], ...]

    def line(self, *, reversed_shots: bool) -> str:
        """The row as a line of the data file."""
        shots = self.shots[::-1] if reversed_shots else self.shots
        turns = [turn for shot in shots for turn in zip(("user", "assistant"), shot, strict=True)]
        messages = [{"role": role, "content": text} for role, text in (*turns, ("user", self.question))]
        return json.dumps({"custom_id": self.custom_id, "messages": messages, "answer": self.answer})


@dataclass(frozen=True, slots=True)
class Cause:
    """One change of the second run."""

    facts: Callable[[DataRow], Sequence[str]]
    """Row → the differences that the change makes before the model answers."""
    remark: str = ""
    """The remark about the sampled tokens, if the change is first seen there."""
    param: str = ""
    """A field of the requests (``--param``)."""
    most: float = 1.0
    """The largest share of rows that may flip."""


def everywhere(*facts: str) -> Callable[[DataRow], Sequence[str]]:
    return lambda row: facts


def is_failed(row: DataRow) -> bool:
    """Whether the first address fails: for sums without examples whose first number is even."""
    return not row.shots and int(row.question.partition("+")[0]) % 2 == 0


def is_warm(row: DataRow) -> bool:
    """Whether the cache has an answer before the run."""
    return int(row.custom_id.removeprefix("row-")) % 4 > 1


CAUSES = {
    "space": Cause(everywhere(*PROMPT)),
    "second BOS": Cause(everywhere(*PROMPT)),
    "removed stop": Cause(lambda row: (*PROMPT, "parameters") if row.shots else ("parameters",)),
    "max_tokens": Cause(everywhere("parameters"), param="max_tokens=1"),
    "temperature": Cause(everywhere("parameters"), param="temperature=2"),
    "ignored temperature": Cause(everywhere(), "not the likeliest token at temperature 0"),
    "other weights": Cause(everywhere(), "wide gap"),
    "noise": Cause(everywhere(), most=0.1),
    "cache": Cause(lambda row: ("route",) if is_warm(row) else ()),
    "retry": Cause(lambda row: ("route",) if is_failed(row) else ()),
    "parser": Cause(everywhere()),
    "order of examples": Cause(lambda row: ("dataset row", *PROMPT) if row.shots else ()),
    "clock": Cause(everywhere(*PROMPT)),
}
"""Name → the change. ``_template``, ``_policy`` and ``Seeds.run`` make it."""
Causes = frozenset[str]
NOTHING: Causes = frozenset()


def dataset(rows: int) -> list[DataRow]:
    """Sums; and every fourth row a number after two examples of other numbers, whose answers the model repeats."""
    rng, found = random.Random(25), list[DataRow]()
    for number, pair in enumerate(rng.sample(range(10_000), rows)):
        a, b = divmod(pair, 100)
        if number % 4 == 3:
            shots = tuple([(str(rng.randrange(100)), str(rng.randrange(200))) for _ in range(2)])
            found.append(DataRow(f"row-{number}", str(a), shots[0][1], shots))
        else:
            found.append(DataRow(f"row-{number}", f"{a}+{b}=?", str(a + b), ()))
    return found


# ---------------------------------------------------------------- the configuration of a run


def _template(causes: Causes) -> str:
    space = "" if "space" in causes else " "
    bos = "<s>" if "second BOS" in causes else ""
    end = "" if "removed stop" in causes else "<eob>"
    keys: dict[str, Any] = {"bos": "engine"}
    if "parser" in causes:  # all text up to the first 1 is reasoning
        keys["thinking"] = {"begin": "<think>", "end": "1", "open": True}
    if "clock" in causes:
        keys |= {
            "kind": "jinja",
            "clock": "now",
            "stop": [end or "<HUMAN>:"],
            "template": bos
            + "{% for m in messages %}{% if m.role == 'user' %}<HUMAN>:"
            + space
            + "{% if loop.last %}{{ strftime_now('%H:%M:%S.%f') }} {% endif %}{{ m.content }}<eoh>\n{% else %}"
            "<BOT>: {{ m.content }}" + end + "\n{% endif %}{% endfor %}<BOT>: ",
        }
    else:
        human = {"role": "HUMAN", "begin": f"<HUMAN>:{space}", "end": "<eoh>\n"}
        keys |= {
            "begin": bos,
            "round": [human, {"role": "BOT", "begin": "<BOT>: ", "end": f"{end}\n", "generate": True}],
        }
    return json.dumps(keys)


def _policy(causes: Causes) -> str:
    retry = {"attempts": 2, "budget": "100%"}
    policy: dict[str, Any] = {
        "params": {"default": {"temperature": 0}},
        "markers": {"token_like": "report", "text_like": "report"},
        "delivery": {"retry": retry, "balance": "weighted", "breaker": {"failures": 1000}},
    }
    if "cache" in causes:
        policy["cache"] = {"mode": "on"}
    return json.dumps(policy)


class Seeds:
    """A dataset, its engine, and the runs so far."""

    def __init__(self, folder: Path, engine: SeededEngine, rows: int) -> None:
        self.folder = folder
        self.engine = engine
        self.rows = {row.custom_id: row for row in dataset(rows)}
        self.baseline = self.run(NOTHING)

    def run(self, causes: Causes, again: str = "") -> str:
        """Run the dataset with some causes. Returns the name of the output. ``again``: a name for a repetition."""
        name = "+".join(sorted(causes)).replace(" ", "-") or "baseline"
        home = self.folder / f"{name}{again}"
        weights = "other" if "other weights" in causes else f"noise{again}" if "noise" in causes else "exact"
        hot = "-hot" if "ignored temperature" in causes else ""
        addresses = ["first", "second"] if "retry" in causes else ["first"]
        targets = [
            {
                "speaks": "completions",
                "url": self.engine.url(one),
                "model": "tiny",
                "engine": "vllm",
                "weight": 1000 if one == "first" else 1,
            }
            for one in addresses
        ]
        write_files(
            home,
            {
                "gateway.yaml": json.dumps(
                    {
                        "cache": {"path": "cache.sqlite"},
                        "models": {"demo": {"template": "made", "policy": "made", "targets": targets}},
                    }
                ),
                "meta_templates/made.yaml": _template(causes),
                "policies/made.yaml": _policy(causes),
                "data.jsonl": self._data(causes, lambda row: True),
                "warm.jsonl": self._data(causes, is_warm),
            },
        )
        self.engine.fails = self._fails if "retry" in causes else lambda prompt: False
        params = [CAUSES[one].param for one in causes if CAUSES[one].param]
        if "cache" in causes:
            self.engine.weights["first"] = f"other{hot}"
            self._command(home, "warm.jsonl", params)
        self.engine.weights["first"] = f"{weights}{hot}"
        self._command(home, "data.jsonl", params)
        return str(home / "out-data.jsonl")

    def _data(self, causes: Causes, chosen: Callable[[DataRow], bool]) -> str:
        turned = "order of examples" in causes
        return "\n".join([row.line(reversed_shots=turned) for row in self.rows.values() if chosen(row)])

    def _fails(self, prompt: str) -> bool:
        found = re.findall(r"(\d+)\+", prompt)
        return len(found) == 1 and int(found[0]) % 2 == 0

    def _command(self, home: Path, data: str, params: Sequence[str]) -> None:
        given = {"max_tokens": "max_tokens=8", **{one.partition("=")[0]: one for one in params}}
        fields = [word for one in given.values() for word in ("--param", one)]
        done = command(
            home, "run", data, "--model", "demo", "--keep", "answer", "--evidence", "--out", f"out-{data}", *fields
        )
        if done.returncode:
            raise RuntimeError(done.stderr.decode()[-600:])

    def why(self, other: str, *options: str) -> dict[str, Any]:
        """``gateway why --json`` of the baseline and another run."""
        done = command(self.folder, "why", self.baseline, other, "--score", "exact", "--json", *options)
        if done.returncode:
            raise RuntimeError(done.stderr.decode()[-600:])
        found: dict[str, Any] = json.loads(done.stdout)
        return found


# ---------------------------------------------------------------- what gateway why must answer


@dataclass(slots=True)
class Verdict:
    """How right ``gateway why`` was about one run."""

    causes: str
    rows: int
    flipped: int
    first: float
    """The share of flipped rows whose first difference is right."""
    listed: float
    """The share of flipped rows whose whole list of differences is right."""
    remarked: float
    """The share of rows with the right remark, if a remark is expected; else 1."""
    remarks: dict[str, int]
    """The remarks about rows whose first difference is a sampled token."""
    sums: bool
    """Whether the flipped rows and the difference of the scores agree with the output files."""
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.sums and min(self.first, self.listed, self.remarked) >= 0.95


def verdict(seeds: Seeds, causes: Causes, other: str, *options: str) -> Verdict:
    """Compare what ``gateway why`` finds with what was changed."""
    found = seeds.why(other, *options)
    with OpenRuns() as files:
        runs = [read_run(files, path, Path()) for path in (seeds.baseline, other)]
        one, two = [{row.custom_id: row.with_facts() for row in run} for run in runs]
    flips = {one["custom_id"]: one for one in found["found"]}
    truth = {name for name in one if _delivered(one[name]) != _delivered(two[name])}
    change = sum(_right(two[name]) - _right(one[name]) for name in one) / len(one)
    parts = sum(part["score"] for part in found["causes"].values())
    lists = {name: _expected(seeds.rows[name], causes, one[name], two[name]) for name in flips}
    wrong = [
        f"{name}: {list(flips[name]['differences'])}, expected {lists[name]}"
        for name in flips
        if list(flips[name]["differences"]) != lists[name]
    ]
    remark = next((CAUSES[name].remark for name in causes if len(causes) == 1), "")
    count = max(len(flips), 1)
    return Verdict(
        causes=" + ".join(sorted(causes)) or "nothing",
        rows=found["rows"],
        flipped=len(flips),
        first=sum(flips[name]["cause"] == lists[name][0] for name in flips if lists[name]) / count if flips else 1.0,
        listed=1 - len(wrong) / count,
        remarked=sum(flip["remark"] == remark for flip in flips.values()) / count if remark else 1.0,
        remarks=found["remarks"],
        sums=flips.keys() == truth
        and abs(parts - change) < 1e-12
        and abs(found["difference"]["mean"] - change) < 1e-12,
        wrong=wrong,
    )


def _expected(row: DataRow, causes: Causes, a: RunRow, b: RunRow) -> list[str]:
    facts = {fact for name in causes for fact in CAUSES[name].facts(row)}
    if {"cache", "clock"} <= causes:  # a prompt with the time is never in the cache
        facts -= {"route"} - ({"route"} if "retry" in causes and is_failed(row) else set())
    return [name for name in DIFFERENCES if name in facts | _outcome(a, b)]


def _outcome(a: RunRow, b: RunRow) -> set[str]:
    """How the texts of the engine, and of the answers, differ."""
    (one, end), (two, other_end) = ((row.facts.raw or "", row.answers[0].finish_reason) for row in (a, b))
    if one == two:
        read = {"reading"} if _delivered(a)[:2] != _delivered(b)[:2] else set()
        return read | ({"cut"} if end != other_end else set())
    cut = (one.startswith(two) and other_end == "length") or (two.startswith(one) and end == "length")
    return {"cut"} if cut and end != other_end else {"sampled tokens"}


def _delivered(row: RunRow) -> tuple[str, str, str]:
    answer = row.answers[0]
    return answer.text, answer.reasoning, answer.finish_reason


def _right(row: RunRow) -> bool:
    return row.answers[0].text.strip() == str(row.columns["answer"])


@contextmanager
def seeds_on_engine(rows: int) -> Iterator[Seeds]:
    """A dataset on a running engine, in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        with seeded_engine(folder / "engine") as engine:
            yield Seeds(folder, engine, rows)


def one_cause(seeds: Seeds, name: str) -> Verdict:
    """The verdict about one cause. The floor of the noise is measured with a second run."""
    causes = frozenset({name})
    other = seeds.run(causes)
    floor = ("--floor", seeds.run(causes, "-again")) if name == "noise" else ()
    return verdict(seeds, causes, other, *floor)


def main() -> int:
    """Print a line for each run. The exit code is 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--pairs", action="store_true", help="run the pairs instead")
    parser.add_argument("--only", metavar="NAME,…", help="some causes")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(CAUSES)
    good = True
    with seeds_on_engine(given.rows) as seeds:
        good &= _shown(verdict(seeds, NOTHING, seeds.run(NOTHING, "-again")), 0, 0.0)
        for name in () if given.pairs else names:
            good &= _shown(one_cause(seeds, name), 20, CAUSES[name].most)
        for pair in combinations(names, 2) if given.pairs else ():
            good &= _shown(verdict(seeds, frozenset(pair), seeds.run(frozenset(pair))), 1, 1.0)
    return int(not good)


def _shown(found: Verdict, least: int, most: float) -> bool:
    good: bool = found.good and least <= found.flipped <= most * found.rows
    remarks = ", ".join([f"{number} {kind}" for kind, number in found.remarks.items()])
    print(
        f"{time.strftime('%H:%M:%S')} {'ok   ' if good else 'WRONG'} {found.causes}: {found.flipped} of {found.rows} "
        f"flipped, first {found.first:.3f}, list {found.listed:.3f}, sums {found.sums} {remarks}",
        flush=True,
    )
    print(*[f"      {line}" for line in found.wrong[:3]], sep="\n", end="\n" if found.wrong else "")
    return good


if __name__ == "__main__":
    sys.exit(main())
