"""Reads each file of a configuration once and completely, and collects every problem."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from metatemplate.errors import Problem, TemplateFailure
from metatemplate.files import yaml
from metatemplate.files.yaml import YamlDocument

AddProblem = Callable[[str], None]
"""A function that adds a problem with the given message. The problem names the setting that contains the file name."""
TEMPLATES, POLICIES, PROMPTS = "meta_templates", "policies", "prompts"
"""The names of the three folders next to ``gateway.yaml``."""
Load = Callable[[Path, str], bytes | None]

ENVIRONMENT = "environment"
"""The text that replaces the file name in problems with environment variables."""


class Files:
    """The files read by one load of the configuration, and the problems found by that load."""

    def __init__(self, home: Path) -> None:
        self.home = home
        """The folder of ``gateway.yaml``. Relative paths begin at this folder."""
        self.contents: dict[Path, bytes | None] = {}
        """Path → contents of the file, in reading order. None for a file that cannot be read."""
        self.looked_at: dict[Path, None] = {}
        """Missing files and listed folders. A file that appears at such a path may change the configuration."""
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        """Notes for the operator. A note is not an error."""

    def shown(self, path: Path) -> str:
        """Return the path for messages. A path inside the folder of ``gateway.yaml`` is relative to that folder."""
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)

    def add_problem(self, path: Path) -> AddProblem:
        """Return a function that adds a problem with the whole file, without a line number."""
        return lambda message: self.problems.append(Problem(self.shown(path), 0, "", message))

    def read(self, path: Path, add_problem: AddProblem) -> bytes | None:
        """Return the bytes of a regular file. If the file cannot be read, add a problem and return None."""
        if self.contents.get(path) is None:
            self.contents[path] = None
            try:
                if path.is_file():
                    with path.open("rb") as file:
                        self.contents[path] = file.read(yaml.MAX_BYTES + 1)
                    return self.contents[path]
                reason = "the path is not a file" if path.exists() else "the file does not exist"
            except OSError as error:
                reason = error.strerror or str(error)
            add_problem(f"cannot read {self.shown(path)} ({reason})")
        return self.contents[path]

    def document(self, path: Path, add_problem: AddProblem) -> YamlDocument | None:
        """Return a parsed YAML file, or None if no part of the file is usable."""
        data = self.read(path, add_problem)
        if data is None:
            return None
        before = len(self.problems)
        document = yaml.parse(data, self.shown(path), self.problems)
        return None if document.value is None and len(self.problems) > before else document

    def revision(self) -> str:
        """Return 12 hex digits of a SHA-256 over the names and contents of all files."""
        return digest_of({self.shown(path): self.contents[path] or b"" for path in sorted(self.contents)})[:12]

    def in_order(self) -> tuple[Problem, ...]:
        """Return the problems, ordered by file (in reading order) and line. Problems with the environment come last."""
        order = {self.shown(path): position for position, path in enumerate(self.contents)}
        found = dict.fromkeys(self.problems)  # a problem found twice is reported once
        return tuple(sorted(found, key=lambda problem: (order.get(problem.file, len(order)), problem.line)))


class FolderFiles:
    """Reads the files in the folder of a template, each file once. Paths and links out of the folder are refused."""

    def __init__(self, folder: Path, load: Load, looked_at: dict[Path, None], also: tuple[Path, ...] = ()) -> None:
        """``load``: a function that returns the bytes of a file. Its arguments are the file's path and name.

        ``looked_at``: the mapping ``Files.looked_at``. ``also``: other folders to which links may point.
        """
        self._folder = folder
        self._load = load
        self._looked_at = looked_at
        self._allowed = [os.path.realpath(one) for one in (folder, *also)]
        self.read: dict[str, bytes] = {}
        """Path in the folder → contents of the file, for every file read so far."""

    def fetch(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if the file is missing.

        Raises ``TemplateFailure`` for a path outside the folder.
        """
        if name not in self.read:
            path = self._inside(name)
            if not os.path.lexists(path):
                self._looked_at[path] = None
                return None
            data = self._load(path, name)
            if data is None:
                return None
            self.read[name] = data
        return self.read[name]

    def names(self, name: str) -> tuple[str, ...]:
        """Return the sorted file names in a subfolder. Empty if the subfolder does not exist.

        Raises ``TemplateFailure`` if the subfolder cannot be read.
        """
        path = self._inside(name)
        self._looked_at[path] = None
        try:
            return tuple(sorted(os.listdir(path))) if path.is_dir() else ()
        except OSError as error:
            raise TemplateFailure(f"{name} cannot be read ({error.strerror or error})") from None

    def _inside(self, name: str) -> Path:
        path = self._folder / name
        try:
            target = Path(os.path.realpath(path))
        except ValueError:
            raise TemplateFailure(f"{path.name!a} is not a valid file name") from None
        if not any(target.is_relative_to(one) for one in self._allowed):
            raise TemplateFailure(f"{name} is (or links to) a file outside the folder; copy the file into the folder")
        return path


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 over the names and contents of several files, in hex."""
    return digest("".join([f"{name}\0{digest(data)}\n" for name, data in files.items()]).encode())
