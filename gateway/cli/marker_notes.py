"""Notes for the operator on models whose turns the marker policy protects only in part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import ModelSpec
from metatemplate.markers.marker_set import MarkerSet, TemplateTexts, texts_of, tokens_around
from metatemplate.templates.registry import build
from metatemplate.templates.spec import UNKNOWN_SOURCE, RoleSpec


def marker_notes(models: Iterable[ModelSpec]) -> Iterator[str]:
    """Return a note on the models with unknown special tokens, and on the models with turns in ordinary text."""
    every = tuple(models)
    if unknown := [model.name for model in every if not _knows_special_tokens(model)]:
        yield (
            f"special tokens unknown: {', '.join(unknown)}; a text of a client may contain one. Set the model's "
            "tokenizer, or markers in its template"
        )
    if in_text := [f"{name} ({header}: {action})" for name, header, action in _with_text_headers(every)]:
        yield (
            f"a line of ordinary text begins a turn: {', '.join(in_text)}. In parentheses: the line, and "
            "markers.text_like of the model's policy"
        )


def _knows_special_tokens(model: ModelSpec) -> bool:
    kinds = [BACKEND_KINDS[target.speaks] for target in model.targets]
    if model.tokenizer is not None or kinds[0].in_process:
        return True
    if not any(kind.openai_server or kind.in_process for kind in kinds):  # no operator can name a tokenizer
        return True
    markers, jinja = model.template.markers, model.template.jinja
    if jinja is not None and jinja.further_special_tokens:
        return True
    return markers is not None and markers.source != UNKNOWN_SOURCE


def _with_text_headers(models: Iterable[ModelSpec]) -> Iterator[tuple[str, str, str]]:
    """Return name, header and action of each model with a turn whose header is ordinary text such as ``USER:``."""
    for model in models:
        template = build(model.template)
        texts, roles = texts_of(template), (*model.template.round, *model.template.reserved_roles)
        if model.template.jinja is not None and MarkerSet(texts).token_like:
            continue  # a chat template does not show which of its lines are headers of turns
        written = [role.begin for role in roles if isinstance(role, RoleSpec)] or texts.before
        found = MarkerSet(TemplateTexts(before=tuple([text for text in written if not any(tokens_around(text))])))
        if found.text_like and not model.template.makes_messages:
            yield model.name, ascii(found.text_like[0]), model.policy.markers.text_like
