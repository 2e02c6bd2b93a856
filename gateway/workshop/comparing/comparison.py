"""Finds the inputs of ``gateway parity`` (the template, its reference and the tokenizer) and compares them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.options import CommandError
from gateway.cli.rendering import find_any, find_model, route_of
from gateway.cli.terminal import progress
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import ModelSpec, Snapshot
from gateway.core.errors import CONFIG_FAILED, UnsupportedParameter
from gateway.workshop.chat_folders import CHAT_TEMPLATE_FILES, chat_template_in, folder_of, read_chat_folder
from gateway.workshop.comparing.engine_bos import describe_bos, engine_bos_of, tokenizer_bos
from gateway.workshop.comparing.parity_options import ParityOptions
from gateway.workshop.parity.cases import Case, matrix
from gateway.workshop.parity.compare import CaseResult, compare
from gateway.workshop.parity.sides import Side, chat_reference, side_of
from metatemplate.chat_templates.folder import DEFAULT
from metatemplate.errors import InvalidFile
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from metatemplate.templates.stops import stop_strings
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.prompt import Bos


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of all cases, and descriptions of the templates and tokenizer that were used."""

    ours: str
    reference: str
    engine: str
    """A description of the renderer of the reference."""
    bos: str
    tokenizer: str
    results: tuple[CaseResult, ...]
    tokens: Tokenizer | None = None
    """The tokenizer, with which tokens are shown as text. None: only bytes were compared."""
    notes: tuple[str, ...] = ()
    """Notes on files of one template that contradict each other. Each note names the file that is used."""


@dataclass(frozen=True, slots=True)
class _Reference:
    template: Template | Side
    name: str
    engine: str
    bos: Bos | None
    """The ``bos`` of a template of the gateway; None: the reference is a chat template, which writes any BOS itself."""
    bos_token: str
    special_tokens: tuple[str, ...]
    folder: Path | None = None
    notes: tuple[str, ...] = ()


def compare_templates(options: ParityOptions, snapshot: Snapshot | None) -> Comparison:
    """Render and compare all cases. Raises ``CommandError`` for options that cannot be used, and ``ConfigError``."""
    model = find_model(options.model, options.template, snapshot)
    route, spec = route_of(model), model.template
    configured = model if options.template is None else None
    reference = _find_reference(options, configured, spec, snapshot)
    tokens, tokenizer = _find_tokenizer(options.tokenizer, model, route.tokens, reference.folder)
    bos_token = reference.bos_token or spec.bos_text or tokenizer_bos(tokens)
    engine_bos = engine_bos_of(configured, tokens)
    adds_bos, adds_bos_on_request = bool(engine_bos.by_default and bos_token), engine_bos.on_request is not False
    try:
        ours, theirs = [
            side_of(template, adds_bos=adds_bos, adds_bos_on_request=adds_bos_on_request)
            for template in (route.template, reference.template)
        ]
    except UnsupportedParameter as error:
        raise CommandError(error.message) from None
    with progress("comparing", _select_cases(matrix(reference.special_tokens), options.cases)) as cases:
        results = compare(
            ours,
            theirs,
            cases,
            bos_token=bos_token,
            tokenize=None if tokens is None else lambda text: tokens.tokenize(text, False),
        )
    quoted_bos = f'"{bos_token}"' if bos_token else "text not known"
    return Comparison(
        ours=f"{model.name} ({_identity(spec)})" if configured is not None else _identity(spec),
        reference=reference.name,
        engine=reference.engine,
        bos=f"{quoted_bos}; ours: {describe_bos(spec.bos, engine_bos)}; "
        f"reference: {describe_bos(reference.bos, engine_bos)}",
        tokenizer=tokenizer,
        results=results,
        tokens=tokens,
        notes=(
            *[f"ours: {note}" for note in (spec.jinja.notes if spec.jinja is not None else ())],
            *[f"reference: {note}" for note in reference.notes],
        ),
    )


def _select_cases(cases: tuple[Case, ...], names: tuple[str, ...]) -> tuple[Case, ...]:
    by_name = {case.name: case for case in cases}
    for name in names:
        if name not in by_name:
            raise CommandError(f'no case "{name}"; the known cases are {", ".join(by_name)}')
    return tuple([by_name[name] for name in names]) or cases


def _relative(path: Path) -> str:
    """Return a path inside the working directory as a relative path, and any other path unchanged."""
    full, here = path.absolute(), Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(path)


def _identity(spec: TemplateSpec) -> str:
    return f"{spec.name}@sha256:{spec.digest}"


# ---------------------------------------------------------------- the reference


