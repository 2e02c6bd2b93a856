"""Polling files for changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gateway.config.shipped import FOLDERS

FileState = tuple[int, int, int]
"""Inode, modification time in ns and size of a file or folder."""

ABSENT: FileState = (0, 0, 0)


class FileWatcher:
    """Watches files, the YAML files in their folders, and paths where a file may appear.

    Folders are watched because a new file may replace a shipped one, and because the file that
    repairs a refused reload may not belong to the configuration yet.
    Create it with the path of ``gateway.yaml`` before the first load, so that a change
    during the load is noticed; then ``follow`` the files of each load.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = tuple(files)
        self.known = self.look()
        self.pending: Mapping[Path, FileState] | None = None

    def follow(self, files: Iterable[Path]) -> None:
        """Watch other files from now on; the recorded state of files watched before is kept."""
        self.files = (*self.files[:1], *files)
        self.known = {path: self.known.get(path, mark) for path, mark in self.look().items()}
        self.pending = None

    def changed(self) -> bool:
        """Return True once for each change, when two polls in a row saw the same new state.

        So a reload does not read a file that is still being written (``docs/spec/reliability.md`` E08).
        """
        now = self.look()
        if now == self.known:
            self.pending = None
            return False
        if now != self.pending:
            self.pending = now
            return False
        self.known, self.pending = now, None
        return True

    def look(self) -> Mapping[Path, FileState]:
        """Return the state of all watched paths."""
        return {path: _mark(path) for path in {*self.files, *self._neighbours()}}

    def _neighbours(self) -> Iterator[Path]:
        folders = {path.parent for path in self.files}
        if self.files:
            folders |= {self.files[0].parent / name for name in FOLDERS}
        for folder in folders:
            yield from folder.glob("*.yaml")


def _mark(path: Path) -> FileState:
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return (found.st_ino, found.st_mtime_ns, found.st_size)
