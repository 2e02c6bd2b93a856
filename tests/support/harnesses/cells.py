"""One cell of the table: a client's run against one address, and its outcome."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.engines.engine import Engine, offline, stop
from tests.support.harnesses.client import CONFIGS, Client, Job
from tests.support.harnesses.engines import WRONG_TEMPLATE
from tests.support.harnesses.sums import rows

GOOD = 0.98
"""The share of right answers from which on a cell is green: all clients agree within two answers of 100."""
LOW = 0.5
"""With a wrong template a cell is green up to this share of right answers. Guessing among four choices gives 0.25."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome of one run."""

    client: str
    engine: str
    seconds: float
    score: float | None = None
    """The share of right answers; None: the client gave no score."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Error code → number of calls that the gateway answered with it."""
    expected: tuple[str, ...] = ()
    """Expected error codes: the client needs something that the engine does not support."""
    wrong_template: bool = False
    """The prompts had a wrong format, so a low score is expected."""
    error: str = ""
    """The end of the client's output, if there is no score."""

    @property
    def good(self) -> bool:
        if self.expected:
            return self.score is None and any(code in self.refusals for code in self.expected)
        if self.score is None or self.refusals:
            return False
        return self.score <= LOW if self.wrong_template else self.score >= GOOD

    def shown(self) -> str:
        """The cell's text in the table."""
        codes = ", ".join(f"`{code}`" for code in sorted(self.refusals))
        if self.expected and self.good:
            return f"refused: {codes}"
        text = "failed" if self.score is None else f"{self.score:.2f}"
        return text if self.good else f"**{text}** {codes}".rstrip()


def run_client(client: Client, engine: Engine, job: Job, folder: Path) -> Cell:
    """Run a client in ``folder``, which is emptied first; processes that it starts end with it."""
    prepare(client, folder)
    if client.packages.node:
        (folder / "node_modules").symlink_to(Path(job.bin).parent)
    environment = offline(str(folder / "cache")) | client.environment_of(job) | {"PWD": str(folder)}
    begun = time.monotonic()
    output, ended = run_command(client.command(job), folder, environment, client.seconds)
    seconds = round(time.monotonic() - begun, 1)
    score, error = None, ended
    if not ended:
        try:
            score = client.score(folder, output)
        except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError, OSError) as problem:
            error = f"no score: {problem}"
    if error:
        error = f"{error}\n{output[-1500:]}"
    expected = tuple(sorted({engine.refusals[need] for need in client.needs & engine.refusals.keys()}))
    wrong = engine.template == WRONG_TEMPLATE and not client.own_format
    return Cell(client.name, engine.name, seconds, score, expected=expected, wrong_template=wrong, error=error)


def prepare(client: Client, folder: Path, wrong: int = 0) -> None:
    """Empty ``folder``, and write the questions, ``wrong`` of them with a wrong answer, and the client's files."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "cache").mkdir(parents=True)
    (folder / "sums.jsonl").write_text(rows(client.sums, wrong), encoding="utf-8")
    for name in client.files:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(CONFIGS / name, folder / name)


def run_command(command: Sequence[str], folder: Path, environment: dict[str, str], seconds: float) -> tuple[str, str]:
    """A command's output, and its failure (empty: none)."""
    path = folder / "output.txt"
    with path.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
            ended = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"not finished after {seconds:.0f} s"
        finally:
            stop(process)
    return path.read_text(encoding="utf-8", errors="replace"), ended


def markdown(cells: Sequence[Cell], clients: Sequence[Client], engines: Sequence[Engine]) -> str:
    """The table clients x engines of docs/clients.md."""
    found = {(cell.client, cell.engine): cell.shown() for cell in cells}
    lines = [f"| Client | {' | '.join(engine.title for engine in engines)} |", f"|---|{'---|' * len(engines)}"]
    for client in clients:
        row = " | ".join(found.get((client.name, engine.name), "not run") for engine in engines)
        lines.append(f"| [{client.title}](harnesses/{client.guide}.md) | {row} |")
    return "\n".join(lines) + "\n"


def as_json(cells: Sequence[Cell], versions: dict[str, list[str]], date: str) -> str:
    """All cells and versions as JSON."""
    table = [{**asdict(cell), "good": cell.good} for cell in cells]
    return json.dumps({"date": date, "versions": versions, "cells": table}, indent=2) + "\n"
