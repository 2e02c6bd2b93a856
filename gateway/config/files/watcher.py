"""Watches files for changes by polling."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from metatemplate.files.reader import POLICIES, PROMPTS, TEMPLATES

FileState = tuple[int, int, int]
"""The inode, modification time in ns, and size of a file or folder."""

ABSENT: FileState = (0, 0, 0)


class FileWatcher:
    """Watches files, other YAML files in the same folders, and paths where a file may appear.

    The watcher looks at whole folders, because a new file may replace a file shipped with the gateway, or may be the
    missing file for which a reload was refused.
    Create the watcher with the path of ``gateway.yaml`` before the first load, so that the watcher notices a change
    during the load. After each load, call ``follow`` with the loaded files.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(files)
        self._known = self._look()
        self._pending: Mapping[Path, FileState] | None = None

    def follow(self, files: Iterable[Path]) -> None:
        """Watch ``gateway.yaml`` and these files from now on.

        For files that were already watched, a change since the last poll is still noticed.
        """
        self._files = (*self._files[:1], *files)
        self._known = {path: self._known.get(path, state) for path, state in self._look().items()}
        self._pending = None

    def changed(self) -> bool:
        """Return True once for each change, after two calls in a row have found the same new state of the files.

        The second call prevents a reload from reading a partly written file (``docs/spec/reliability.md`` E08).
        """
        now = self._look()
        is_settled = now != self._known and now == self._pending
        self._pending = now
        if is_settled:
            self._known = now
        return is_settled

    def _look(self) -> Mapping[Path, FileState]:
        home = self._files[0].parent
        folders = {*(path.parent for path in self._files), *(home / name for name in (TEMPLATES, POLICIES, PROMPTS))}
        # Not ``glob``: from Python 3.13 on, it finds nothing where a folder cannot be read.
        entries = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
        neighbours = [path for path in entries if path.suffix == ".yaml"]
        return {path: file_state(path) for path in {*self._files, *neighbours}}


def file_state(path: Path) -> FileState:
    """Return the state of a file or folder, or ``ABSENT`` if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return (found.st_ino, found.st_mtime_ns, found.st_size)
