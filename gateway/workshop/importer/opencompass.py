"""Makes meta templates from an OpenCompass config, one for each model with a ``meta_template``.

The keys of a ``meta_template`` are kept unchanged (``docs/spec/opencompass.md`` 4 and 5). ``end_str``, ``stop_words``
and ``eos_token_id`` of the model are imported too. The notes list all other keys of the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.workshop.importer.draft import STRICT_TURNS, Draft, Reference, policy_default
from gateway.workshop.importer.python_file import PythonFile, at_line, check_plain
from gateway.workshop.importer.source import Source
from gateway.workshop.parity.sides import Side
from metatemplate.files.meta import SCORES_ONLY
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.words import shown

META, MODELS = "meta_template", "models"
TEMPLATE_KEYS = ("begin", "end", "round", "reserved_roles", "eos_token_id")
ROLE_KEYS = ("role", "begin", "end", "prompt", "generate", "api_role", "fallback_role")
STOPS = ("end_str", "stop_words", "stop")
"""The keys for texts that end an answer. They may be in a model or in the model's ``generation_kwargs``."""
GENERATION_KWARGS = "generation_kwargs"
IGNORED = frozenset({META, "abbr", *STOPS, *[f"{GENERATION_KWARGS}.{name}" for name in (*STOPS, "eos_token_id")]})
"""The keys of a model that need no general note, because they are imported or have a special note."""
SECRET = re.compile(r"key|secret|password|authorization|^token$|^[as]k$", re.IGNORECASE)
"""Matches the names of settings whose values are secret. Notes do not contain these values."""

DEFAULTS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
ENGINE_DEFAULTS = ("top_k", "min_p", "repetition_penalty")
"""Parameters that a policy must allow, because OpenAI's API does not have them."""
PLACES: Mapping[str, str] = {
    "type": "choose `speaks` and `engine` in gateway.yaml instead",
    "path": "write in gateway.yaml `targets: [{model: {value}}]`",
    "tokenizer_path": "write it in gateway.yaml as tokenizer",
    "max_out_len": policy_default("max_tokens"),
    "max_seq_len": "set this context length when you start the engine",
    "batch_size": "clients decide how many requests they send at once",
    "query_per_second": "write in a policy `limits.requests_per_minute`, if the gateway must limit the request rate",
    "key": "write it in gateway.yaml as env:NAME, not as plain text",
    "openai_api_base": "write it in gateway.yaml as url",
    "mode": "the gateway does not truncate prompts",
    "model_kwargs": "give these settings to the engine when you start it",
    "tokenizer_kwargs": "the engine has its own tokenizer; check whether it puts a BOS before a prompt",
    "run_cfg": "set this when you start the engine",
    **{f"{GENERATION_KWARGS}.{name}": policy_default(name) for name in DEFAULTS},
    **{f"{GENERATION_KWARGS}.{name}": policy_default(name, f", allow: [{name}]") for name in ENGINE_DEFAULTS},
    **{f"{GENERATION_KWARGS}.{name}": policy_default("max_tokens") for name in ("max_new_tokens", "max_tokens")},
    f"{GENERATION_KWARGS}.do_sample": "write in a policy the temperature; 0 is greedy decoding",
    f"{GENERATION_KWARGS}.stop_token_ids": "list the texts of these tokens under stop",
}
"""Key of a model → where to set it in the gateway, for the note about this key."""


def read_opencompass(source: Source, *, turns: str = "natural") -> list[Draft]:
    """Return a draft for each model with a meta template. If the file has no models, use each template with a name.

    ``turns``: the key ``turns`` of the template file. Raises ``ConfigError`` if no template can be imported.
    """
    drafts = _of_python(source) if source.name.endswith(".py") else _of_value(source)
    further = {} if turns == "natural" else {"turns": turns}
    return [replace(draft, keys={**draft.keys, **further}) for draft in drafts]


