"""Changes one thing in the requests of a harness, and compares the answer of ``gateway why --match question``.

``python -m tests.evaluate.analysis.seeded_harnesses`` asks sums as two harnesses do, in the requests that were recorded
of them (``docs/harnesses``), of a gateway with the demo model. First their requests are made equal. Then one thing
changes in the second run: of the same harness, and of the other one.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.command import command
from tests.evaluate.analysis.seeded_causes import dataset
from tests.evaluate.analysis.seeded_engine import DEMO
from tests.support.serving import Gateway, eventually, gateway

CONFIG = f"""
recordings: {{path: recordings.sqlite}}
models:
  demo: {{template: sft-demo, policy: recorded, targets: [{{speaks: embedded, path: {DEMO}}}]}}
"""
POLICY = "record: full\nparams: {default: {temperature: 0}, unknown: drop}\n"
Request = dict[str, Any]


def lm_eval(question: str) -> Request:
    """A request of lm-eval's ``local-chat-completions``."""
    messages = [{"role": "user", "content": question}]
    return {"messages": messages, "model": "demo", "max_tokens": 16, "temperature": 0, "stop": ["<eob>"], "seed": 1234}


def evalscope(question: str) -> Request:
    """A request of EvalScope's ``openai_api``, with the stop and the seed of the other harness."""
    messages = [{"role": "user", "content": question}]
    return {
        "model": "demo",
        "messages": messages,
        "max_tokens": 16,
        "temperature": 0.0,
        "seed": 1234,
        "stop": ["<eob>"],
    }


HARNESSES: Mapping[str, Callable[[str], Request]] = {"lm-eval": lm_eval, "evalscope": evalscope}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the requests, and what it is for ``gateway why``."""

    make: Callable[[Request], Request]
    cause: str
    kind: str


def _text(make: Callable[[str], str]) -> Callable[[Request], Request]:
    """Return a function that changes the text of the question."""

    def changed(request: Request) -> Request:
        *earlier, last = request["messages"]
        return {**request, "messages": [*earlier, {**last, "content": make(last["content"])}]}

    return changed


def _messages(*before: tuple[str, str]) -> Callable[[Request], Request]:
    """Return a function that puts messages before the others."""
    return lambda request: {
        **request,
        "messages": [*[{"role": role, "content": text} for role, text in before], *request["messages"]],
    }


ANSWER = "the sum of both numbers is even"
"""The answer of the examples: the demo model repeats such words, so that most answers change."""
SHOTS = [turn for n in range(5) for turn in (("user", f"{n}+{n}=?"), ("assistant", ANSWER))]
EXAMPLES = "".join([f"{n}+{n}=?\n99\n\n" for n in range(8)])
CHANGES: Mapping[str, Change] = {
    "system text": Change(_messages(("system", "qqq " * 8)), "dataset row", "system text"),
    "examples in messages": Change(_messages(*SHOTS), "dataset row", "text before the question"),
    "examples in the text": Change(_text(lambda text: f"{EXAMPLES}{text}"), "dataset row", "text before the question"),
    "answer prefix": Change(_text(lambda text: f"{text}\nAnswer:"), "dataset row", "text after the question"),
    "answer to continue": Change(
        lambda request: {**request, "messages": [*request["messages"], {"role": "assistant", "content": "1"}]},
        "dataset row",
        "text after the question",
    ),
    "white space": Change(_text(lambda text: f" {text}\n"), "dataset row", "white space"),
    "max_tokens": Change(lambda request: {**request, "max_tokens": 1}, "parameters", "max_tokens"),
    "stop": Change(lambda request: {**request, "stop": ["1", "7"]}, "parameters", "stop"),
    "temperature": Change(lambda request: {**request, "temperature": 2}, "parameters", "other parameters"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """How right ``gateway why`` was about one change."""

    rows: int
    changed: int
    """The rows with another answer."""
    right: float
    """The share of these whose first difference and kind are right."""


class HarnessRuns:
    """Runs of sums on a gateway that records them."""

    def __init__(self, folder: Path, served: Gateway, rows: int) -> None:
        self.folder, self.served = folder, served
        self.questions = [f"{row.question.removesuffix('=?')}=?" for row in dataset(4 * rows // 3 + 2) if not row.shots]

    def run(self, name: str, harness: str, make: Callable[[Request], Request] = lambda request: request) -> None:
        """Ask the questions as a harness does. ``name``: of the run; the ids of its rows say which question it is."""
        requests = [make(HARNESSES[harness](question)) for question in self.questions]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda at: self._ask(name, at, requests[at]), range(len(requests))))
        assert eventually(lambda: self._recorded(name) == len(requests))

    def _ask(self, run: str, at: int, request: Request) -> None:
        headers = {"x-gateway-run": run, "x-gateway-row": f"{run}-{at}"}  # no id is in two runs
        self.served.http.post("/v1/chat/completions", json=request, headers=headers).raise_for_status()

    def _recorded(self, run: str) -> int:
        try:
            with closing(sqlite3.connect(f"file:{self.folder}/recordings.sqlite?mode=ro", uri=True)) as file:
                (count,) = file.execute("SELECT count(*) FROM calls WHERE run = ?", (run,)).fetchone()
        except sqlite3.OperationalError:  # the gateway has not written the file yet
            return 0
        return int(count)

    def why(self, a: str, b: str, change: Change | None) -> Found:
        """Compare two runs of this gateway."""
        done = command(self.folder, "why", a, b, "--match", "question", "--json")
        if done.returncode:
            raise RuntimeError(done.stderr.decode()[-600:])
        found = json.loads(done.stdout)
        causes = [(one["cause"], one["kind"]) for one in found["found"]]
        expected = None if change is None else (change.cause, change.kind)
        right = sum([one == expected for one in causes]) / max(len(causes), 1)
        return Found(found["rows"], len(causes), right)


@contextmanager
def harness_runs(rows: int) -> Iterator[HarnessRuns]:
    """Runs on a gateway with the demo model, in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        files: dict[str, str | Path] = {
            "policies/recorded.yaml": POLICY,
            "meta_templates/sft-demo.yaml": DEMO.parents[1] / "meta_templates/sft-demo.yaml",
        }
        with gateway(folder, CONFIG, files=files) as served:
            yield HarnessRuns(folder, served, rows)


def main() -> int:
    """Print a line for each change. The exit code is 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--only", metavar="NAME,…", help=", ".join(CHANGES))
    given = parser.parse_args()
    good = True
    with harness_runs(given.rows) as runs:
        runs.run("base", "lm-eval")
        runs.run("equal", "evalscope")
        same = runs.why("base", "equal", None)
        print(f"no change, lm-eval and evalscope: {same.changed} of {same.rows} changed", flush=True)
        for name in given.only.split(",") if given.only else CHANGES:
            for harness in HARNESSES:
                run = f"{name}-{harness}".replace(" ", "-")
                runs.run(run, harness, CHANGES[name].make)
                found = runs.why("base", run, CHANGES[name])
                good &= found.changed >= given.rows / 2 and found.right >= 0.95
                print(
                    f"{name}, lm-eval and {harness}: {found.changed} of {found.rows} changed, {found.right:.1%} right",
                    flush=True,
                )
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
