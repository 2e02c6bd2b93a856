"""The ``models`` section: each model with its template, policy and targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config.files.reader import Files, ProblemMaker
from gateway.config.files.yaml import Path as KeyPath
from gateway.config.files.yaml import YamlDocument
from gateway.config.library import Library
from gateway.config.schema.names import MODEL_NAME, quote
from gateway.config.sections.policies import RESERVED
from gateway.config.sections.targets import TargetEntry, existing
from gateway.config.sections.templates import CHAT, output_form
from gateway.config.snapshot import ModelSpec
from gateway.template.spec import TemplateSpec

FORM_WORDS = {"text": "one string", "messages": "messages"}


def read_models(
    document: YamlDocument,
    values: Mapping[str, Any],
    library: Library,
    env: Mapping[str, str],
) -> dict[str, ModelSpec]:
    """Return the valid models; problems are added to the library's files."""
    if not document.at(("models",)):
        message = "names no model: give at least one, with its template and targets (docs/configuration.md)"
        library.files.problems.append(document.problem(("models",), message))
        return {}
    found = {name: _model(document, name, section, library, env) for name, section in values.items()}
    return {name: model for name, model in found.items() if model is not None}


def _model(
    document: YamlDocument,
    name: str,
    values: Mapping[str, Any],
    library: Library,
    env: Mapping[str, str],
) -> ModelSpec | None:
    files, path = library.files, ("models", name)
    _name(files, document, name)
    template = policy = None
    if values["template"]:
        template = library.template(values["template"], _problem_at(document, (*path, "template")))
    if values["policy"]:
        policy = library.policy(values["policy"], _problem_at(document, (*path, "policy")))
    entries = [
        TargetEntry(document, files, (*path, "targets", position), target)
        for position, target in enumerate(values["targets"] or ())
    ]
    if values["targets"] == []:
        message = "has no targets: add at least one entry with speaks"
        files.problems.append(document.problem((*path, "targets"), message))
    for entry in entries:
        entry.check()
    _forms(document, path, files, entries, template)
    targets = [entry.spec(name, f"{name}/{position}", env) for position, entry in enumerate(entries)]
    for parameter in values["omit"] or ():
        if parameter in RESERVED:
            message = f"{quote(parameter)} cannot be left out: omit takes parameters such as temperature"
            files.problems.append(document.problem((*path, "omit"), message))
    tokenizer = existing(files, document, (*path, "tokenizer"), values["tokenizer"])
    if template is None or policy is None:
        return None
    return ModelSpec(
        name=name,
        template=template,
        policy=policy,
        targets=tuple(target for target in targets if target is not None),
        tokenizer=tokenizer,
        max_model_len=values["max_model_len"],
        omit=tuple(values["omit"] or ()),
        description=values["description"],
        source=document.file,
        line=document.line(path),
    )


def _problem_at(document: YamlDocument, path: KeyPath) -> ProblemMaker:
    return lambda message: document.problem(path, message)


def _name(files: Files, document: YamlDocument, name: str) -> None:
    """Check a model name; it is used in headers, paths (``/{model}/v1/…``) and metric labels."""
    path = ("models", name)
    if not MODEL_NAME.fullmatch(name):
        message = "is not a valid model name: use 1 to 128 ASCII letters, digits and signs, without spaces"
    elif name[0] == "/" or name[-1] == "/" or "//" in name:
        message = "is not a valid model name: a slash must have a name before and after it"
    else:
        return
    files.problems.append(document.problem(path, message))


def _forms(
    document: YamlDocument,
    path: KeyPath,
    files: Files,
    entries: list[TargetEntry],
    template: TemplateSpec | None,
) -> None:
    """Check that template and targets of a model use the same form: one string, or messages."""
    known = [entry for entry in entries if entry.form is not None]
    if not known:
        return
    first = known[0]
    for other in known[1:]:
        if other.form != first.form:
            other.blame(
                "speaks",
                f"{other.speaks} takes {FORM_WORDS[other.form or '']}, but the first target ({first.speaks}) "
                f"takes {FORM_WORDS[first.form or '']}: make it a separate model",
            )
    if template is None or output_form(template) == first.form:
        return
    files.problems.append(document.problem((*path, "template"), _mismatch(template, first)))


def _mismatch(template: TemplateSpec, target: TargetEntry) -> str:
    name = quote(template.name)
    if target.form == "messages":
        return (
            f"{name} makes one string, but speaks: {target.speaks} takes messages: "
            f"write template: {CHAT.name}, or set the target to speaks: completions"
        )
    makes = "leaves messages as they are" if template.name == CHAT.name else "makes messages (its roles carry api_role)"
    return (
        f"{name} {makes}, but speaks: {target.speaks} takes one string: "
        "name the template the model was trained on, or set the target to speaks: chat"
    )