def _of_value(source: Source) -> list[Draft]:
    value = source.value()
    if isinstance(value, dict) and isinstance(value.get(MODELS), list):
        models = [(f"{MODELS}[{number}]", one) for number, one in enumerate(value[MODELS])]
        found = [(place, one) for place, one in models if isinstance(one, dict) and isinstance(one.get(META), dict)]
        if not found:
            raise source.refuse(0, f"no model has a {META}", MODELS)
        return [_draft(one[META], one, str(one.get("abbr") or source.stem), place, source) for place, one in found]
    template = value.get(META, value) if isinstance(value, dict) else value
    if not isinstance(template, dict) or "round" not in template:
        raise source.refuse(0, f"the file has no {META}; expected a mapping with the key round")
    model = {} if template is value else {key: one for key, one in value.items() if key != META}
    return [_draft(template, model, str(model.get("abbr") or source.stem), "", source)]


def _of_python(source: Source) -> list[Draft]:
    file = PythonFile(source)
    not_read: list[str] = []
    drafts = [_of_model(model, place, file, source) for place, model in _models(file, not_read)]
    if not drafts:
        found = {name: value for name, value in file.names.items() if META in name and isinstance(value, dict)}
        for name, value in found.items():
            check_plain(value, META, source)
            file.note_replaced(name)
            own_name = source.stem if len(found) == 1 else name.strip("_")
            drafts.append(_draft(value, {}, own_name, at_line(name, file.line(name)), source))
    if not drafts:
        raise source.refuse(0, _nothing_found(not_read, file.notes))
    return [replace(draft, notes=(*draft.notes, *file.notes), not_read=tuple(not_read)) for draft in drafts]


def _nothing_found(not_read: list[str], notes: list[str]) -> str:
    """Return why a file has no template to import, and what to do."""
    if not_read:
        return f"{'; '.join(not_read)}; so there is no {META} to import"
    cause = f"{'; '.join(notes)}; so there is nothing to import" if notes else f"the file has no {META} of plain values"
    return (
        f"{cause}; a model behind an API needs no {META}: write it in gateway.yaml with template: chat and targets: "
        '[{speaks: litellm, model: openai/gpt-4o, key: "env:OPENAI_API_KEY"}]; for a local model, import the folder of '
        "its tokenizer"
    )


