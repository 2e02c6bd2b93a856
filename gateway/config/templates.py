"""What does a template file say, and does it do what its examples promise?"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gateway.config.files import Blame, Files, digest
from gateway.template.build import build, run_examples
from gateway.template.check import SpecError, parse_spec
from gateway.template.spec import TemplateSpec

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
        fingerprint = digest(files.contents[path] or b"")[:12]
        spec = parse_spec(document.value, name=name, digest=fingerprint, generates=generates)
    except SpecError as error:
        files.problems.extend(document.problem(problem.path, problem.message) for problem in error.problems)
        return None
    if generates or spec.generating is not None:
        files.problems.extend(document.problem(problem.path, problem.message) for problem in run_examples(build(spec)))
    return spec if len(files.problems) == before else None


def form(spec: TemplateSpec) -> Literal["text", "messages"]:
    """What the template makes: one string, or messages for an API."""
    return "messages" if spec.kind == "chat" or spec.api else "text"
