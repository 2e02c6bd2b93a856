"""Did a file change? A poller that is cheap enough to be asked every second."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gateway.config.shipped import FOLDERS

Mark = tuple[int, int, int]
"""Inode, time of change in ns, size; a folder's are others when a file comes into it or goes."""

NOTHING_THERE: Mark = (0, 0, 0)


class Watch:
    """Looks at files, at every YAML file in their folders, and at places where files may come.

    Folders count because a new file may take the place of a shipped one, and because the
    file that mends a refused reload may not belong to the configuration yet.
    Begin with ``Watch([path of gateway.yaml])`` before the first load, so that a change
    during the load is seen; then ``follow`` what each load has read.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = tuple(files)
        self.known = self.look()
        self.pending: Mapping[Path, Mark] | None = None

    def follow(self, files: Iterable[Path]) -> None:
        """Watch other files from now on; what was known of the old ones stays known."""
        self.files = (*self.files[:1], *files)
        self.known = {path: self.known.get(path, mark) for path, mark in self.look().items()}
        self.pending = None

    def changed(self) -> bool:
        """True once for each change, as soon as nothing has moved since the last look.

        A file that is still being written looks different at every look, so a reload does
        not meet half of it (``specs/reliability.md`` E08).
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

    def look(self) -> Mapping[Path, Mark]:
        """The state of everything watched."""
        return {path: _mark(path) for path in {*self.files, *self._neighbours()}}

    def _neighbours(self) -> Iterator[Path]:
        folders = {path.parent for path in self.files}
        if self.files:
            folders |= {self.files[0].parent / name for name in FOLDERS}
        for folder in folders:
            yield from folder.glob("*.yaml")


def _mark(path: Path) -> Mark:
    try:
        found = os.stat(path)
    except OSError:
        return NOTHING_THERE
    return (found.st_ino, found.st_mtime_ns, found.st_size)
