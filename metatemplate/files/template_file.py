"""Reads and checks template files, and runs their examples."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from metatemplate.files.meta import SCORES_ONLY
from metatemplate.files.reader import TEMPLATES, AddProblem, Files, FolderFiles, digest, digest_of
from metatemplate.files.template import SpecError, parse_spec
from metatemplate.templates.registry import build, run_examples
from metatemplate.templates.spec import TemplateSpec

BUILT_IN = TemplateSpec(
    name="chat", kind="chat", description="Messages, unchanged.", digest=digest(b"kind: chat\n")[:12]
)
"""The template that sends messages unchanged. It is the only template without a file."""
PACKAGE = Path(__file__).parents[1]


def presets() -> Path:
    """Return the folder of the shipped templates: ``presets`` in a wheel, ``meta_templates`` in a checkout."""
    packed = PACKAGE / "presets"
    return packed if packed.is_dir() else PACKAGE.parent / TEMPLATES


def read_template(
    files: Files, path: Path, name: str, add_problem: AddProblem, *, generates: bool = True
) -> TemplateSpec | None:
    """Read the template of a file and run its examples. Returns None if the file has problems.

    ``generates``: False if the template only renders complete conversations. Then ``round`` may be missing.
    """
    before = len(files.problems)
    document = files.document(path, add_problem)
    if document is None:
        return None
    at_file = partial(document.refuse, ("file",))
    beside = FolderFiles(path.parent, lambda found, _: files.read(found, at_file), files.looked_at)
    try:
        spec = parse_spec(document.value, name=name, generates=generates, fetch=beside.fetch, names=beside.names)
        read = {name: beside.read[name] for name in (spec.jinja.files if spec.jinja is not None else ())}
        own = files.contents[path] or b""
        spec = replace(spec, digest=(digest_of({"": own, **read}) if read else digest(own))[:12])
    except SpecError as error:
        for problem in error.problems:
            document.refuse(problem.path, problem.message)
        return None
    for problem in run_examples(build(spec)) if spec.kind != "meta" or spec.round else ():
        document.refuse(problem.path, problem.message)
    if spec.scores_only and generates:
        files.notes.append(document.problem(("round",), SCORES_ONLY))
    files.notes += [document.problem(("file",), note) for note in (spec.jinja.notes if spec.jinja is not None else ())]
    for key, roles in (("round", spec.round), ("reserved_roles", spec.reserved_roles)):
        for number, role in enumerate(roles):
            if not isinstance(role, str) and "\\n" in f"{role.begin}{role.end}":
                note = 'contains a backslash followed by n; for a line break, write "\\n" in double quotes'
                files.notes.append(document.problem((key, number), note))
    return spec if len(files.problems) == before else None


def output_form(spec: TemplateSpec) -> Literal["text", "messages"]:
    """Return the output form of the template: one string, or messages."""
    return "messages" if spec.makes_messages else "text"
