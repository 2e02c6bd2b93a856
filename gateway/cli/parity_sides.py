"""What is compared with what? The two sides of ``gateway parity``, from the words of a command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gateway.backend.tokenizer import LocalTokenizer, Tokenizer
from gateway.calls.route import Route
from gateway.cli.bos_habit import Habit, bos_of, habit_of, writer
from gateway.cli.options import NotFound
from gateway.cli.render_prompt import find_either, find_route
from gateway.config.chat_folders import TEMPLATES, chat_template_in, folder_of, read_reference
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import ModelSpec, Snapshot
from gateway.core.errors import ConfigError
from gateway.core.prompt import Bos
from gateway.parity.cases import Case, matrix
from gateway.parity.compare import CaseResult, compare
from gateway.parity.sides import Side, WholeTemplate, chat_reference, side_of
from gateway.template.base import Template
from gateway.template.huggingface.folder.named_templates import DEFAULT
from gateway.template.registry import build
from gateway.template.spec.template import TemplateSpec
from gateway.template.stops import stop_strings

Engine = Literal["auto", "transformers", "own"]
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of a command line."""

    model: str | None
    template: str | None
    reference: str | None
    tokenizer: Path | None = None
    engine: Engine = "auto"
    kwargs: Mapping[str, Any] | None = None
    cases: tuple[str, ...] = ()
    """Names of the cases to compare; empty: all."""
    variant: str | None = None
    """One of the reference's named templates."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides over the matrix, and how it was done."""

    ours: str
    reference: str
    engine: str
    """Who rendered the reference."""
    bos: str
    tokenizer: str
    results: tuple[CaseResult, ...]
    tokens: Tokenizer | None = None
    """To show what a token is."""
    notes: tuple[str, ...] = ()
    """Where files of either side disagree, and which one counts."""


@dataclass(frozen=True, slots=True)
class _Reference:
    template: Template | Side
    name: str
    engine: str
    bos: Bos | None
    """Who writes its BOS; None: its text is all there is."""
    bos_token: str
    special_tokens: tuple[str, ...]
    folder: Path | None = None
    notes: tuple[str, ...] = ()


def comparison(asked: Asked, snapshot: Snapshot | None) -> Comparison:
    """Render and compare. Raises ``NotFound`` for words that mean nothing, or a ``GatewayError``."""
    route = find_route(asked.model, asked.template, snapshot)
    model = route.spec if asked.model is not None else None
    reference = _reference(asked, model, route.spec.template, snapshot)
    tokens, tokenizer = _tokens(asked, route, reference)
    bos_token = reference.bos_token or route.spec.template.bos_text or bos_of(tokens)
    habit = habit_of(model, tokens)
    unasked, told = bool(habit.unasked and bos_token), habit.told is not False
    results = compare(
        side_of(route.template, adds_bos=unasked, adds_bos_on_request=told),
        side_of(reference.template, adds_bos=unasked, adds_bos_on_request=told),
        _chosen(matrix(reference.special_tokens), asked.cases),
        bos_token=bos_token,
        tokenize=None if tokens is None else lambda text: tokens.tokenize(text, False),
    )
    spec = route.spec.template
    return Comparison(
        ours=f"{asked.model} ({_id(spec)})" if asked.model is not None else _id(spec),
        reference=reference.name,
        engine=reference.engine,
        bos=f"{_named(bos_token)}; ours: {writer(spec.bos, habit)}; reference: {_reference_writer(reference, habit)}",
        tokenizer=tokenizer,
        results=results,
        tokens=tokens,
        notes=(
            *[f"ours: {note}" for note in (spec.jinja.notes if spec.jinja is not None else ())],
            *[f"reference: {note}" for note in reference.notes],
        ),
    )


def _chosen(cases: tuple[Case, ...], names: tuple[str, ...]) -> tuple[Case, ...]:
    known = {case.name: case for case in cases}
    for name in names:
        if name not in known:
            raise NotFound(f'no case "{name}"; there are: {", ".join(known)}')
    return tuple([known[name] for name in names]) or cases


def _shown(path: Path) -> str:
    """A path as a person would write it here."""
    full, here = path.absolute(), Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(path)


def _id(spec: TemplateSpec) -> str:
    return f"{spec.name}@sha256:{spec.digest}"


# ---------------------------------------------------------------- the reference


def _reference(asked: Asked, model: ModelSpec | None, ours: TemplateSpec, snapshot: Snapshot | None) -> _Reference:
    if asked.reference is None:
        return _chat_reference(_own_folder(model), ours, asked)
    path = Path(asked.reference)
    is_template = path.suffix in (".yaml", ".yml")
    if not is_template and path.exists():
        return _chat_reference(path, ours, asked)
    if not is_template and (path.suffix in (".json", ".jinja") or os.sep in asked.reference):
        raise NotFound(f"{asked.reference}: no such file or folder")
    for given, option in (
        (asked.kwargs, "--kwargs"),
        (asked.variant is not None, "--variant"),
        (asked.engine != "auto", "--engine"),
    ):
        if given:
            raise NotFound(f"{option} is for a chat template, and {asked.reference} is a template of ours")
    return _our_reference(find_either(asked.reference, snapshot))


