"""Template files: reading, checking and running their examples."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gateway.config.files.reader import Files, ProblemMaker, digest, digest_of, folder_names, resolve_links
from gateway.core.errors import TemplateError
from gateway.template.registry import build, run_examples
from gateway.template.spec import TemplateSpec
from gateway.template.validation.template import SpecError, parse_spec

CHAT = TemplateSpec(
    name="chat",
    kind="chat",
    description="Messages as they are.",
    digest=digest(b"kind: chat\n")[:12],
)
"""The only template without a file."""


def read_template(
    files: Files, path: Path, name: str, blame: ProblemMaker, *, generates: bool = True
) -> TemplateSpec | None:
    """Return the template of a file after running its examples; None if it has problems.

    ``generates``: False for templates that are only compared; then no role needs ``generate`` and examples are not run.
    """
    before = len(files.problems)
    document = files.document(path, blame)
    if document is None:
        return None
    try:
        beside = _TemplateFiles(files, path, lambda message: document.problem(("file",), message))
        spec = parse_spec(document.value, name=name, generates=generates, fetch=beside.fetch, names=beside.names)
        read = {name: beside.read[name] for name in (spec.jinja.files if spec.jinja is not None else ())}
        own = files.contents[path] or b""
        spec = replace(spec, digest=(digest_of({"": own, **read}) if read else digest(own))[:12])
    except SpecError as error:
        files.problems.extend(document.problem(problem.path, problem.message) for problem in error.problems)
        return None
    if generates or spec.generating is not None:
        files.problems.extend(document.problem(problem.path, problem.message) for problem in run_examples(build(spec)))
    files.notes.extend(
        [document.problem(("file",), note) for note in (spec.jinja.notes if spec.jinja is not None else ())]
    )
    return spec if len(files.problems) == before else None


class _TemplateFiles:
    """The files that a template names; all lie in its folder or below."""

    def __init__(self, files: Files, path: Path, blame: ProblemMaker) -> None:
        self._files = files
        self._folder = path.parent
        self._blame = blame
        self.read: dict[str, bytes] = {}
        """Contents of the files read, for the template's digest."""

    def fetch(self, name: str) -> bytes | None:
        """Return a file's bytes, or None. Raises ``TemplateError`` for a path outside the folder."""
        path = self._inside(name)
        if not os.path.lexists(path):
            self._files.looked_at[path] = None
            return None
        data = self._files.read(path, self._blame)
        if data is not None:
            self.read[name] = data
        return data

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names in a folder, empty if it does not exist. Raises ``TemplateError`` like ``fetch``."""
        path = self._inside(name)
        self._files.looked_at[path] = None
        return folder_names(path, name)

    def _inside(self, name: str) -> Path:
        path = self._folder / name
        if not resolve_links(path).is_relative_to(resolve_links(self._folder)):
            raise TemplateError(f"{name} leads out of the template's folder: put the file itself there")
        return path


def output_form(spec: TemplateSpec) -> Literal["text", "messages"]:
    """Return the output form of the template: one string, or messages."""
    return "messages" if spec.kind == "chat" or spec.api else "text"
