"""One entry of ``targets``, checked against the settings of its kind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gateway.config.files.reader import Files
from gateway.config.files.secret_files import read_secret
from gateway.config.files.yaml import Document
from gateway.config.files.yaml import Path as KeyPath
from gateway.config.schema.names import quote, suggest
from gateway.config.schema.secrets import Secret
from gateway.config.schema.settings import ROWS
from gateway.config.schema.validation import INVALID
from gateway.config.snapshot import TargetSpec

MUST: Final = "must"
MAY: Final = "may"

# Setting → the kinds of targets that take it.
TAKES: Mapping[str, Mapping[str, str]] = {
    "url": {"completions": MUST, "chat": MUST, "litellm": MAY},
    "model": {"completions": MAY, "chat": MAY, "litellm": MUST, "scripted": MAY},
    "engine": {"completions": MAY, "chat": MAY},
    "key": {"completions": MAY, "chat": MAY, "litellm": MAY},
    "adds_bos": {"completions": MAY, "embedded": MAY},
    "path": {"embedded": MUST},
    "script": {"scripted": MUST},
    "options": {"embedded": MAY, "litellm": MAY},
}

FORMS: Mapping[str, str | None] = {
    "completions": "text",
    "embedded": "text",
    "chat": "messages",
    "litellm": "messages",
    "scripted": None,
}
"""The form that a target takes: one string, messages, or (None) either."""

NOT_OPTIONS = {
    **dict.fromkeys(("api_key", "key", "token", "password"), 'key: "env:NAME"'),
    **dict.fromkeys(("api_base", "base_url", "url"), "url"),
    "model": "model",
}
"""Options that have their own setting."""

PROVIDER_OPTIONS = (
    "api_version",
    "aws_bedrock_runtime_endpoint",
    "aws_profile_name",
    "aws_region_name",
    "aws_role_name",
    "aws_session_name",
    "organization",
    "region_name",
    "safety_settings",
    "thinking",
    "vertex_location",
    "vertex_project",
)
"""Options of ``litellm`` targets. LiteLLM accepts any name; a wrong one would only fail calls or be dropped."""

SAYS = {row.name.rpartition(".")[2]: row.says for row in ROWS if row.name.startswith("models.<name>.targets[]")}


class TargetEntry:
    """One entry of ``targets`` during validation."""

    def __init__(self, document: Document, files: Files, path: KeyPath, values: Mapping[str, Any]) -> None:
        self.document = document
        self.files = files
        self.path = path
        self.values = values

    @property
    def speaks(self) -> str:
        """The kind of target; empty if missing or unknown."""
        return str(self.values["speaks"] or "")

    @property
    def form(self) -> str | None:
        """``text``, ``messages``, or None if it takes either or is unknown."""
        return FORMS.get(self.speaks)

    def blame(self, setting: str, message: str) -> None:
        """Add a problem with one setting of this entry."""
        self.files.problems.append(self.document.problem((*self.path, setting), message))

    def check(self) -> None:
        """Check the settings in combination."""
        if not self.speaks:
            return
        for setting, takers in TAKES.items():
            given = self.document.at((*self.path, setting)) is not None
            takes = takers.get(self.speaks)
            if given and takes is None:
                self.blame(setting, f"is for speaks: {' or '.join(takers)}, not for {self.speaks}; take it out")
            if not given and takes == MUST:
                self.blame(setting, f"is missing: speaks: {self.speaks} needs it. {SAYS[setting]}")
        for option, setting in self._misplaced():
            self.blame("options", f"{option} cannot stand here: write {setting} beside speaks")
        for option in self._unknown():
            self.blame(
                "options",
                f"{quote(option)} is no option of a provider: parameters of calls stand in the policy under params, "
                f"secrets in key or in the provider's own variables{suggest(option, PROVIDER_OPTIONS)}",
            )

    def _misplaced(self) -> Iterator[tuple[str, str]]:
        for option in self.values["options"] or ():
            if option in NOT_OPTIONS:
                yield option, NOT_OPTIONS[option]

    def _unknown(self) -> Iterator[str]:
        """Yield unknown options; those of embedded targets are checked by ``backend/embedded/options.py``."""
        if self.speaks == "litellm":
            yield from (name for name in self.values["options"] or () if name not in {*PROVIDER_OPTIONS, *NOT_OPTIONS})

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


def existing(files: Files, document: Document, where: KeyPath, value: Any) -> Path | None:
    """Return an absolute path; add a problem if it does not exist."""
    if not value:
        return None
    path = files.home / str(value)
    if not os.path.exists(path):  # ``Path.exists`` raises for some names
        message = f"there is nothing at {value}: the path is relative to {document.file}"
        files.problems.append(document.problem(where, message))
    return path
