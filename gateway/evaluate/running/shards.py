"""Shards of a run: which rows a shard has, and the outputs of all shards joined into one."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

from gateway.cli.options import CommandError
from gateway.cli.terminal import progress
from gateway.evaluate.running.manifest import Manifest, read_manifest
from gateway.evaluate.running.output import manifest_path, open_locked, recording_path, rows_in, run_name
from gateway.storage.merging import merge_recordings
from metatemplate.values.words import counted


def rows_of_shard(shard: str | None) -> slice:
    """Return which rows of the data a shard ``K/N`` has: each Nth row, from row K on. None: all rows.

    Raises ``CommandError`` for another text.
    """
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", shard or "0/1")
    if found is None or int(found[1]) >= int(found[2]):
        raise CommandError(
            f"--shard {shard}: give K/N; shards are counted from 0, so 0/16 is the first and 15/16 the last"
        )
    return slice(int(found[1]), None, int(found[2]))


def shard_path(out: Path, number: int, count: int) -> Path:
    """Return the output of a shard: ``a.3-of-16.jsonl`` for ``a.jsonl``."""
    return out.with_name(f"{out.name.removesuffix('.jsonl')}.{number}-of-{count}.jsonl")


def merge_shards(
    out: Path, count: int, ids: Sequence[str], described: Mapping[str, Any], *, allow_changes: bool
) -> tuple[dict[str, Any], Path | None]:
    """Join the outputs, the recordings and the manifests of all shards. Return the results, and the recordings.

    ``ids``: those of all rows, in the order of the data. ``described``: the identity of the run, without its models.
    Raises ``CommandError`` for shards that are not complete, and ``InvalidValue`` for recordings.
    """
    started, exists = time.monotonic(), out.exists() or recording_path(out).exists()
    earlier = read_manifest(manifest_path(out)) or {"runs": [{}] if exists else []}
    if not all("shard" in run for run in earlier["runs"]):
        raise CommandError(f"{out} is the output of a run without --shard; choose another --out, or move it away")
    paths = [shard_path(out, number, count) for number in range(min(count, len(ids)))]  # further ones have no rows
    with ExitStack() as opened:
        begun = [path for path in paths if path.exists() and manifest_path(path).exists()]
        files = [opened.enter_context(open_locked(path, "rb")) for path in begun]
        places = [{one: at for one, at, _ in rows_in(path)} if path in begun else {} for path in paths]
        _check_complete(out, paths, places, ids, count)
        manifests = list(filter(None, [read_manifest(manifest_path(path)) for path in paths]))
        recording = recording_path(out) if recording_path(paths[0]).exists() else None
        facts = {"run": run_name(out), "recording": recording and recording.name, "shard": "all"}
        joined = Manifest(out, {**manifests[0]["identity"], **described}, facts)
        joined.begin(len(ids), allow_changes=allow_changes, shards=manifests)
        if recording is not None:
            merge_recordings(recording, list(map(recording_path, paths)), partial(progress, "calls", steps=1000))
        _write(out, ((files[k % count], places[k % count][one]) for k, one in enumerate(ids)))
        return joined.end(time.monotonic() - started, complete=True), recording


def _check_complete(
    out: Path, paths: Sequence[Path], places: Sequence[Mapping[str, int]], ids: Sequence[str], count: int
) -> None:
    """Raise ``CommandError`` with all shards that lack rows or a recording. ``places``: the rows of each shard."""
    problems, recorded = [], any(recording_path(path).exists() for path in paths)
    if not any(map(Path.exists, paths)):
        seen = sorted(out.parent.glob(f"{escape(out.name.removesuffix('.jsonl'))}.*-of-*.jsonl"))
        others = f"but {seen[0]}; give --merge the number in its name" if seen else "give the shards' --out"
        raise CommandError(f"{out} has no shards of --shard K/{count}, {others}")
    for number, (path, found) in enumerate(zip(paths, places, strict=True)):
        if missing := [one for one in ids[number::count] if one not in found]:
            problems.append(
                f"{path} lacks {counted(len(missing), 'row')}, such as {', '.join(missing[:3])}; the same command with "
                f"--shard {number}/{count} in place of --merge {count} sends them"
            )
        elif recorded and not recording_path(path).exists():
            problems.append(
                f"{path} has no recording, and other shards have one; delete {path} and send the shard with "
                "--recording, or move the recordings of all shards away"
            )
    if problems:
        raise CommandError("\n".join(problems), 1)


def _write(out: Path, places: Iterable[tuple[BinaryIO, int]]) -> None:
    """Write an output, which is replaced in one step. ``places``: file and place of each line, in order."""
    draft = out.with_name(f"{out.name}.partial")
    with draft.open("wb") as file:
        for source, place in places:
            source.seek(place)
            file.write(source.readline())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(out)
