"""One entry of ``targets``, checked against the settings of its kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config.files.reader import Files
from gateway.config.files.secret_files import read_secret
from gateway.config.files.yaml import Path as KeyPath
from gateway.config.files.yaml import YamlDocument
from gateway.config.schema.backend_kinds import BACKEND_KINDS, BackendKind
from gateway.config.schema.names import quote, suggest
from gateway.config.schema.secrets import Secret
from gateway.config.schema.settings import ROWS
from gateway.config.schema.validation import INVALID
from gateway.config.snapshot import TargetSpec

NOT_OPTIONS = {
    **dict.fromkeys(("api_key", "key", "token", "password"), 'key: "env:NAME"'),
    **dict.fromkeys(("api_base", "base_url", "url"), "url"),
    "model": "model",
}
"""Options that have their own setting."""

SETTINGS = tuple(dict.fromkeys(name for kind in BACKEND_KINDS.values() for name in kind.settings))
"""Every setting that some kinds have and others do not."""

DESCRIPTIONS = {
    row.name.rpartition(".")[2]: row.description for row in ROWS if row.name.startswith("models.<name>.targets[]")
}


class TargetEntry:
    """One entry of ``targets`` during validation."""

    def __init__(self, document: YamlDocument, files: Files, path: KeyPath, values: Mapping[str, Any]) -> None:
        self.document = document
        self.files = files
        self.path = path
        self.values = values

    @property
    def speaks(self) -> str:
        """The kind of target; empty if missing or unknown."""
        return str(self.values["speaks"] or "")

    @property
    def kind(self) -> BackendKind | None:
        """The row of ``speaks``; None if missing or unknown."""
        return BACKEND_KINDS.get(self.speaks)

    @property
    def form(self) -> str | None:
        """``text``, ``messages``, or None if it takes either or is unknown."""
        return None if self.kind is None else self.kind.form

    def blame(self, setting: str, message: str) -> None:
        """Add a problem with one setting of this entry."""
        self.files.problems.append(self.document.problem((*self.path, setting), message))

    def check(self) -> None:
        """Check the settings in combination."""
        kind = self.kind
        if kind is None:
            return
        for setting in SETTINGS:
            given = self.document.at((*self.path, setting)) is not None
            if given and setting not in kind.settings:
                takers = [row.name for row in BACKEND_KINDS.values() if setting in row.settings]
                self.blame(setting, f"is for speaks: {' or '.join(takers)}, not for {kind.name}; remove it")
            if not given and setting in kind.required:
                self.blame(setting, f"is missing: speaks: {kind.name} needs it. {DESCRIPTIONS[setting]}")
        for option in self.values["options"] or ():
            if option in NOT_OPTIONS:
                self.blame("options", f"{option} is not allowed here: write {NOT_OPTIONS[option]} beside speaks")
            elif kind.options is not None and option not in kind.options:
                self.blame(
                    "options",
                    f"{quote(option)} is not an option of a provider: set parameters of calls in the policy under "
                    f"params, secrets in key or in the provider's own variables{suggest(option, kind.options)}",
                )

    def spec(self, model: str, label: str, env: Mapping[str, str]) -> TargetSpec | None:
        """Return the entry as a value, with its secret and existing files; None after a problem."""
        path = self._existing("path") or self._existing("script")
        key = self._secret(env)
        values = self.values
        if any(value is INVALID for value in values.values()):
            return None
        return TargetSpec(
            label=label,
            speaks=values["speaks"],
            url=values["url"] or "",
            model=values["model"] or model,
            engine=values["engine"],
            key=key,
            adds_bos=values["adds_bos"],
            path=path,
            options=MappingProxyType(values["options"]),
            line=self.document.line(self.path),
        )

    def _existing(self, setting: str) -> Path | None:
        return existing(self.files, self.document, (*self.path, setting), self.values[setting])

    def _secret(self, env: Mapping[str, str]) -> Secret | None:
        reference = self.values["key"]
        if not reference:
            return None
        where = (*self.path, "key")
        return read_secret(reference, self.files, env, lambda message: self.document.problem(where, message))


def existing(files: Files, document: YamlDocument, where: KeyPath, value: Any) -> Path | None:
    """Return an absolute path; add a problem if it does not exist."""
    if not value:
        return None
    path = files.home / str(value)
    if not os.path.exists(path):  # ``Path.exists`` raises for some names
        message = f"there is nothing at {value}: the path is relative to {document.file}"
        files.problems.append(document.problem(where, message))
    return path
