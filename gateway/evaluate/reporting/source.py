"""The rows of a run that the command line names: by a file, or by its name in the configured recordings."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from gateway.cli.options import CommandError, load_snapshot, print_note
from gateway.cli.score_options import ScoreOptions
from gateway.core.errors import ConfigError, InvalidValue
from gateway.evaluate.analysis.recordings import note_left_out, read_recording, with_recording
from gateway.evaluate.analysis.rows import OpenRuns, RunRow, read_output, with_manifest
from gateway.evaluate.analysis.scores import RowScore, judge_of, read_scores, score_of
from gateway.evaluate.running.output import RECORDING, manifest_path, recording_path
from gateway.evaluate.scores.join import NO_CALL, JoinedRun, joined, shown
from gateway.evaluate.scores.read import json_objects, read_harness
from gateway.storage.recordings import RecordingFile, is_recording, open_recording

NO_COMMON_TEXT = (
    "give the scores of this run; texts that are not recorded (record: metadata, redact), and requests of several "
    "prompts, belong to no row"
)


@contextmanager
def reading() -> Iterator[OpenRuns]:
    """Keep the files of runs open, and replace errors in them by a ``CommandError``."""
    try:
        with OpenRuns() as files:
            yield files
        for note in files.notes:
            print_note(note)
    except InvalidValue as error:
        raise CommandError(error.message) from None
    except sqlite3.Error as error:
        raise CommandError(f"the recordings cannot be read: {error}") from None
    except OSError as error:
        if error.filename is None:  # standard output: ``gateway.cli`` ends the process
            raise
        raise CommandError(f"{error.filename}: {error.strerror}") from None


def read_run(files: OpenRuns, run: str, config: Path, row: str | None = None) -> Iterator[RunRow]:
    """Return an iterator over the rows of a run. Raises ``CommandError`` if there is no such run.

    ``files``: closes the run's recording. ``run``: an output file of ``gateway run``, a file of recordings, the name of
    a run of ``gateway with``, or that of a run in the recordings of the configuration ``config``. ``row``: only the
    rows with this id.
    """

    def opened(path: Path) -> RecordingFile:
        file = files.enter_context(closing(open_recording(path)))
        files.callback(note_left_out, files, file)
        return file

    output, recording = run_place(run, config)
    if output is not None:
        manifest = manifest_path(output)
        rows: Iterator[RunRow] = (one for one in read_output(output) if row in (None, one.custom_id))
        rows = with_manifest(rows, manifest) if manifest.exists() else rows
        return with_recording(rows, opened(recording)) if recording.exists() else rows
    if recording in (Path(run), Path(f"{run}{RECORDING}")):
        return read_recording(opened(recording), row=row)
    rows = read_recording(opened(recording), run, row)
    first = next(rows, None)
    if first is None and row is None:
        raise CommandError(f"{run}: no such file, no {run}{RECORDING}, and no run of this name in the recordings")
    return chain(filter(None, [first]), rows)


def read_scored(
    files: OpenRuns, run: str, config: Path, scores: Path | None, score: RowScore | None = None, since: float = 0.0
) -> tuple[Iterable[RunRow], JoinedRun | None]:
    """Return the rows of a run with the scores in a file or folder, and how they were joined if it is of a harness.

    ``scores``: may end with ``:`` and the name of a score; None: ``score`` scores the rows, if there is one. ``since``:
    files that were last changed before this time do not count. A harness needs all rows. See ``read_run``.
    """
    rows = read_run(files, run, config, files.only if scores is None else None)
    if scores is None:
        return rows if score is None else (replace(one, points=score(one)) for one in rows), None
    path, name = place_and_name(scores)
    if since and path.is_file() and path.stat().st_mtime < since:
        raise CommandError(f"{path}: the command has not written this file")
    if _has_own_lines(path):
        if name:
            raise CommandError(f"{scores}: own lines have one score without a name; give {path}")
        return _with_own_lines(files, rows, path), None
    found = joined(rows, read_harness(path, name, since))
    if all(row.error == NO_CALL for row in found.rows):
        raise CommandError(f"no call of {run} has the text, or the id, of a row in {path}: {NO_COMMON_TEXT}")
    if found.recorded[False] > 1 and not found.recorded[True]:
        raise CommandError(f"no answer in {path} is one of {run}; give the scores of this run")
    return found.rows, found


def _with_own_lines(files: OpenRuns, rows: Iterable[RunRow], path: Path) -> Iterator[RunRow]:
    """Yield the rows that have a line in a file, and the failed ones. The others are no rows: they are counted.

    Raises ``InvalidValue`` if these are all rows.
    """
    scores, left = read_scores(path), Counter[str]()
    files.callback(lambda: files.notes.append(f"{path}: calls without a line: {shown(left)}") if left else None)
    ids = set[str]()
    for row in rows:
        ids.add(row.custom_id)
        if row.error or row.custom_id in scores:
            yield replace(row, points=scores.get(row.custom_id, 0.0))
        else:
            left[row.model] += 1
    if left and ids.isdisjoint(scores):
        raise InvalidValue(f"{path} has no score of a row of the run; write the ids of its rows, such as {min(ids)}")


def read_scored_runs(
    files: OpenRuns, runs: Sequence[str], config: Path, options: ScoreOptions
) -> list[Iterable[RunRow]]:
    """Return the rows of each run, and note what rows of a harness lack. See ``read_scored``."""
    paths = scores_of(runs, options.scores, options.score)
    score = row_score(options.score, options.answer)
    found = [read_scored(files, run, config, path, score) for run, path in zip(runs, paths, strict=True)]
    for run, (_, scored) in zip(runs, found, strict=True):
        if scored and scored.scores.has_several():
            names = ", ".join(scored.scores.labels)
            raise CommandError(f"{run}: the scores are of several kinds; choose one with --scores PATH:NAME: {names}")
        files.notes += [f"{run}: {line}" for line in scored.lines()] if scored else []
    return [rows for rows, _ in found]


def row_score(score: str | None, column: str) -> RowScore | None:
    """Return the function that scores a row, for the options of a verb; None without a score.

    Raises ``CommandError`` for an unknown score.
    """
    try:
        return None if score is None else partial(score_of, judge=judge_of(score), column=column)
    except InvalidValue as error:
        raise CommandError(error.message) from None


def scores_of(runs: Sequence[str], scores: Sequence[Path], score: str | None) -> list[Path | None]:
    """Return the scores of each run. One file of own lines counts for both runs. Raises ``CommandError``.

    ``score``: the value of ``--score``, with which a second run has scores of its own.
    """
    if len(scores) > len(runs) or (len(scores) == len(runs) and score is not None):
        raise CommandError("too many scores: give each run one, with --score or --scores")
    if len(scores) == 1 and len(runs) == 2 and score is None:
        if not _has_own_lines(place_and_name(scores[0])[0]):
            raise CommandError(
                f"{scores[0]} has the scores of one run; give --scores twice, for A and for B, or --score for the kept "
                "column of B"
            )
        return [scores[0]] * 2
    return [*scores, *[None] * (len(runs) - len(scores))]


def _has_own_lines(path: Path) -> bool:
    """Return whether a file of scores has the form of the gateway. Raises ``OSError`` if there is no such file."""
    return not path.is_dir() and "custom_id" in next(json_objects(path), (0, {}))[1]


def place_and_name(scores: Path) -> tuple[Path, str]:
    """Return the file or folder of a value of ``--scores``, and the name of a score if the value ends with one."""
    if scores.exists():
        return scores, ""
    place, _, name = str(scores).rpartition(":")
    return (Path(place), name) if place and name and Path(place).exists() else (scores, "")


def run_place(run: str, config: Path) -> tuple[Path | None, Path]:
    """Return the output of a run, and the file with its recordings: beside the output, or else the configured one.

    The output is None for a file of recordings, for a run of ``gateway with``, whose file has its name, and for a run
    that the configured recordings have. The recordings of an output may not exist. Raises ``CommandError``.
    """
    path = Path(run)
    if not path.exists() or path.is_dir():
        named = Path(f"{run}{RECORDING}")
        return None, named if named.exists() else recordings_path(config, run)
    if is_recording(path):
        return None, path
    beside = recording_path(path)
    return path, beside if beside.exists() else _served(config) or beside


def _served(config: Path) -> Path | None:
    """Return the configured file of recordings, to which a running gateway writes. None: there is no such file."""
    try:
        return recordings_path(config)
    except (CommandError, ConfigError):  # the output can be read without it
        return None


def run_files(run: str, config: Path) -> list[Path]:
    """Return the files from which a run is read; those beside its output may not exist. Raises ``CommandError``."""
    output, recording = run_place(run, config)
    return [recording, Path(f"{recording}-wal")] if output is None else [output, recording, manifest_path(output)]


def run_recording(run: str, config: Path) -> Path:
    """Return the file with the recordings of a run. Raises ``CommandError`` if the run is not recorded."""
    _, recording = run_place(run, config)
    if not recording.exists():
        raise CommandError(
            f"{run} has no recording ({recording}), so its requests cannot be sent again; run both runs "
            "again without --no-recording, each with a new --out, because a finished output is not run again"
        )
    return recording


def recordings_path(config: Path, run: str = "") -> Path:
    """Return the file of recordings of a configuration. Raises ``CommandError``.

    ``run``: the name of a run to look for; empty: any call.
    """
    missing = f"{run}: no such file, and no {run}{RECORDING}; give the output (--out) of a run" if run else ""
    if not config.exists():
        raise CommandError(missing or f"{config} does not exist; give the configuration with --config")
    path = load_snapshot(config).recordings.path
    if path is None:
        if run:
            raise CommandError(f"{missing}; for a run that a gateway recorded, set recordings.path in {config}")
        raise CommandError(
            f"{config} has no recordings.path; to record calls, add recordings: {{path: recordings.sqlite}}; to read "
            "the calls of a run, give --file, such as --file a.recording.sqlite beside a.jsonl"
        )
    if not path.exists():
        raise CommandError(f"{f'{missing}; ' if run else ''}{path} does not exist: no call is recorded yet")
    return path
