"""How do files become the configuration? All are read and checked, then frozen; or every problem is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gateway.config.files.reader import Files
from gateway.config.files.yaml import Document
from gateway.config.library import Library
from gateway.config.schema.settings import GATEWAY
from gateway.config.schema.validation import check
from gateway.config.sections.keys import read_keys
from gateway.config.sections.models import read_models
from gateway.config.sections.server import ServerSection
from gateway.config.snapshot import KeySpec, Snapshot
from gateway.core.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attempt to read a configuration."""

    snapshot: Snapshot | None
    """None when there are problems."""
    problems: tuple[Problem, ...]
    """In the order of files and lines."""
    files: tuple[Path, ...]
    """Every file that was asked for, the broken ones too, so that a watcher sees them mended."""
    notes: tuple[Problem, ...] = ()
    """What is no mistake, and a person should know of."""
    looked_at: tuple[Path, ...] = ()
    """Places without a file, and folders, where one that comes may count: for a watcher as well."""


def load(path: Path, env: Mapping[str, str]) -> Snapshot:
    """Read ``gateway.yaml`` and all it names.

    ``env`` is the environment: for ``GATEWAY_SERVER__…`` and for secrets.
    Raises ``ConfigError`` with every problem of every file.
    """
    outcome = read(path, env)
    if outcome.snapshot is None:
        raise ConfigError(outcome.problems)
    return outcome.snapshot


def check_all(path: Path, env: Mapping[str, str]) -> tuple[Problem, ...]:
    """Every problem of the configuration, and of the templates and policies beside it that nothing names yet."""
    return read(path, env, everything=True).problems


def read(path: Path, env: Mapping[str, str], *, everything: bool = False) -> Outcome:
    """Like ``load``, but problems are a value; ``everything``: also the files that no model names."""
    # Not resolved: with symlinked files (a mounted ConfigMap) the neighbours lie beside the link.
    path = path.absolute()
    files = Files(path.parent)
    library = Library(files)
    document = files.document(path, files.blame(path))
    snapshot = _assemble(document, library, env) if document is not None else None
    if everything:
        library.check_folders()
    problems = files.in_order()
    snapshot = None if problems else snapshot
    return Outcome(snapshot, problems, tuple(files.contents), tuple(files.notes), tuple(files.looked_at))


def _assemble(document: Document, library: Library, env: Mapping[str, str]) -> Snapshot | None:
    files = library.files
    checked = check(document, GATEWAY)
    files.problems.extend(checked.problems)
    if document.value is not None and not isinstance(document.value, dict):
        return None
    values = checked.values
    keys = _keys(document, values["keys"]["file"], files, list(values.get("models") or ()))
    server = ServerSection(document, values["server"], files)
    server.override(env)
    server.guard(has_keys=values["keys"]["file"] is not None)
    models = read_models(document, values["models"], library, env)
    if files.problems:
        return None
    return Snapshot(
        server=server.spec(),
        models=MappingProxyType(models),
        keys=keys,
        revision=files.revision(),
        files=tuple(files.contents),
        notes=tuple(files.notes),
    )


def _keys(document: Document, name: str | None, files: Files, models: list[str]) -> tuple[KeySpec, ...]:
    if not name:
        return ()
    return read_keys(files, files.home / name, models, lambda message: document.problem(("keys", "file"), message))
