"""Reads the ``models`` section: each model with its template, policy and targets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gateway.config.library import Library
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.kinds import MODEL_NAME
from gateway.config.sections.parameters import RESERVED
from gateway.config.sections.targets import TargetEntry, existing
from gateway.config.snapshot import GatewaySettings, ModelSettings, ModelSpec, PolicySpec, TargetSpec
from metatemplate.files.reader import Files
from metatemplate.files.template_file import BUILT_IN, output_form
from metatemplate.files.yaml import YamlDocument
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.json_values import KeyPath
from metatemplate.values.words import quoted, suggest

FORM_WORDS = {"text": "one string", "messages": "messages"}


def read_models(document: YamlDocument, settings: GatewaySettings, library: Library) -> dict[str, ModelSpec]:
    """Return the valid models, and add problems to the document. Sections of ``settings`` may be ``INVALID``."""
    if settings.models == {}:
        message = "contains no model; add at least one, with a template and targets (gateway docs configuration)"
        document.refuse(("models",), message)
    sections = settings.models or {}
    found = {name: _model(document, name, section, library, tuple(sections)) for name, section in sections.items()}
    models = {name: model for name, model in found.items() if model is not None}
    if any({"network", "proxy", "proxy_auth", "ca"} & {*path} for path in document.lines):
        from gateway.config.sections.network import read_network

        models = read_network(document, library.files, settings.network, models)
    return models


def _model(
    document: YamlDocument, name: str, settings: ModelSettings, library: Library, names: tuple[str, ...]
) -> ModelSpec | None:
    """Return a model, or None if there is a problem with the model's template or policy."""
    path = ("models", name)
    _check_name(document, name)
    template = policy = None
    if settings.template:
        template = library.template(settings.template, partial(document.refuse, (*path, "template")))
    if settings.policy:
        policy = library.policy(settings.policy, partial(document.refuse, (*path, "policy")))
    targets = _targets(document, name, settings, library.files, template, policy)
    for parameter in settings.omit or ():
        if parameter in RESERVED:
            message = f"{quoted(parameter)} cannot be omitted; list only parameters such as temperature"
            document.refuse((*path, "omit"), message)
    _check_fallback(document, library.files, path, settings.fallback or (), names, policy)
    tokenizer = existing(library.files, document, (*path, "tokenizer"), settings.tokenizer)
    if template is None or policy is None:
        return None
    if template.kind == "prompter" and any(BACKEND_KINDS[target.speaks].form == "messages" for target in targets):
        template = template.for_messages()
    return ModelSpec(
        name=name,
        template=template,
        policy=policy,
        targets=targets,
        tokenizer=tokenizer,
        max_model_len=settings.max_model_len,
        fallback=settings.fallback,
        omit=settings.omit,
        description=settings.description,
        source=document.file,
        line=document.line(path),
    )


def _check_name(document: YamlDocument, name: str) -> None:
    # The name is used in headers, paths (``/{model}/v1/…``) and metric labels.
    if not MODEL_NAME.fullmatch(name):
        what = "use 1 to 128 ASCII letters, digits and signs, without spaces"
        document.refuse(("models", name), f"is not a valid model name; {what}")
    elif "" in name.split("/"):
        document.refuse(("models", name), "is not a valid model name; write a name before and after each slash")
    elif name.split("/")[0] == "run":
        message = "cannot be the name of a model, because /run/NAME/v1 in a path names a run; rename the model"
        document.refuse(("models", name), message)


def _targets(
    document: YamlDocument,
    name: str,
    settings: ModelSettings,
    files: Files,
    template: TemplateSpec | None,
    policy: PolicySpec | None,
) -> tuple[TargetSpec, ...]:
    """Return the valid targets of a model, and add problems to the document."""
    path: KeyPath = ("models", name, "targets")
    if settings.targets == ():
        document.refuse(path, "has no targets; add at least one entry with the setting speaks")
    entries = [
        TargetEntry(document, files, (*path, number), target) for number, target in enumerate(settings.targets or ())
    ]
    for entry in entries:
        entry.check()
    _check_forms(document, path[:-1], entries, template)
    targets = [entry.spec(name, f"{name}/{number}") for number, entry in enumerate(entries)]
    if policy is not None and policy.delivery.providers == "pinned":
        from gateway.config.schema.aggregators import unpinned

        for entry, target in zip(entries, targets, strict=True):
            if target is not None and (problem := unpinned(target)):
                entry.add_problem("model", f"{problem} (policy {policy.name}, delivery.providers: pinned)")
    return tuple([target for target in targets if target is not None])


def _check_fallback(
    document: YamlDocument,
    files: Files,
    path: KeyPath,
    fallback: Sequence[str],
    names: Sequence[str],
    policy: PolicySpec | None,
) -> None:
    """Check the models that ``fallback`` names. ``names``: all configured models.

    Adds a note if the policy allows fewer attempts than there are models.
    """
    where = (*path, "fallback")
    for other in fallback:
        if other == path[-1]:
            document.refuse(where, "names the model itself; name other models")
        elif other not in names:
            document.refuse(where, f"no model {quoted(other)}{suggest(other, names)}")
    if policy is None or not fallback:
        return
    if not policy.delivery.fallback:
        message = f"is not allowed by the policy {quoted(policy.name)}; set delivery.fallback: true in this policy"
        document.refuse(where, message)
    attempts = policy.delivery.retry.attempts
    if left_out := fallback[attempts - 1 :]:
        note = (
            f"leaves no attempt for {', '.join(left_out)}, because each model needs one and policy {policy.name} has "
            f"delivery.retry.attempts: {attempts}; allow {len(fallback) + 1} attempts, or name fewer models"
        )
        files.notes.append(document.problem(where, note))


def _check_forms(
    document: YamlDocument, path: KeyPath, entries: list[TargetEntry], template: TemplateSpec | None
) -> None:
    """Check that a model's template and targets use the same form of prompt: one string, or messages."""
    known = [entry for entry in entries if entry.form is not None]
    if not known:
        return
    first = known[0]
    for other in known[1:]:
        if other.form != first.form:
            other.add_problem(
                "speaks",
                f"{other.speaks} needs {FORM_WORDS[other.form or '']}, but the first target ({first.speaks}) "
                f"needs {FORM_WORDS[first.form or '']}; move this target to another model",
            )
    if template is not None and template.prompter is not None:
        if first.form == "text" and template.prompter.default_tools and template.tools is None:
            document.refuse(
                (*path, "template"),
                f"{quoted(template.name)} has default_tools and no `tools`, so its targets must accept messages; "
                f"add `tools: {{parser: lazyllm}}` to the template, or write `speaks: chat` at the targets",
            )
        if first.form == "text" and template.prompter.history_messages:
            document.refuse(
                (*path, "template"),
                f"{quoted(template.name)} has history_messages, so its targets must accept messages; "
                "write pairs under `history` in the template, or write `speaks: chat` at the targets",
            )
        return
    if template is None or output_form(template) == first.form:
        return
    if first.form == "messages":
        makes, instead = (
            "makes one string",
            f"write `template: {BUILT_IN.name}`, or `speaks: completions` at the targets",
        )
    else:
        instead = "choose the template with which the model was trained, or write `speaks: chat` at the targets"
        is_chat = template.name == BUILT_IN.name
        makes = "passes messages unchanged" if is_chat else "makes messages (its roles have api_role)"
    needs = f"`speaks: {first.speaks}` needs {FORM_WORDS[first.form or '']}"
    document.refuse((*path, "template"), f"{quoted(template.name)} {makes}, but {needs}; {instead}")
