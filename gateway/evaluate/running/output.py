"""The output file: one line for each row, in the order in which the answers arrive.

A killed process leaves whole lines and at most one partial line at the end, which the next run removes. So a row is
either in the file once, or is sent again.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

import orjson

from gateway.cli.options import CommandError

RECORDING = ".recording.sqlite"
"""The end of the name of a run's file of recordings."""


class OutputFile(AbstractContextManager["OutputFile"]):
    """The output file, opened for appending and locked against a second run; a context manager that closes it.

    A new file is removed if the run is refused before its manifest is written.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, and read it. Raises ``CommandError`` if the file cannot be used."""
        self.path = path
        self._created = not path.exists()
        self._replaced: list[BinaryIO] = []
        """Files that ``drop_failed`` has replaced. They stay open to keep the locks of this run."""
        try:
            self._file = open_locked(path)
        except OSError as error:
            problem = error.strerror if path.parent.is_dir() else f"the folder {path.parent} does not exist; create it"
            raise CommandError(f"{path}: {problem}") from None
        try:
            if path.stat().st_size and not manifest_path(path).exists():
                raise CommandError(f"{path} exists, but {manifest_path(path)} does not; choose another --out")
            self.done = self._read_done()
            """The ``custom_id`` of every row in the file."""
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._created and error is not None and not manifest_path(self.path).exists():
            self.path.unlink(missing_ok=True)
        for file in (self._file, *self._replaced):
            file.close()

    def append(self, line: bytes) -> None:
        """Write and flush a line. The line is kept even if this process is killed. Raises ``OSError``."""
        self._file.write(line)
        self._file.flush()

    def sync(self) -> None:
        """Write everything to the disk."""
        os.fsync(self._file.fileno())

    def drop_failed(self) -> None:
        """Remove the lines of failed rows, so that these rows are sent again."""
        draft = self.path.with_name(f"{self.path.name}.partial")
        draft.unlink(missing_ok=True)
        kept = open_locked(draft)
        for line in complete_lines(self.path):
            value = orjson.loads(line)
            if is_answered(value):
                kept.write(line)
            else:
                self.done.discard(value["custom_id"])
        kept.flush()
        os.fsync(kept.fileno())
        draft.replace(self.path)
        self._replaced.append(self._file)
        self._file = kept

    def _read_done(self) -> set[str]:
        """Return the ids of all rows in the file, after removing a partial last line."""
        done: set[str] = set()
        size = 0
        for number, (custom_id, _, end) in enumerate(rows_in(self.path), 1):
            if custom_id in done:
                raise CommandError(
                    f'{self.path}:{number}: this is the second line of row "{custom_id}"; delete one of the two'
                )
            done.add(custom_id)
            size = end
        self._file.truncate(size)
        return done


def manifest_path(output: Path) -> Path:
    """Return the path of an output file's manifest: ``a.manifest.json`` for ``a.jsonl``."""
    return output.with_name(f"{output.name.removesuffix('.jsonl')}.manifest.json")


def recording_path(output: Path) -> Path:
    """Return the path of the recordings of a run: ``a.recording.sqlite`` for ``a.jsonl``."""
    return output.with_name(f"{output.name.removesuffix('.jsonl')}{RECORDING}")


def run_name(output: Path) -> str:
    """Return the name of a run in recordings: ``a`` for ``a.jsonl``, with ``-`` in place of characters such as spaces.

    Shards of one output, such as ``a.3-of-16.jsonl``, belong to one run. See ``RUN_NAME``.
    """
    name = re.sub(r"\.\d+-of-\d+$", "", output.name.removesuffix(".jsonl"))
    return re.sub("[^A-Za-z0-9._-]", "-", name)[:64] or "run"


def complete_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, each with its line end. A last line without a line end is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line


def rows_in(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the ``custom_id`` of each row in an output file, and where its line begins and ends, in bytes.

    Raises ``CommandError`` for a line of another program.
    """
    end = 0
    for number, line in enumerate(complete_lines(path), 1):
        try:
            custom_id = orjson.loads(line)["custom_id"]
        except (ValueError, TypeError, KeyError):
            custom_id = None
        if not isinstance(custom_id, str):
            raise CommandError(
                f"{path}:{number}: this line is not from `gateway run`; delete it, and its row is sent again"
            )
        begin, end = end, end + len(line)
        yield custom_id, begin, end


def is_answered(value: dict[str, Any]) -> bool:
    """Return whether an output line contains an answer, and not an error."""
    response = value["response"]
    return response is not None and response["status_code"] == 200


def open_locked(path: Path, mode: Literal["a+b", "rb"] = "a+b") -> BinaryIO:
    """Open or create a file to append and to read, locked. Raises ``CommandError`` if another process has locked it.

    ``mode``: ``rb`` only reads a file, which the user may not be allowed to write.
    """
    file = path.open(mode)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if mode == "rb" else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise CommandError(f"{path}: another `gateway run` is writing to this file", 1) from None
    return file
