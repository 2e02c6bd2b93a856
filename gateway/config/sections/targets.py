"""Checks one entry of ``targets`` against the settings of its kind, and reads its secret and paths."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.kinds import SecretReference
from gateway.config.schema.settings import GATEWAY
from gateway.config.schema.validation import ReadSecret, is_whole
from gateway.config.snapshot import ModelSpec, TargetSpec
from gateway.core.errors import Problem
from metatemplate.files.reader import Files
from metatemplate.files.yaml import YamlDocument, dotted
from metatemplate.values.json_values import KeyPath, part
from metatemplate.values.words import quoted, suggest

NOT_OPTIONS = {
    **dict.fromkeys(("api_key", "key", "token", "password"), 'key ("env:NAME")'),
    **dict.fromkeys(("api_base", "base_url", "url"), "url"),
    "model": "model",
}
"""Name that is refused under ``options`` → the setting to use instead."""

OF_LITELLM = "for all its targets, LiteLLM reads HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE of the environment"
SETTINGS = tuple(dict.fromkeys(name for kind in BACKEND_KINDS.values() for name in kind.settings))
"""All settings that only some kinds of target have."""

TOKEN_CHARACTERS = re.compile(r"[!-~]+")
"""Matches the characters that a bearer token may contain."""


class TargetEntry:
    """One entry of ``targets`` while it is checked."""

    def __init__(self, document: YamlDocument, files: Files, path: KeyPath, target: TargetSpec) -> None:
        """``target``: the settings of the entry, some of which may be ``INVALID``."""
        self._document = document
        self._files = files
        self._path = path
        self._target = target
        self.speaks = str(target.speaks or "")
        """The kind of target. Empty if missing or unknown."""
        self.form = BACKEND_KINDS[self.speaks].form if self.speaks else None
        """The form of prompt: ``text`` or ``messages``. None if the kind accepts both forms or is unknown."""

    def add_problem(self, setting: str, message: str) -> None:
        """Add a problem with one setting of this entry."""
        self._document.refuse((*self._path, setting), message)

    def check(self) -> None:
        """Check that the settings of the entry are the settings of its kind, and add a problem for each mistake."""
        if not self.speaks:
            return
        kind = BACKEND_KINDS[self.speaks]
        for setting in SETTINGS:
            given = self._document.has((*self._path, setting))
            if given and setting not in kind.settings:
                takers = [row.name for row in BACKEND_KINDS.values() if setting in row.settings]
                do = OF_LITELLM if kind.name == "litellm" and setting in ("proxy", "ca") else "remove it"
                self.add_problem(setting, f"is a setting of {' or '.join(takers)} targets, not of {kind.name}; {do}")
            # For litellm targets, LiteLLM adds the path of each provider.
            needs_path = given and setting == "url" and kind.name != "litellm"
            if needs_path and self._target.url and not urlsplit(self._target.url).path:
                note = "has no path; most servers accept requests under /v1, so write /v1 at the end of the address"
                self._files.notes.append(self._document.problem((*self._path, setting), note))
            if not given and setting in kind.required:
                from gateway.config.schema.json_schema import json_schema

                about = part(json_schema(GATEWAY), (*self._path, setting))["description"]
                article = "an" if kind.name == "embedded" else "a"
                self.add_problem(setting, f"is missing; {article} {kind.name} target needs it. {about}")
        for option in self._target.options or ():
            if option in NOT_OPTIONS:
                self.add_problem("options", f"{option} is not an option; set {NOT_OPTIONS[option]} at the target")
            elif kind.options is not None and option not in kind.options:
                self.add_problem(
                    "options",
                    f"{quoted(option)} is not an option of {kind.name} targets{suggest(option, kind.options)}; "
                    "set parameters of calls in the policy, under params",
                )

    def spec(self, model: str, label: str) -> TargetSpec | None:
        """Return the target with its label and existing files, or None after a problem. ``model``: the default."""
        target = self._target
        path = existing(self._files, self._document, (*self._path, "path"), target.path)
        script = existing(self._files, self._document, (*self._path, "script"), target.script)
        file = existing(self._files, self._document, (*self._path, "file"), target.file)
        if not is_whole(target):
            return None
        line = self._document.line(self._path)
        target = replace(
            target, label=label, model=target.model or model, path=path, script=script, file=file, line=line
        )
        if self.speaks == "litellm":
            self._check_pin(target)
        return target

    def _check_pin(self, target: TargetSpec) -> None:
        from gateway.config.schema.aggregators import pin_fields

        body, known = target.options.get("extra_body", {}), pin_fields(target)
        if not (isinstance(body, dict) and body.keys() <= known):
            only = f"{', '.join(sorted(known))} of this aggregator" if known else "the pin of an aggregator"
            self.add_problem(
                "options", f"extra_body may contain only {only}; set parameters of calls in the policy, under params"
            )


def existing(files: Files, document: YamlDocument, where: KeyPath, value: Any) -> Path | None:
    """Return the absolute path for a setting, or None without a value. Adds a problem if the path does not exist."""
    if not value:
        return None
    path = files.home / str(value)
    if not os.path.exists(path):  # ``Path.exists`` raises for some names
        what = f"the path is relative to the folder of {document.file}, and the gateway downloads nothing"
        document.refuse(where, f"no file or folder {value}; {what}")
    return path


def secret_reader(files: Files, env: Mapping[str, str]) -> ReadSecret:
    """Return a function that reads a secret from an environment variable or a file, or raises ``ValueError``.

    The message names the variable or the file. It never contains the value of the secret.
    """

    def read(reference: SecretReference) -> SecretStr:
        if reference.where == "env":
            text, source = env.get(reference.name), f"the environment variable {reference.name}"
            if text is None:
                raise ValueError(f"the environment variable {reference.name} is not set; set it and start again")
        else:
            problems: list[str] = []
            data = files.read(files.home / reference.name, problems.append)
            if data is None:
                raise ValueError("".join(problems))
            text, source = data.decode("latin-1"), f"the file {reference.name}"
        # A file usually ends with a line break that does not belong to the secret.
        text = text.strip()
        if not TOKEN_CHARACTERS.fullmatch(text):
            what = "contains blanks or characters that are not allowed in a header" if text else "is empty"
            raise ValueError(f"{source} {what}; it must contain only the key")
        return SecretStr(text)

    return read


def locate(problem: Problem, model: ModelSpec, position: int) -> Problem:
    """Return a problem of an engine, script, tokenizer or policy with its place in ``gateway.yaml``.

    The place is the line and the setting that name the file or the target.
    """
    position = next((at for at, one in enumerate(model.targets) if one.label == problem.file), position)
    target = model.targets[position]
    if problem.key in ("tokenizer", "policy"):
        where = dotted(("models", model.name, problem.key))
        return Problem(model.source, model.line, where, f"{problem.file}: {problem.message}")
    where = dotted(("models", model.name, "targets", position))
    if problem.file == target.label:  # a problem with the entry itself
        return Problem(model.source, target.line, f"{where}.{problem.key}", problem.message)
    return Problem(model.source, target.line, f"{where}.{BACKEND_KINDS[target.speaks].file_setting}", str(problem))
