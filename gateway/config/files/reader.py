"""Reading the files of a configuration: each once, completely, with every problem collected."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config.files import yaml
from gateway.config.files.yaml import YamlDocument
from gateway.core.errors import Problem, TemplateError

ProblemMaker = Callable[[str], Problem]
"""Makes a problem of a message, at the place that needs the file."""

ENVIRONMENT = "environment"
"""Used instead of a file name in problems with environment variables."""

TRIES = 3


class Files:
    """The files read by one load, and its problems."""

    def __init__(self, home: Path) -> None:
        self.home = home
        """The folder of ``gateway.yaml``; relative paths start here."""
        self.contents: dict[Path, bytes | None] = {}
        """File contents in reading order; None for an unreadable file."""
        self.looked_at: dict[Path, None] = {}
        """Paths without a file, and listed folders: a file that appears there may change the configuration."""
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        """Notes for the operator that are not errors."""

    def shown(self, path: Path) -> str:
        """Return the path as messages show it: relative to ``gateway.yaml`` if it lies below."""
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)

    def blame(self, path: Path) -> ProblemMaker:
        """Return a function that makes problems with the file as a whole."""
        return lambda message: Problem(self.shown(path), 0, "", message)

    def read(self, path: Path, blame: ProblemMaker) -> bytes | None:
        """Return a file's bytes; if it cannot be read, add a problem (``blame``) and return None."""
        if self.contents.get(path) is None:
            try:
                self.contents[path] = _whole(path)
            except OSError as error:
                self.contents[path] = None
                reason = error.strerror or str(error)
                self.problems.append(blame(f"cannot read {self.shown(path)} ({reason})"))
        return self.contents[path]

    def document(self, path: Path, blame: ProblemMaker) -> YamlDocument | None:
        """Return a parsed YAML file; None if nothing of it is usable."""
        data = self.read(path, blame)
        if data is None:
            return None
        document = yaml.parse(data, self.shown(path))
        self.problems.extend(document.problems)
        return None if document.value is None and document.problems else document

    def revision(self) -> str:
        """Return 12 hex digits of a SHA-256 over the names and contents of all files."""
        whole = hashlib.sha256()
        for path in sorted(self.contents):
            whole.update(f"{self.shown(path)}\0{digest(self.contents[path] or b'')}\n".encode())
        return whole.hexdigest()[:12]

    def in_order(self) -> tuple[Problem, ...]:
        """Return the problems ordered by file (in reading order) and line; those of the environment last."""
        order = {self.shown(path): position for position, path in enumerate(self.contents)}
        found = dict.fromkeys(self.problems)  # a problem found twice is reported once
        return tuple(sorted(found, key=lambda problem: (order.get(problem.file, len(order)), problem.line)))


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 over the names and contents of several files, in hex."""
    return digest("".join([f"{name}\0{digest(data)}\n" for name, data in files.items()]).encode())


def resolve_links(path: Path) -> Path:
    """Return the path with links resolved. Raises ``TemplateError`` for an impossible file name."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        raise TemplateError(f"{path.name!a} is not a valid file name") from None


def folder_names(folder: Path, name: str) -> tuple[str, ...]:
    """Return the sorted names in a folder; empty if it does not exist. Raises ``TemplateError`` on failure."""
    try:
        return tuple(sorted(os.listdir(folder))) if folder.is_dir() else ()
    except OSError as error:
        raise TemplateError(f"{name} cannot be read ({error.strerror or error})") from None


def _whole(path: Path) -> bytes:
    """Return a regular file's bytes, or raise ``OSError``.

    If the file changes while it is read, the bytes may be half of a new version
    (``docs/spec/reliability.md`` E08), so it is read again.
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
