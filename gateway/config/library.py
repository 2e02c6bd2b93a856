"""Finding templates and policies by name; each file is read and checked once."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.config import shipped
from gateway.config.files.reader import Files, ProblemMaker
from gateway.config.schema.names import FILE_NAME, quote, suggest
from gateway.config.sections.policies import read_policy
from gateway.config.sections.templates import CHAT, read_template
from gateway.config.shipped import POLICIES, TEMPLATES
from gateway.config.snapshot import PolicySpec
from gateway.template.spec import TemplateSpec

NOUN = {TEMPLATES: "template", POLICIES: "policy"}


class Library:
    """The folders beside ``gateway.yaml``, then the shipped folders."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.templates: dict[Path, TemplateSpec | None] = {}
        self.policies: dict[Path, PolicySpec | None] = {}

    def template(self, name: str, blame: ProblemMaker) -> TemplateSpec | None:
        """Return the template of that name; None, and a problem, if it is missing or invalid."""
        path = self.find(TEMPLATES, name, blame) if name != CHAT.name else None
        if path is None:
            return CHAT if name == CHAT.name else None
        if path not in self.templates:
            self.templates[path] = read_template(self.files, path, name, blame)
        return self.templates[path]

    def policy(self, name: str, blame: ProblemMaker) -> PolicySpec | None:
        """Return the policy of that name; None, and a problem, if it is missing or invalid."""
        path = self.find(POLICIES, name, blame)
        if path is None:
            return None
        if path not in self.policies:
            self.policies[path] = read_policy(self.files, path, name, blame)
        return self.policies[path]

    def find(self, folder: str, name: str, blame: ProblemMaker) -> Path | None:
        """Return the file of a name: first beside ``gateway.yaml``, then among the shipped files."""
        if not FILE_NAME.fullmatch(name):
            self.files.problems.append(
                blame(
                    f"{quote(name)} is not a {NOUN[folder]} name: a file in {folder}/ without its .yaml, "
                    'of lower-case letters, digits, ".", "_" and "-"',
                ),
            )
            return None
        for base in self.bases(folder):
            path = base / f"{name}.yaml"
            if not os.path.lexists(path):
                continue
            if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(base)):
                return path
            self.files.problems.append(
                blame(f"{folder}/{name}.yaml leads out of its folder: put the file itself there")
            )
            return None
        self.files.problems.append(blame(f"no {NOUN[folder]} {quote(name)}{suggest(name, self.names(folder))}"))
        return None

    def bases(self, folder: str) -> tuple[Path, ...]:
        """Return the folders in which names are looked up, in order."""
        return (self.files.home / folder, shipped.folder(folder))

    def names(self, folder: str) -> list[str]:
        """Return all valid names."""
        found = {path.stem for base in self.bases(folder) for path in base.glob("*.yaml")}
        return sorted(found | {CHAT.name} if folder == TEMPLATES else found)

    def check_folders(self) -> None:
        """Read every file in the folders beside ``gateway.yaml``, also those that no model uses."""
        for folder, read in ((TEMPLATES, self.template), (POLICIES, self.policy)):
            base = self.files.home / folder
            for path in sorted(base.iterdir()) if base.is_dir() else ():
                blame = self.files.blame(path)
                if path.suffix == ".yml":
                    self.files.problems.append(blame("is not read: rename it to end in .yaml"))
                elif path.suffix == ".yaml" and folder == TEMPLATES and path.stem == CHAT.name:
                    self.files.problems.append(
                        blame(f'is never used: "{CHAT.name}" means messages as they are; rename it')
                    )
                elif path.suffix == ".yaml":
                    read(path.stem, blame)
