"""Loads the configuration. All files are read and checked, and every problem is reported at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config.library import Library
from gateway.config.schema.kinds import INVALID, SIZE
from gateway.config.schema.settings import GATEWAY
from gateway.config.schema.validation import check
from gateway.config.sections.models import read_models
from gateway.config.sections.server import read_server
from gateway.config.sections.targets import secret_reader
from gateway.config.snapshot import (
    CacheSpec,
    GatewaySettings,
    KeySpec,
    ModelSpec,
    ServerSpec,
    Snapshot,
)
from gateway.core.errors import ConfigError, Problem
from metatemplate.files.reader import ENVIRONMENT, Files
from metatemplate.files.yaml import YamlDocument
from metatemplate.values.words import install_extra


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of loading the configuration once."""

    snapshot: Snapshot | None
    """The configuration. None if there are problems."""
    problems: tuple[Problem, ...]
    """The problems, ordered by file and line."""
    files: tuple[Path, ...]
    """Every file that the configuration needs, also files that cannot be read. The watcher follows these files."""
    looked_at: tuple[Path, ...]
    """Missing files and listed folders. The watcher follows them, because a new file at these paths may be used."""
    notes: tuple[Problem, ...]
    """Notes for the operator. A note is not an error."""


def load(path: Path, env: Mapping[str, str]) -> Snapshot:
    """Return the configuration from ``gateway.yaml`` and from the files that ``gateway.yaml`` names.

    ``env``: environment variables, which may contain ``GATEWAY_SERVER__…`` settings and secrets.
    Raises ``ConfigError`` with the problems of all files.
    """
    outcome = read_configuration(path, env)
    if outcome.snapshot is None:
        raise ConfigError(outcome.problems)
    return outcome.snapshot


def configured_server(path: Path, env: Mapping[str, str]) -> ServerSpec | None:
    """Return the section ``server``; None if it has problems. Other problems are ignored."""
    files, document, settings = _gateway_settings(path)
    if document is None or not settings:
        return None
    server = read_server(document, settings.server, files, env, has_keys=settings.keys.file is not None)
    faulty = [one for one in files.problems if one.file == ENVIRONMENT or one.key.partition(".")[0] == "server"]
    return None if faulty else server


def configured_keys(path: Path) -> tuple[Path, tuple[KeySpec, ...]]:
    """Return the path of the key file, and its keys; no keys if the file is missing or empty.

    Templates, policies and the environment are not read. Raises ``ConfigError`` with the problems of both files.
    """
    files, document, settings = _gateway_settings(path)
    keys: tuple[KeySpec, ...] = ()
    if document is None or not settings or not settings.keys:
        raise ConfigError(files.in_order())
    if settings.keys.file is None:
        document.refuse(("keys", "file"), "is missing; write `keys: {file: keys.yaml}`")
    name = str(settings.keys.file)
    file = files.home / name
    content = files.document(file, files.add_problem(file)) if file.exists() else None
    if content is not None and content.value:
        from gateway.config.sections.keys import read_keys

        keys = read_keys(files, file, list(settings.models or ()), files.add_problem(file))
    if files.problems:
        raise ConfigError(files.in_order())
    return path.parent / name, keys


def _gateway_settings(path: Path) -> tuple[Files, YamlDocument | None, GatewaySettings]:
    """Return the reader of files, the document ``gateway.yaml``, and its values or ``INVALID``."""
    files = Files(path.absolute().parent)
    document = files.document(path.absolute(), files.add_problem(path))
    settings: Any = check(document, GATEWAY) if document is not None else INVALID
    return files, document, settings


def read_configuration(
    path: Path, env: Mapping[str, str], *, everything: bool = False, checked: Callable[[int], object] = int
) -> LoadResult:
    """Read the configuration like ``load``, but return the problems in place of raising an error.

    ``everything``: also read templates and policies that no model uses. ``checked``: called with 1 after each of them.
    """
    # Links are not resolved, because in a mounted ConfigMap the other files are in the folder of the link.
    path = path.absolute()
    files = Files(path.parent)
    library = Library(files)
    document = files.document(path, files.add_problem(path))
    snapshot = _snapshot(document, library, env) if document is not None else None
    if everything:
        library.check_folders(checked)
    return LoadResult(
        snapshot=None if files.problems else snapshot,
        problems=files.in_order(),
        files=tuple(files.contents),
        looked_at=tuple(files.looked_at),
        notes=tuple(files.notes),
    )