def _models(file: PythonFile, not_read: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return (place, model) for every model with a meta template. A place in the file is such as ``models[0]``.

    ``not_read`` gets a line for each model that was not read.
    """
    lists = {name: one for name, one in file.names.items() if isinstance(one, list)}
    # Without a list of this name, code assembles the models from other lists.
    names = [MODELS] if lists.get(MODELS) else [name for name in lists if name.endswith((MODELS, "_model"))]
    if MODELS not in names:
        not_read += file.unread(MODELS)
    found: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        for number, entry in enumerate(lists[name]):
            place = f"{name}[{number}]"
            if not isinstance(entry, dict):
                not_read.append(f"{place}: it is not a plain mapping but {entry}")
            elif entry.get(META) is None:
                file.notes.append(
                    f"{place} ({entry.get('abbr', 'without abbr')}) was not imported, because it has no {META}"
                )
            else:
                found.append((place, entry))
    return found


def _of_model(model: dict[str, Any], place: str, file: PythonFile, source: Source) -> Draft:
    template, line = model[META], file.line(place.partition("[")[0])
    if isinstance(template, list):
        raise source.refuse(
            line, f"{META} is in a list, which OpenCompass refuses; write the mapping without the list", place
        )
    if not isinstance(template, dict):
        raise source.refuse(line, f"{META} is not a plain mapping but {template}; write the mapping there", place)
    check_plain(template, META, source)
    check_plain(abbr := model.get("abbr"), "abbr", source)
    return _draft(template, model, abbr if isinstance(abbr, str) else source.stem, at_line(place, line), source)


def _draft(template: Mapping[str, Any], model: Mapping[str, Any], name: str, place: str, source: Source) -> Draft:
    notes: list[str] = []
    keys: dict[str, Any] = {"kind": "meta", "description": f"Imported from the OpenCompass config {source.short_name}."}
    keys |= _kept(template, "", TEMPLATE_KEYS, notes)
    for part in ("round", "reserved_roles"):
        if isinstance(keys.get(part), list):
            keys[part] = [
                _kept(one, f"{part}[{number}].", ROLE_KEYS, notes) if isinstance(one, dict) else one
                for number, one in enumerate(keys[part])
            ]
    _make_generating(keys, notes)
    if not any(one.get("generate") for one in keys.get("round") or () if isinstance(one, dict)):
        notes.append(SCORES_ONLY)
    stops = _stops(model, keys, notes)
    if stops:
        keys["stop"] = stops
    settings = dict(model)
    if isinstance(model.get(GENERATION_KWARGS), dict):
        settings |= {f"{GENERATION_KWARGS}.{key}": one for key, one in settings.pop(GENERATION_KWARGS).items()}
    for key, value in settings.items():
        if key not in IGNORED:
            short = shown(value) if isinstance(value, list | dict) else value
            place_here = PLACES.get(key, "not imported, because a template cannot contain it")
            notes.append(f"{key} = {_without_secrets(key, value)}: {place_here.replace('{value}', str(short))}")
    return Draft(
        name=name.lower(),
        origin=f"the OpenCompass config {source.short_name}" + (f", {place}" if place else ""),
        sha256=source.sha256,
        keys=keys,
        notes=tuple(notes),
        port=_port,
        examples_by="this gateway's own port of OpenCompass's parsers",
    )


def _without_secrets(name: str, value: Any) -> str:
    """Return a value as text for a note. The values of secret settings such as ``key`` are left out."""
    if SECRET.search(name):
        return "(not shown)"
    if isinstance(value, dict):
        value = {key: "(not shown)" if SECRET.search(str(key)) else one for key, one in value.items()}
    return shown(value)


def _port(spec: TemplateSpec) -> Reference | None:
    """Return OpenCompass's ported parser as a reference; None if this parser renders the template anyway.

    A template for complete conversations only is not compared either, because the comparison needs prompts for answers.
    """
    if spec.api or spec.scores_only or spec.turns == "opencompass":
        return None
    template = build(replace(spec, turns="opencompass"))
    return Reference(
        name="this gateway's port of OpenCompass's parser",
        side=Side(template.render),
        excluded=STRICT_TURNS,
        hint="OpenCompass writes an empty turn for a role of `round` without a message; use --turns opencompass, "
        "or move the role (such as SYSTEM) from `round` to reserved_roles",
    )


def _kept(value: Mapping[str, Any], path: str, known: tuple[str, ...], notes: list[str]) -> dict[str, Any]:
    """Return the known keys and their values, except ``None``, which OpenCompass treats as absent.

    A note is added for each unknown key.
    """
    for key, one in value.items():
        if key not in known:
            notes.append(f"{META}.{path}{key} = {shown(one)}: not imported, because OpenCompass does not use it")
    return {key: value[key] for key in known if value.get(key) is not None}


def _make_generating(keys: Mapping[str, Any], notes: list[str]) -> None:
    """Change ``generate: False`` to true for the assistant's role of an API template.

    With False, OpenCompass adds an empty turn, but its API wrapper does not send this turn.
    """
    roles = [(number, one) for number, one in enumerate(keys.get("round") or ()) if isinstance(one, dict)]
    if any(one.get("generate") for _, one in roles):
        return
    for number, one in roles:
        if one.get("api_role") == "BOT" and one.get("generate") is False:
            one["generate"] = True
            notes.append(
                f"round[{number}].generate: False was changed to true. With False, OpenCompass sends the dataset's "
                "text for the answer (such as `Answer: `) as the last message; clients must send this message"
            )


def _stops(model: Mapping[str, Any], keys: dict[str, Any], notes: list[str]) -> list[str]:
    generation = model.get(GENERATION_KWARGS)
    found: list[str] = []
    generation = generation if isinstance(generation, dict) else {}
    for owner in (model, generation):
        for name in STOPS:
            value = owner.get(name)
            texts = value if isinstance(value, list) else [] if value is None else [value]
            found += [text for text in texts if isinstance(text, str) and text]
            if not all(isinstance(text, str) for text in texts):
                notes.append(f"{name} = {shown(value)} was not imported, because it is not a text or a list of texts")
    if (end := generation.get("eos_token_id")) is not None:
        ids = end if isinstance(end, list) else [end]
        if len(ids) == 1 and type(ids[0]) is int and keys.get("eos_token_id", ids[0]) == ids[0]:
            keys["eos_token_id"] = ids[0]
        else:
            notes.append(
                f"generation_kwargs.eos_token_id = {shown(end)}: a template can have only one eos_token_id; "
                "list the texts of these tokens under stop"
            )
    return list(dict.fromkeys(found))
