"""The runs that ``tests.evaluate.analysis.large`` times, in small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.evaluate.analysis.recordings import read_recording, with_recording
from gateway.evaluate.analysis.report import report_of
from gateway.evaluate.analysis.rows import NO_FACTS, read_output
from gateway.evaluate.analysis.scores import judge_of, score_of
from gateway.evaluate.analysis.why import explain
from gateway.evaluate.running.output import recording_path
from gateway.evaluate.scores.join import joined
from gateway.evaluate.scores.read import read_harness
from gateway.storage.recordings import RecordingFile, open_recording
from tests.evaluate.analysis.large import EVERY, samples_path, write_run


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def opened(files: ExitStack, output: Path) -> RecordingFile:
    return files.enter_context(closing(open_recording(recording_path(output))))


def test_a_report_and_a_comparison_read_facts_only_for_the_rows_that_differ(tmp_path: Path, files: ExitStack) -> None:
    outputs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for output in outputs:
        write_run(output, 4 * EVERY)
    recorded = list(read_recording(opened(files, outputs[0])))
    assert all(row.facts.prompt is row.facts.raw is None and row.facts.request for row in recorded)
    whole = recorded[0].with_facts()
    assert whole.facts.raw == whole.answers[0].text
    assert whole.facts.prompt is not None
    assert whole.facts.params == {"temperature": 0, "seed": 1, "n": 1, "stop": ["</a>"], "stop_token_ids": []}
    assert (whole.with_facts(), whole.facts.request) == (whole, recorded[0].facts.request)
    a, b = [
        [
            replace(row, points=score_of(row, judge_of("contains"), "answer"))
            for row in with_recording(read_output(one), opened(files, one))
        ]
        for one in outputs
    ]
    assert report_of(a).classes == report_of(recorded).classes == {"whole": 4 * EVERY}
    for found in (explain(a, b), explain(recorded, read_recording(opened(files, outputs[1])))):
        assert found.by_cause() == {"sampled tokens": (4, 0.0)}
        assert [one.custom_id for one in found.found] == [f"row-{EVERY * at}" for at in range(4)]


def test_a_row_that_is_not_recorded_keeps_the_facts_of_its_output(tmp_path: Path, files: ExitStack) -> None:
    write_run(tmp_path / "a.jsonl", 2)
    write_run(tmp_path / "b.jsonl", 1)
    first, second = with_recording(read_output(tmp_path / "a.jsonl"), opened(files, tmp_path / "b.jsonl"))
    assert first.with_facts().facts.raw is not None
    assert (second.read_facts, second.facts.prompt_sha256) == (None, "h") != (None, NO_FACTS.prompt_sha256)


def test_every_row_of_the_samples_has_its_call(tmp_path: Path, files: ExitStack) -> None:
    write_run(tmp_path / "a.jsonl", 3)
    recorded = read_recording(opened(files, tmp_path / "a.jsonl"))
    found = joined(recorded, read_harness(samples_path(tmp_path / "a.jsonl")))
    assert [(row.custom_id, row.points) for row in found.rows] == [
        ("lm-eval:samples_a/0", 1.0),
        ("lm-eval:samples_a/1", 0.0),
        ("lm-eval:samples_a/2", 0.0),
    ]
    assert (found.as_json()["rows_without_call"], found.left) == (0, {})
