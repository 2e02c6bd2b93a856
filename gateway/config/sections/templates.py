"""What does a template file say, and does it do what its examples promise?"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gateway.config.files.reader import Blame, Files, digest, digest_of, leads_to, listed
from gateway.core.errors import TemplateError
from gateway.template.registry import build, run_examples
from gateway.template.spec.template import TemplateSpec
from gateway.template.validation.template import SpecError, parse_spec

CHAT = TemplateSpec(
    name="chat",
    kind="chat",
    description="Messages as they are.",
    digest=digest(b"kind: chat\n")[:12],
)
"""The one template that needs no file."""


def read_template(files: Files, path: Path, name: str, blame: Blame, *, generates: bool = True) -> TemplateSpec | None:
    """Read, check and try one file; None when it has problems.

    ``generates``: False where the model is never asked: no role need generate, and no example can be tried then.
    """
    before = len(files.problems)
    document = files.document(path, blame)
    if document is None:
        return None
    try:
        beside = _Beside(files, path, lambda message: document.problem(("file",), message))
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


class _Beside:
    """The files that a template names; they lie in its folder or below."""

    def __init__(self, files: Files, path: Path, blame: Blame) -> None:
        self._files = files
        self._folder = path.parent
        self._blame = blame
        self.read: dict[str, bytes] = {}
        """What has been read, for the template's digest."""

    def fetch(self, name: str) -> bytes | None:
        """A file's bytes; None: there is none. Raises ``TemplateError`` for a path that leads out of the folder."""
        path = self._inside(name)
        if not os.path.lexists(path):
            self._files.looked_at[path] = None
            return None
        data = self._files.read(path, self._blame)
        if data is not None:
            self.read[name] = data
        return data

    def names(self, name: str) -> tuple[str, ...]:
        """The names in a folder; none: there is no such folder. Raises ``TemplateError`` as well."""
        path = self._inside(name)
        self._files.looked_at[path] = None
        return listed(path, name)

    def _inside(self, name: str) -> Path:
        path = self._folder / name
        if not leads_to(path).is_relative_to(leads_to(self._folder)):
            raise TemplateError(f"{name} leads out of the template's folder: put the file itself there")
        return path


def form(spec: TemplateSpec) -> Literal["text", "messages"]:
    """What the template makes: one string, or messages for an API."""
    return "messages" if spec.kind == "chat" or spec.api else "text"
