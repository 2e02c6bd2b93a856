"""Finds templates, policies and dataset prompts by name. Each file is read and checked once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

from gateway.config.schema.kinds import FILE_NAME
from gateway.config.snapshot import PolicySpec
from gateway.core.errors import ConfigError
from metatemplate.files.reader import POLICIES, PROMPTS, TEMPLATES, AddProblem, Files
from metatemplate.files.template_file import BUILT_IN, presets, read_template
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.words import quoted, suggest

if TYPE_CHECKING:
    from metatemplate.datasets.spec import PromptSpec

NOUN = {TEMPLATES: "template", POLICIES: "policy", PROMPTS: "prompt"}
READERS: Mapping[str, str] = {
    TEMPLATES: "metatemplate.files.template_file:read_template",
    POLICIES: "gateway.config.sections.policies:read_policy",
    PROMPTS: "metatemplate.files.prompt_file:read_prompt",
}
"""Folder → the function that reads its files, imported with the first file."""


@cache
def shipped_folder(name: str) -> Path:
    """Return the folder ``meta_templates`` or ``policies`` that comes with the gateway."""
    return presets() if name == TEMPLATES else shipped_data() / name


def shipped_data() -> Path:
    """Return the folder that contains templates, policies and the demo.

    In a wheel this is ``gateway/data``, in a checkout the root of the repository.
    """
    package = Path(str(resources.files("gateway")))
    packed = package / "data"
    return packed if packed.is_dir() else package.parent


class Library:
    """Templates and policies from the folders next to ``gateway.yaml``, or else from those shipped with the gateway."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._read: dict[tuple[str, str], Any] = {}
        """Folder and name of a file → the template, policy or prompt of the file. None for a file with problems."""

    def template(self, name: str, add_problem: AddProblem) -> TemplateSpec | None:
        """Return the template of that name. If the template is missing or invalid, add a problem and return None."""
        return BUILT_IN if name == BUILT_IN.name else self._load(TEMPLATES, name, add_problem)

    def policy(self, name: str, add_problem: AddProblem) -> PolicySpec | None:
        """Return the policy of that name. If the policy is missing or invalid, add a problem and return None."""
        return cast(PolicySpec | None, self._load(POLICIES, name, add_problem))

    def _load(self, folder: str, name: str, add_problem: AddProblem) -> Any:
        if (folder, name) not in self._read and (path := self._find(folder, name, add_problem)) is not None:
            self._read[folder, name] = resolve_name(READERS[folder])(self.files, path, name, add_problem)
        return self._read.get((folder, name))

    def _find(self, folder: str, name: str, add_problem: AddProblem) -> Path | None:
        """Return the file of a name, or add a problem and return None.

        The folder next to ``gateway.yaml`` takes precedence over the shipped folder.
        """
        if not FILE_NAME.fullmatch(name):
            more = _served_by(name, self.files.home) if folder == TEMPLATES else ""
            add_problem(
                f"{quoted(name)} is not a valid {NOUN[folder]} name; give the name of a file in {folder}/ "
                f'without .yaml (only lower-case letters, digits, ".", "_" and "-"){more}'
            )
            return None
        bases = (self.files.home / folder, shipped_folder(folder))
        for base in bases:
            path = base / f"{name}.yaml"
            if os.path.lexists(path):
                if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(base)):
                    return path
                add_problem(f"{folder}/{name}.yaml links to a file outside {folder}/; copy the file into {folder}/")
                return None
        known = {path.stem for base in bases for path in base.glob("*.yaml")}
        hint = suggest(name, known | {BUILT_IN.name} if folder == TEMPLATES else known)
        if folder == TEMPLATES and not hint:
            hint = _served_by(name, self.files.home)
        add_problem(f"no {NOUN[folder]} {quoted(name)}{hint}")
        return None

    def prompts(self) -> dict[str, PromptSpec]:
        """Return a mapping: name → prompt, for each file in ``prompts/`` next to ``gateway.yaml``."""
        found = {name: self._load(PROMPTS, name, add_problem) for name, add_problem in self._names(PROMPTS)}
        return {name: prompt for name, prompt in found.items() if prompt is not None}

    def check_folders(self, checked: Callable[[int], object]) -> None:
        """Read every template and policy in the folders next to ``gateway.yaml``, even if no model uses it.

        ``checked``: called with 1 after each file.
        """
        for folder, read in ((TEMPLATES, self.template), (POLICIES, self.policy)):
            for name, add_problem in self._names(folder):
                if folder == TEMPLATES and name == BUILT_IN.name:
                    add_problem(
                        f'this file is not used, because "{BUILT_IN.name}" is a built-in template; rename the file'
                    )
                else:
                    read(name, add_problem)
                checked(1)

    def _names(self, folder: str) -> Iterator[tuple[str, AddProblem]]:
        """Yield the name of each YAML file in a folder next to ``gateway.yaml``, and a function for its problems."""
        base = self.files.home / folder
        self.files.looked_at[base] = None
        for path in sorted(base.iterdir()) if base.is_dir() else ():
            if path.suffix == ".yml":
                self.files.add_problem(path)("this file is not used; rename it so that its name ends in .yaml")
            elif path.suffix == ".yaml" and not FILE_NAME.fullmatch(path.stem):
                rule = 'a file name has only lower-case letters, digits, ".", "_" and "-"'
                self.files.add_problem(path)(f"this file is not used, because {rule}; rename it")
            elif path.suffix == ".yaml":
                yield path.stem, self.files.add_problem(path)


def _served_by(model: str, home: Path) -> str:
    """Return which template a model needs, if the name of a model was written in place of a template."""
    from metatemplate.files.template_models import help_for

    return help_for(model, template_files(home))


def template_files(home: Path) -> list[Path]:
    """Return the file of every template, ordered by name.

    The folder in ``home`` takes precedence over the shipped folder. A link to a file that does not exist is left out.
    """
    bases = (shipped_folder(TEMPLATES), home / TEMPLATES)
    found = {path.stem: path for base in bases for path in base.glob("*.yaml") if path.exists()}
    return [found[name] for name in sorted(found)]


def is_template_file(name: str) -> bool:
    """Return whether ``name`` is the path of a template file. Otherwise it is the name of a template."""
    return name.endswith((".yaml", ".yml")) or os.sep in name


def find_template(name: str, *, generates: bool = True) -> TemplateSpec:
    """Return a template by the path of its file, or by its name in ``./meta_templates`` or the shipped folder.

    Raises ``ConfigError`` with all problems if the template is missing or not valid. ``generates``: passed to
    ``read_template`` if ``name`` is a path.
    """
    path = Path(name).absolute()
    if is_template_file(name):
        files = Files(path.parent)
        spec = read_template(files, path, path.stem, files.add_problem(path), generates=generates)
    else:
        files = Files(Path.cwd())
        spec = Library(files).template(name, files.add_problem(path))
    if spec is None:
        raise ConfigError(files.in_order())
    return spec
