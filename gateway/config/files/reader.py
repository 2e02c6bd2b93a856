"""Which files does a configuration consist of? Each is read once, whole, and remembered."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config.files import yaml
from gateway.config.files.yaml import Document
from gateway.core.errors import Problem, TemplateError

Blame = Callable[[str], Problem]
"""Turns a message into a problem at the place that asked for something."""

ENVIRONMENT = "environment"
"""Stands for a file name in problems with environment variables."""

TRIES = 3


class Files:
    """Everything one load has read, and every problem it met."""

    def __init__(self, home: Path) -> None:
        self.home = home
        """The folder of ``gateway.yaml``; relative paths begin here."""
        self.contents: dict[Path, bytes | None] = {}
        """In the order of reading; None: it could not be read."""
        self.looked_at: dict[Path, None] = {}
        """Places where a file was looked for and is none, and folders that were listed: what comes there may count."""
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        """What is no mistake, and a person should know of."""

    def shown(self, path: Path) -> str:
        """A path as problems name it: relative to ``gateway.yaml`` where that is shorter."""
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)

    def blame(self, path: Path) -> Blame:
        """Problems with a file as a whole."""
        return lambda message: Problem(self.shown(path), 0, "", message)

    def read(self, path: Path, blame: Blame) -> bytes | None:
        """The bytes of a file; a failure becomes a problem of whoever asked, each time it is asked for."""
        if self.contents.get(path) is None:
            try:
                self.contents[path] = _whole(path)
            except OSError as error:
                self.contents[path] = None
                reason = error.strerror or str(error)
                self.problems.append(blame(f"cannot read {self.shown(path)} ({reason})"))
        return self.contents[path]

    def document(self, path: Path, blame: Blame) -> Document | None:
        """A YAML file; None when nothing of it can be used."""
        data = self.read(path, blame)
        if data is None:
            return None
        document = yaml.parse(data, self.shown(path))
        self.problems.extend(document.problems)
        return None if document.value is None and document.problems else document

    def revision(self) -> str:
        """Twelve hex digits over all files; another name or another byte gives another."""
        whole = hashlib.sha256()
        for path in sorted(self.contents):
            whole.update(f"{self.shown(path)}\0{digest(self.contents[path] or b'')}\n".encode())
        return whole.hexdigest()[:12]

    def in_order(self) -> tuple[Problem, ...]:
        """The problems, file by file in the order of reading, then line by line; the environment's come last."""
        order = {self.shown(path): position for position, path in enumerate(self.contents)}
        found = dict.fromkeys(self.problems)  # the same mistake met on two ways is one mistake
        return tuple(sorted(found, key=lambda problem: (order.get(problem.file, len(order)), problem.line)))


def digest(data: bytes) -> str:
    """The SHA-256 of bytes in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_of(files: Mapping[str, bytes]) -> str:
    """The SHA-256 of several files in hex; another name or another byte gives another."""
    return digest("".join([f"{name}\0{digest(data)}\n" for name, data in files.items()]).encode())


def leads_to(path: Path) -> Path:
    """Where a path leads, its links followed. Raises ``TemplateError`` for a name that no file can have."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        raise TemplateError(f"{path.name!a} is no name that a file can have") from None


def listed(folder: Path, name: str) -> tuple[str, ...]:
    """The names in a folder; none: there is no such folder. Raises ``TemplateError`` if it cannot be read."""
    try:
        return tuple(sorted(os.listdir(folder))) if folder.is_dir() else ()
    except OSError as error:
        raise TemplateError(f"{name} cannot be read ({error.strerror or error})") from None


def _whole(path: Path) -> bytes:
    """A regular file's bytes at one moment, or ``OSError``.

    A file that grows, shrinks or changes while it is read would give a prefix of the old
    or the new text (``specs/reliability.md`` E08), so such a reading is thrown away.
    """
    for _ in range(TRIES):
        if not path.is_file():
            reason = "it is not a file" if path.exists() else "there is no such file"
            raise OSError(0, reason)
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            data = file.read(yaml.MAX_BYTES + 1)
            after = os.fstat(file.fileno())
        size = min(after.st_size, yaml.MAX_BYTES + 1)
        if before.st_mtime_ns == after.st_mtime_ns and len(data) == size:
            return data
    raise OSError(0, "it is being written; try again when that is done")
