"""What ``gateway report``, ``why`` and ``view`` say about a run, without durations, dates and its name."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from gateway.storage.recordings import open_recording
from tests.cli.command import command
from tests.support.serving import write_files
from tests.viewer.test_view import client, viewing

ROWS = 2000
CONFIG = """\
models:
  talk: {template: sft-demo, targets: [{speaks: scripted, script: hello.yaml}]}
  other: {template: chatml, targets: [{speaks: scripted, script: hello.yaml}]}
"""
ONLY_TIMES = ("histograms", "times")
"""The values of the page of a report that depend on durations and dates."""


def write_rows(folder: Path, pause: float, rows: int = ROWS) -> None:
    """Write the configuration and the data, whose rows are half right. ``pause``: seconds before each answer."""
    lines = [
        {"messages": [{"role": "user", "content": f"hi {n}"}], "answer": ("Hello", "Bye")[n % 2]} for n in range(rows)
    ]
    script = f"[{{pause: {pause}}}, Hello, {{finish: stop}}]\n"
    write_files(folder, {"gateway.yaml": CONFIG, "hello.yaml": script, "data.jsonl": "\n".join(map(json.dumps, lines))})


def ask_all_rows(folder: Path, model: str, out: str) -> None:
    """Run without shards, with one request at once: the lines have the order of the data."""
    options = ("--model", model, "--keep", "answer", "--out", out, "--concurrency", "1")
    ended = command(folder, "run", "data.jsonl", *options)
    assert ended.returncode == 0, ended.stderr.decode()


def reports(folder: Path, run: str, other: str) -> dict[str, Any]:
    """The JSON of the report of a run, of why its answers differ from those of another, and of both pages."""
    score, found = ("--score", "exact", "--json"), dict[str, Any]()
    for verb, runs in (("report", [run]), ("why", [run, other])):
        ended = command(folder, verb, *runs, *score)
        assert ended.returncode == 0, ended.stderr.decode()
        found[verb] = json.loads(ended.stdout)
    with viewing(folder, run, other, "--score", "exact") as (_, url), client(url) as browser:
        browser.get(url)
        for page in (f"report.json?run={run}", f"why.json?a={run}&b={other}", f"rows.json?run={run}&start=100"):
            answer = browser.get(f"/viewer/runs/{page}")
            assert answer.status_code == 200, answer.text
            found[page] = {name: value for name, value in answer.json().items() if name not in ONLY_TIMES}
    named: dict[str, Any] = json.loads(json.dumps(found).replace(run, "RUN"), object_hook=_without_duration)
    return named


def _without_duration(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name != "duration"}


def assert_each_row_once(out: Path, rows: int = ROWS) -> None:
    """Each row has one line in the output, and a complete recording of the call that answered it."""
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert Counter(line["custom_id"] for line in lines) == Counter(f"line-{n}" for n in range(1, rows + 1))
    with closing(open_recording(out.with_suffix(".recording.sqlite"))) as file:
        complete = "SELECT request_id, row, run FROM calls JOIN exchanges ON call = calls.id WHERE events LIKE '%Fin%'"
        found = Counter(tuple(one) for one in file.execute(complete))
    wanted = [(line["response"]["request_id"], line["custom_id"], out.stem) for line in lines]
    assert {found[one] for one in wanted} == {1}