def _find_reference(
    options: ParityOptions, model: ModelSpec | None, ours: TemplateSpec, snapshot: Snapshot | None
) -> _Reference:
    """Return the reference that the command line names: an existing path, or a template or model of the gateway."""
    if options.reference is None:
        return _chat_reference(_model_folder(model), ours, options)
    path = Path(options.reference)
    is_template = path.suffix in (".yaml", ".yml")
    if not is_template and path.exists():
        return _chat_reference(path, ours, options)
    if not is_template and (path.suffix in (".json", ".jinja") or os.sep in options.reference):
        raise CommandError(f"{options.reference}: no such file or folder")
    for option in ("kwargs", "variant", "engine"):
        if getattr(options, option) is not None:
            raise CommandError(
                f"--{option} applies only to a chat template, but {options.reference} is a template of the gateway"
            )
    return _gateway_reference(find_any(options.reference, snapshot))


def _model_folder(model: ModelSpec | None) -> Path:
    """Return the folder with a model's own chat template: the tokenizer folder, or the folder of an embedded model."""
    if model is None:
        raise CommandError("--template needs a reference; give --reference FILE, FOLDER or TEMPLATE")
    folders = [model.tokenizer] if model.tokenizer is not None else []
    first = model.targets[0]
    if BACKEND_KINDS[first.speaks].in_process and first.path is not None:
        folders.append(first.path)
    for path in folders:
        folder = path if path.is_dir() else path.parent
        if chat_template_in(folder) is not None:
            return folder
    reason = (
        f"{_relative(folders[0])} does not contain {' or '.join(CHAT_TEMPLATE_FILES)}"
        if folders
        else "no tokenizer is set in gateway.yaml"
    )
    raise CommandError(
        f"{model.name} has no chat template to compare with ({reason}); give --reference FILE, FOLDER or TEMPLATE"
    )


def _chat_reference(path: Path, ours: TemplateSpec, options: ParityOptions) -> _Reference:
    file = chat_template_in(path) if path.is_dir() else path
    if file is None:
        raise CommandError(f"{path} has no chat template; it must contain {' or '.join(CHAT_TEMPLATE_FILES)}")
    spec = read_chat_folder(file, ours.jinja, options.kwargs, options.variant).spec
    assert spec.jinja is not None
    template, engine = chat_template_renderer(spec, options.engine)
    tokens = {name: text for name, text in spec.jinja.special_tokens.items() if text}
    variant = spec.jinja.sources[0][0]
    variant_note = "" if variant == DEFAULT else f", template {variant}"
    return _Reference(
        template=chat_reference(template),
        name=f"{_relative(file)}{variant_note} (sha256:{spec.digest})",
        engine=engine,
        bos=None,
        bos_token=tokens.get("bos_token", ""),
        special_tokens=(*tokens.values(), *spec.jinja.ends),
        folder=folder_of(file),
        notes=spec.jinja.notes,
    )


def chat_template_renderer(spec: TemplateSpec, engine: str | None = None) -> tuple[Template, str]:
    """Return the renderer of a chat template, and a phrase that describes the renderer and why it was chosen."""
    from gateway.workshop.parity import transformers_reference as original
    from metatemplate.chat_templates.renderer import JinjaTemplate

    template = build(spec)
    assert isinstance(template, JinjaTemplate)
    version = original.installed()
    writes_date = any(original.CLOCK in compiled.names for compiled in template.compiled)
    if engine == "transformers" and not version:
        raise CommandError("--engine transformers: transformers is not installed; run: pip install transformers")
    if engine == "own":
        return template, "the gateway's Jinja renderer, as requested"
    if not version:
        return template, "the gateway's Jinja renderer; transformers is not installed"
    if writes_date and engine is None:
        return template, f"the gateway's Jinja renderer; transformers {version} would write today's date"
    # These variables prevent network access, and advice on standard error.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    date_note = "; it writes today's date" if writes_date else ""
    return original.TransformersTemplate(spec), f"transformers {version}{date_note}"


def _gateway_reference(model: ModelSpec) -> _Reference:
    spec = model.template
    return _Reference(
        template=route_of(model).template,
        name=_identity(spec),
        engine="the gateway's template renderer",
        bos=spec.bos,
        bos_token=spec.bos_text,
        special_tokens=tuple(dict.fromkeys([text for text in (spec.bos_text, *stop_strings(spec)) if text])),
    )


def _find_tokenizer(
    given: Path | None, model: ModelSpec, tokens: Tokenizer | None, reference: Path | None
) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer of the option, the model or the reference's folder, and the tokenizer's path.

    Without a tokenizer, return None and the reason, as a part of a sentence.
    """
    if given is not None:
        try:
            return Tokenizer(given), _relative(given)
        except InvalidFile as error:
            raise CommandError(f"--tokenizer {given}: {error.problems[0].message}", CONFIG_FAILED) from None
    if tokens is not None:
        path = model.tokenizer or model.targets[0].path
        assert path is not None
        return tokens, f"{_relative(path)}, the model's own"
    file = reference / "tokenizer.json" if reference is not None else None
    if file is None or not file.is_file():
        return None, "no tokenizer, so only bytes are compared; give one with --tokenizer"
    try:
        return Tokenizer(file), _relative(file)
    except InvalidFile as error:  # no option names this file, so the error is only reported
        return None, f"no tokenizer, so only bytes are compared; {error.problems[0].message}"