def _snapshot(document: YamlDocument, library: Library, env: Mapping[str, str]) -> Snapshot | None:
    files = library.files
    settings: GatewaySettings = check(document, GATEWAY, secret_reader(files, env))
    if not settings:
        return None
    keys, key_file = tuple[KeySpec, ...](), settings.keys.file
    if key_file:
        missing = not os.path.exists(files.home / key_file)  # ``Path.exists`` raises for some names
        hint = f"; make it with: gateway keys new NAME >> {key_file}" if missing else ""

        def add_problem(message: str) -> None:
            document.refuse(("keys", "file"), message + hint)

        from gateway.config.sections.keys import read_keys

        keys = read_keys(files, files.home / key_file, list(settings.models or ()), add_problem)
    server = read_server(document, settings.server, files, env, has_keys=key_file is not None)
    models = read_models(document, settings, library)
    if key_file is None:
        _note_open_files(document, files, models)
    if server is None:
        return None
    _check_inlined_media(document, models, server)
    _check_storage(document, settings, models)
    _note_separate_caches(document, files, models, settings.cache, server.workers)
    cache_path = _database(document, "cache", settings.cache.path, files)
    recordings_path = _database(document, "recordings", settings.recordings.path, files)
    for path, value, package, extra in (
        (("redact",), settings.redact, "regex", "redact"),
        (("store", "url"), settings.store.url, "redis", "redis"),
    ):
        if value and find_spec(package) is None:
            document.refuse(path, f"needs the package {package}; install it with: {install_extra(extra)}")
    prompts = library.prompts()
    if files.problems:
        return None
    return Snapshot(
        server=server,
        models=MappingProxyType(models),
        prompts=MappingProxyType(prompts),
        keys=keys,
        key_labels=len(keys) <= settings.keys.max_in_metrics,
        store=settings.store,
        cache=replace(settings.cache, path=cache_path),
        recordings=replace(settings.recordings, path=recordings_path),
        tracing=settings.tracing,
        redact=settings.redact,
        revision=files.revision(),
        notes=tuple(files.notes),
    )


def _note_open_files(document: YamlDocument, files: Files, models: Mapping[str, ModelSpec]) -> None:
    """Add a note for each model whose policy accepts media files, because the gateway has no client keys."""
    for name, model in models.items():
        if model.policy.media.file != "refuse":
            note = (
                f"policy {model.policy.name} has media.file: {model.policy.media.file}, and there are no client keys, "
                "so every client that can connect, also through a proxy, may send the files of media.folders to the "
                "model; write `keys: {file: keys.yaml}`"
            )
            files.notes.append(document.problem(("models", name, "policy"), note))


def _check_inlined_media(document: YamlDocument, models: Mapping[str, ModelSpec], server: ServerSpec) -> None:
    """Add a problem for each model whose policy accepts more media in one request than all calls may have."""
    for name, model in models.items():
        media, most = model.policy.media, server.max_inlined_media
        if media.file == "inline" and media.max_size > most:
            message = (
                f"policy {model.policy.name} accepts {SIZE.write(media.max_size)} of media files in one request "
                f"(media.max_size), and all calls together may have {SIZE.write(most)} (server.max_inlined_media); "
                "raise server.max_inlined_media, or lower media.max_size"
            )
            document.refuse(("models", name, "policy"), message)


def _note_separate_caches(
    document: YamlDocument, files: Files, models: Mapping[str, ModelSpec], cache: CacheSpec, workers: int
) -> None:
    """Add a note if several workers keep cached answers in memory, because they do not share these answers."""
    policies = [model.policy.name for model in models.values() if model.policy.cache.mode != "off"]
    if policies and workers > 1 and cache.path is None and not cache.shared:
        note = (
            f"policy {policies[0]} has a cache, and each of the {workers} workers keeps its own answers in memory, so "
            "a repeated request may get another answer; write `cache: {path: answers.sqlite}`"
        )
        files.notes.append(document.problem(("server", "workers"), note))


def _check_storage(document: YamlDocument, settings: GatewaySettings, models: Mapping[str, ModelSpec]) -> None:
    """Check that the sections ``cache``, ``store`` and ``recordings`` fit together, and fit the models' policies."""
    cache, store = settings.cache, settings.store
    if cache.shared and cache.path:
        document.refuse(("cache", "shared"), "cannot be combined with cache.path; keep one of the two")
    if cache.shared and store.url == "":
        document.refuse(("cache", "shared"), "needs a Redis server; write `store: {url: redis://HOST:6379/0}`")
    recorded = [model.policy.name for model in models.values() if model.policy.record != "off"]
    if recorded and settings.recordings.path is None:
        message = f"is missing, and policy {recorded[0]} records calls; name a file such as recordings.sqlite"
        document.refuse(("recordings", "path"), message)


def _database(document: YamlDocument, section: str, name: Path | None, files: Files) -> Path | None:
    """Return the path of a section's SQLite file, or None if the section has no path. The file may not exist yet."""
    path = files.home / name if name else None
    if path is not None and not path.parent.is_dir():
        document.refuse((section, "path"), f"the folder of {name} does not exist; create it")
    return path
