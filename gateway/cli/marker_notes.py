"""Notes for the operator on models whose turns the marker policy protects only in part, or in another way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import ModelSpec
from metatemplate.markers.marker_set import MarkerSet, TemplateTexts, texts_of, tokens_around
from metatemplate.templates.registry import build
from metatemplate.templates.spec import UNKNOWN_SOURCE, RoleSpec, TemplateSpec


def marker_notes(models: Iterable[ModelSpec]) -> Iterator[str]:
    """Return a note on the models with unknown special tokens, with turns in ordinary text, and with token ids."""
    every = tuple(models)
    if unknown := [model.name for model in every if not _knows_special_tokens(model)]:
        yield (
            f"special tokens unknown: {', '.join(unknown)}; a text of a client may contain one. Set the model's "
            "tokenizer, or markers in its template"
        )
    templates = {id(model.template): model.template for model in every}
    headers = {key: _text_header(spec) for key, spec in templates.items()}
    rows = [(model, headers[id(model.template)]) for model in every]
    if in_text := [f"{one.name} ({header!a}: {one.policy.markers.text_like})" for one, header in rows if header]:
        yield (
            f"a line of ordinary text begins a turn: {', '.join(in_text)}. In parentheses: the line, and "
            "markers.text_like of the model's policy"
        )
    ids = [one for one in every if any(target.prompt == "ids" for target in one.targets)]
    if unchanged := [
        one.name for one in ids if "escape" in (one.policy.markers.token_like, one.policy.markers.text_like)
    ]:
        yield (
            f"escape changes no text of a client: {', '.join(unchanged)}. With prompt: ids, a marker of a client is "
            "ordinary text in the token ids; reject, strip and report stay as they are"
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


def _text_header(spec: TemplateSpec) -> str:
    """Return the first header of a turn that is ordinary text. Empty if there is none."""
    texts, roles = texts_of(build(spec)), (*spec.round, *spec.reserved_roles)
    if spec.jinja is not None and MarkerSet(texts).token_like:
        return ""  # a chat template does not show which of its lines are headers of turns
    written = [role.begin for role in roles if isinstance(role, RoleSpec)] or texts.before
    found = MarkerSet(TemplateTexts(before=tuple([text for text in written if not any(tokens_around(text))])))
    return found.text_like[0] if found.text_like and not spec.makes_messages else ""
