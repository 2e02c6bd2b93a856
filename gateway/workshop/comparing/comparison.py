"""Finds the inputs of ``gateway parity`` (the template, its reference and the tokenizer) and compares them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.cli.call_options import http_url
from gateway.cli.options import CommandError
from gateway.cli.rendering import find_any, find_model, route_of
from gateway.cli.terminal import progress
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import ModelSpec, Snapshot
from gateway.core.errors import CONFIG_FAILED, UnsupportedParameter
from gateway.workshop.chat_folders import CHAT_TEMPLATE_FILES, chat_template_in, folder_of, read_chat_folder
from gateway.workshop.comparing.engine_bos import describe_bos, engine_bos_of, tokenizer_bos
from gateway.workshop.comparing.parity_options import ParityOptions
from gateway.workshop.comparing.rendering_server import find_rendering_server
from gateway.workshop.parity.cases import Case, matrix
from gateway.workshop.parity.compare import CaseResult, compare
from gateway.workshop.parity.engines import CHAT_TEMPLATE_ENGINES, LLAMACPP_CLOCK
from gateway.workshop.parity.sides import Side, chat_reference, side_of
from gateway.workshop.parity.transformers_reference import PACKAGE, installed
from metatemplate.chat_templates.folder import DEFAULT
from metatemplate.errors import InvalidFile
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from metatemplate.templates.stops import stop_strings
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.prompt import Bos

GIVE_ONE = "give --reference FILE, FOLDER, URL or TEMPLATE"


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
    unit: str = "case"
    """What each result is about: a case of the matrix, or an engine."""


@dataclass(frozen=True, slots=True)
class ParityReference:
    """What a template is compared with, and its description."""

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
    configured = model if options.template is None else None
    if options.engine == "llama.cpp":
        model = with_clock(model, LLAMACPP_CLOCK)
    elif is_address(options.reference):  # a server writes the present time
        model = with_clock(model, "")
    reference = _find_reference(options, configured, model.template, snapshot)
    cases = _select_cases(matrix(reference.special_tokens), options.cases)
    return compare_with(model, configured, reference, cases, options.tokenizer)


def compare_with(
    model: ModelSpec,
    configured: ModelSpec | None,
    reference: ParityReference,
    cases: Sequence[Case],
    tokenizer: Path | None = None,
) -> Comparison:
    """Compare the prompts of a model with those of a reference. ``configured``: None if no configuration has the model.

    Raises ``CommandError`` if one side makes messages.
    """
    route, spec = route_of(model), model.template
    tokens, tokenizer_name = _find_tokenizer(tokenizer, model, route.tokens, reference.folder)
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
    with progress("comparing", cases) as shown:
        results = compare(
            ours,
            theirs,
            shown,
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
        tokenizer=tokenizer_name,
        results=results,
        tokens=tokens,
        notes=(
            *[f"ours: {note}" for note in (spec.jinja.notes if spec.jinja is not None else ())],
            *[f"reference: {note}" for note in reference.notes],
        ),
    )


def with_clock(model: ModelSpec, clock: str) -> ModelSpec:
    """Return a model whose chat template, if it has one, gets this time; empty: the present time."""
    jinja = model.template.jinja
    if jinja is None:
        return model
    return replace(model, template=replace(model.template, jinja=replace(jinja, clock=clock)))


def _select_cases(cases: tuple[Case, ...], names: tuple[str, ...]) -> tuple[Case, ...]:
    by_name = {case.name: case for case in cases}
    for name in names:
        if name not in by_name:
            raise CommandError(f'no case "{name}"; the known cases are {", ".join(by_name)}')
    return tuple([by_name[name] for name in names]) or cases


def relative(path: Path) -> str:
    """Return a path inside the working directory as a relative path, and any other path unchanged."""
    full, here = path.absolute(), Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(path)


def _identity(spec: TemplateSpec) -> str:
    return f"{spec.name}@sha256:{spec.digest}"


# ---------------------------------------------------------------- the reference


def _find_reference(
    options: ParityOptions, model: ModelSpec | None, ours: TemplateSpec, snapshot: Snapshot | None
) -> ParityReference:
    """Return the reference that the command line names: an existing path, or a template or model of the gateway."""
    if options.reference is None:
        if model is None:
            raise CommandError(f"--template needs a reference; {GIVE_ONE}")
        return _chat_reference(model_chat_template(model, GIVE_ONE), ours, options)
    if is_address(options.reference):
        return _server_reference(options.reference, model, ours, options)
    path = Path(options.reference)
    is_template = path.suffix in (".yaml", ".yml")
    if not is_template and path.exists():
        return _chat_reference(path, ours, options)
    if not is_template and (path.suffix in (".json", ".jinja") or os.sep in options.reference):
        raise CommandError(f"{options.reference}: no such file or folder")
    _refuse(options, ("kwargs", "variant", "engine"), "a template of the gateway")
    return _gateway_reference(find_any(options.reference, snapshot))


def _refuse(options: ParityOptions, names: Sequence[str], kind: str) -> None:
    """Raise ``CommandError`` for options that a reference of this kind does not use."""
    for name in names:
        if getattr(options, name) is not None:
            raise CommandError(f"--{name} applies only to a chat template, but {options.reference} is {kind}")


def is_address(reference: str | None) -> bool:
    """Return whether the reference is a server."""
    return reference is not None and reference.startswith(("http://", "https://"))


def _server_reference(url: str, model: ModelSpec | None, ours: TemplateSpec, options: ParityOptions) -> ParityReference:
    _refuse(options, ("variant", "engine"), "a server")
    kwargs = {**(ours.jinja.kwargs if ours.jinja is not None else {}), **(options.kwargs or {})}
    server = find_rendering_server(http_url(url), () if model is None else model.targets, kwargs)
    return ParityReference(
        template=Side(server.render, writes_whole=True),
        name=f"{url}, model {server.target.model}",
        engine=f"the server's {server.path}",
        bos=None,
        bos_token="",
        special_tokens=special_tokens_of(ours),
    )


def model_chat_template(model: ModelSpec, way: str) -> Path:
    """Return the file with a model's own chat template: in the tokenizer folder, or the folder of an embedded model.

    ``way``: what to do if there is none, for the ``CommandError``.
    """
    folders = [model.tokenizer] if model.tokenizer is not None else []
    first = model.targets[0]
    if BACKEND_KINDS[first.speaks].in_process and first.path is not None:
        folders.append(first.path)
    for path in folders:
        folder = path if path.is_dir() else path.parent
        if (file := chat_template_in(folder)) is not None:
            return file
    reason = (
        f"{relative(folders[0])} does not contain {' or '.join(CHAT_TEMPLATE_FILES)}"
        if folders
        else "no tokenizer is set in gateway.yaml"
    )
    raise CommandError(f"{model.name} has no chat template to compare with ({reason}); {way}")


def _chat_reference(path: Path, ours: TemplateSpec, options: ParityOptions) -> ParityReference:
    file = chat_template_in(path) if path.is_dir() else path
    if file is None:
        raise CommandError(f"{path} has no chat template; it must contain {' or '.join(CHAT_TEMPLATE_FILES)}")
    spec = read_chat_folder(file, ours.jinja, options.kwargs, options.variant).spec
    return chat_template_reference(spec, relative(file), folder_of(file), options.engine)


def chat_template_reference(spec: TemplateSpec, name: str, folder: Path | None, engine: str | None) -> ParityReference:
    """Return the reference for a chat template. ``folder``: contains the tokenizer, if no other is known."""
    assert spec.jinja is not None
    template, engine = chat_template_renderer(spec, engine)
    tokens = {name: text for name, text in spec.jinja.special_tokens.items() if text}
    variant = spec.jinja.sources[0][0]
    variant_note = "" if variant == DEFAULT else f", template {variant}"
    return ParityReference(
        template=chat_reference(template),
        name=f"{name}{variant_note} (sha256:{spec.digest})",
        engine=engine,
        bos=None,
        bos_token=tokens.get("bos_token", ""),
        special_tokens=(*tokens.values(), *spec.jinja.ends),
        folder=folder,
        notes=spec.jinja.notes,
    )


def chat_template_renderer(spec: TemplateSpec, engine: str | None = None) -> tuple[Template, str]:
    """Return the renderer of a chat template, and a phrase that describes the renderer and why it was chosen.

    Raises ``CommandError`` for an engine that is not installed.
    """
    if engine == "own":
        return build(spec), "the gateway's Jinja renderer, as requested"
    if engine is None and not installed():
        return build(spec), "the gateway's Jinja renderer; transformers is not installed"
    name = engine or PACKAGE
    try:
        return CHAT_TEMPLATE_ENGINES[name](spec)
    except ImportError as error:
        raise CommandError(f"{name} is not installed ({error}); run: pip install 'meta-gateway[engines]'") from None


def _gateway_reference(model: ModelSpec) -> ParityReference:
    spec = model.template
    return ParityReference(
        template=route_of(model).template,
        name=_identity(spec),
        engine="the gateway's template renderer",
        bos=spec.bos,
        bos_token=spec.bos_text,
        special_tokens=special_tokens_of(spec),
    )


def special_tokens_of(spec: TemplateSpec) -> tuple[str, ...]:
    """Return the BOS and the stops of a template, each once."""
    return tuple(dict.fromkeys([text for text in (spec.bos_text, *stop_strings(spec)) if text]))


def _find_tokenizer(
    given: Path | None, model: ModelSpec, tokens: Tokenizer | None, reference: Path | None
) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer of the option, the model or the reference's folder, and the tokenizer's path.

    Without a tokenizer, return None and the reason, as a part of a sentence.
    """
    if given is not None:
        try:
            return Tokenizer(given), relative(given)
        except InvalidFile as error:
            raise CommandError(f"--tokenizer {given}: {error.problems[0].message}", CONFIG_FAILED) from None
    if tokens is not None:
        path = model.tokenizer or model.targets[0].path
        assert path is not None
        return tokens, f"{relative(path)}, the model's own"
    file = reference / "tokenizer.json" if reference is not None else None
    if file is None or not file.is_file():
        return None, "no tokenizer, so only bytes are compared; give one with --tokenizer"
    try:
        return Tokenizer(file), relative(file)
    except InvalidFile as error:  # no option names this file, so the error is only reported
        return None, f"no tokenizer, so only bytes are compared; {error.problems[0].message}"