def _own_folder(model: ModelSpec | None) -> Path:
    """Where a model's own chat template lies: with its tokenizer, or with an embedded model."""
    if model is None:
        raise NotFound("a template has no reference of its own: give --reference FILE, FOLDER or TEMPLATE")
    folders = [model.tokenizer] if model.tokenizer is not None else []
    first = model.targets[0]
    if BACKEND_KINDS[first.speaks].in_process and first.path is not None:
        folders.append(first.path)
    for path in folders:
        folder = path if path.is_dir() else path.parent
        if chat_template_in(folder) is not None:
            return folder
    where = (
        f"{_shown(folders[0])} has none of {', '.join(TEMPLATES)}" if folders else "it has no tokenizer in gateway.yaml"
    )
    raise NotFound(
        f"{model.name} has no chat template to compare with ({where}): "
        "give --reference tokenizer_config.json, chat_template.jinja, a folder, or another template's name"
    )


def _chat_reference(path: Path, ours: TemplateSpec, asked: Asked) -> _Reference:
    file = chat_template_in(path) if path.is_dir() else path
    if file is None:
        raise NotFound(f"{path} has no chat template: none of {', '.join(TEMPLATES)} holds one")
    spec = read_reference(file, ours.jinja, asked.kwargs or {}, asked.variant)
    assert spec.jinja is not None
    template, engine = rendered_by(spec, asked.engine)
    tokens = {name: text for name, text in spec.jinja.special_tokens.items() if text}
    chosen = spec.jinja.sources[0][0]
    which = "" if chosen == DEFAULT else f", template {chosen}"
    return _Reference(
        template=chat_reference(template),
        name=f"{_shown(file)}{which} (sha256:{spec.digest})",
        engine=engine,
        bos=None,
        bos_token=tokens.get("bos_token", ""),
        special_tokens=(*tokens.values(), *spec.jinja.ends),
        folder=folder_of(file),
        notes=spec.jinja.notes,
    )


def rendered_by(spec: TemplateSpec, engine: Engine) -> tuple[WholeTemplate, str]:
    """The renderer of a chat template, and in words which one it is, and why."""
    from gateway.template.huggingface import transformers_reference as original
    from gateway.template.huggingface.renderer import JinjaTemplate

    template = build(spec)
    assert isinstance(template, JinjaTemplate)
    found = original.installed()
    asks_day = any(original.CLOCK in compiled.names for compiled in template.compiled)
    if engine == "transformers" and not found:
        raise NotFound("--engine transformers: the package is not installed here: pip install transformers")
    if engine == "own":
        return template, "our own Jinja, as asked"
    if not found:
        return template, "our own Jinja; transformers is not installed"
    if asks_day and engine == "auto":
        return template, f"our own Jinja; transformers {found} would write today's date into the prompt"
    # Nothing is fetched, and nothing is said on standard error about what is not needed.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    day = "; it writes today's date, as the machine tells it" if asks_day else ""
    return original.TransformersTemplate(spec), f"transformers {found}{day}"


def _our_reference(route: Route) -> _Reference:
    spec = route.spec.template
    return _Reference(
        template=route.template,
        name=_id(spec),
        engine="the gateway, as a template of ours",
        bos=spec.bos,
        bos_token=spec.bos_text,
        special_tokens=tuple(dict.fromkeys([text for text in (spec.bos_text, *stop_strings(spec)) if text])),
    )


# ---------------------------------------------------------------- tokens


def _tokens(asked: Asked, route: Route, reference: _Reference) -> tuple[Tokenizer | None, str]:
    """The tokenizer, and where it comes from or why there is none."""
    if asked.tokenizer is not None:
        return LocalTokenizer(asked.tokenizer), _shown(asked.tokenizer)
    if route.tokens is not None:
        path = route.spec.tokenizer or route.spec.targets[0].path
        assert path is not None
        return route.tokens, f"{_shown(path)}, the model's own"
    beside = reference.folder / TOKENIZER if reference.folder is not None else None
    if beside is None or not beside.is_file():
        return None, "none, so only bytes are compared (--tokenizer gives one)"
    try:
        return LocalTokenizer(beside), _shown(beside)
    except ConfigError as error:  # nobody asked for it, so it is told and not refused
        return None, f"none, so only bytes are compared; {error.problems[0].message}"


def _reference_writer(reference: _Reference, habit: Habit) -> str:
    if reference.bos is None:
        return "its text as it stands, tokenized without special tokens"
    return writer(reference.bos, habit)


def _named(bos_token: str) -> str:
    return f'"{bos_token}"' if bos_token else "text not known"
