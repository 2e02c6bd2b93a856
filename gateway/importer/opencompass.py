"""How does an OpenCompass config become meta templates? Read as syntax: its models, and the ``meta_template`` of each.

The keys of a ``meta_template`` are kept word for word (``specs/opencompass.md`` 1); what of the model beside it belongs
into a template is carried over (``end_str``, ``stop_words``, ``eos_token_id``), everything else is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.importer.draft import (
    CONTINUED,
    ENDS_EARLY,
    NEIGHBOURS,
    ODD_SYSTEM,
    STARTS_LATE,
    TOOLS,
    Draft,
    Reference,
)
from gateway.importer.python_source.module import read_module
from gateway.importer.python_source.values import Called, Module, Named, refuse_changed, refuse_trouble
from gateway.importer.source import Source
from gateway.template.registry import build
from gateway.template.spec.template import TemplateSpec

META = "meta_template"
TEMPLATE_KEYS = ("begin", "end", "round", "reserved_roles", "eos_token_id")
ROLE_KEYS = ("role", "begin", "end", "prompt", "generate", "api_role", "fallback_role")
STOPS = ("end_str", "stop_words", "stop")
"""Keys of a model, or of its ``generation_kwargs``, that say where an answer ends."""
IGNORED = frozenset({META, "abbr", *STOPS})

PLACES: Mapping[str, str] = {
    "type": "the class that ran the model: choose `speaks` and `engine` in gateway.yaml",
    "path": "in gateway.yaml: targets: [{{model: {value}}}]",
    "tokenizer_path": "in gateway.yaml: tokenizer",
    "max_out_len": "in a policy, params: {{default: {{max_tokens: {value}}}}}",
    "max_seq_len": "the engine's context length: start the engine with it",
    "batch_size": "clients decide how many requests they send at once",
    "query_per_second": "in a policy: limits",
    "key": "in gateway.yaml as env:NAME; never in a file",
    "openai_api_base": "in gateway.yaml: url",
    "mode": "the gateway cuts no prompt",
}
"""Where a model's key has its place here; any other is told without."""


def read_opencompass(source: Source, *, turns: str = "natural") -> list[Draft]:
    """A draft for each model with a meta template; for each template bound to a name where there are no models.

    ``turns``: as in a template file. Raises ``ConfigError``.
    """
    drafts = _drafts(source)
    if turns == "natural":
        return drafts
    return [replace(draft, keys={**draft.keys, "turns": turns}) for draft in drafts]


def _drafts(source: Source) -> list[Draft]:
    if not source.name.endswith(".py"):
        return [_from_value(source)]
    module = read_module(source)
    models = _models(module, source)
    if models:
        return [_of_model(model, place, module, source) for place, model in models]
    found = [(name, value) for name, value in module.names.items() if META in name and isinstance(value, dict)]
    if not found:
        told = f" ({'; '.join(module.notes)})" if module.notes else ""
        raise source.refuse(0, f"binds no {META} and no models with one that could be read as syntax{told}; a model "
                            "without one is addressed by its chat template: import its tokenizer folder")  # fmt: skip
    return [
        _draft(value, {}, source.stem if len(found) == 1 else name.strip("_"), name, module.lines[name], module, source)
        for name, value in found
    ]


def _from_value(source: Source) -> Draft:
    value = source.value()
    template = value.get(META, value) if isinstance(value, dict) else value
    if not isinstance(template, dict) or "round" not in template:
        raise source.refuse(0, f"holds no {META}: a mapping with round")
    model = {} if template is value else {key: one for key, one in value.items() if key != META}
    return _draft(template, model, str(model.get("abbr") or source.stem), "", 0, Module(), source)


def _models(module: Module, source: Source) -> list[tuple[str, dict[str, Any]]]:
    """Every model with a meta template, and where it stands."""
    value = module.names.get("models")
    if value is not None and not isinstance(value, list):
        value = None  # put together by code; the lists that it is made of are read instead
    lists = {"models": value} if value else {
        name: one for name, one in module.names.items()
        if name.endswith(("models", "_model")) and isinstance(one, list)
    }  # fmt: skip
    found: list[tuple[str, dict[str, Any]]] = []
    for name, entries in lists.items():
        if (error := refuse_changed(module, entries, name, source)) is not None:
            raise error
        for number, entry in enumerate(entries):
            if (error := refuse_changed(module, entry, f"{name}[{number}]", source)) is not None:
                raise error
            if not isinstance(entry, dict):
                module.note(f"{name}[{number}] is {entry}, which was not read")
            elif entry.get(META) is None:
                module.note(f"{name}[{number}] ({entry.get('abbr', 'without abbr')}) has no {META}")
            else:
                found.append((f"{name}[{number}]", entry))
    return found


def _of_model(model: dict[str, Any], place: str, module: Module, source: Source) -> Draft:
    template = model[META]
    line = module.lines.get(place.partition("[")[0], 0)
    if isinstance(template, Called | Named) or not isinstance(template, dict):
        what = "a list around it, which OpenCompass itself refuses: take the list away"
        told = what if isinstance(template, list | tuple) else f"{template}, not a mapping that can be read as syntax"
        raise source.refuse(line, f"{META} is {told}", place)
    abbr = model.get("abbr")
    name = abbr if isinstance(abbr, str) else source.stem
    return _draft(template, model, name, place, line, module, source)


def _draft(
    template: Mapping[str, Any], model: Mapping[str, Any], name: str, place: str, line: int, module: Module,
    source: Source,
) -> Draft:  # fmt: skip
    error = refuse_trouble(module, template, META, source)
    if error is not None:
        raise error
    notes: list[str] = []
    keys: dict[str, Any] = {"kind": "meta", "description": f"Imported from the OpenCompass config {source.short}."}
    keys |= _kept(template, "", TEMPLATE_KEYS, notes)
    for part in ("round", "reserved_roles"):
        if isinstance(keys.get(part), list | tuple):
            keys[part] = [
                _kept(one, f"{part}[{number}].", ROLE_KEYS, notes) if isinstance(one, dict) else one
                for number, one in enumerate(keys[part])
            ]
    stops = _stops(model, keys, notes)
    if stops:
        keys["stop"] = stops
    begin = keys.get("begin")
    if isinstance(begin, str) and begin.startswith("<"):
        notes.append(f"begin starts with {begin[:20]!r}: if that is the model's BOS, add `bos: text` and `bos_text`")
    notes += [_placed(key, value) for key, value in model.items() if key not in IGNORED]
    where = ", ".join([one for one in (place, f"line {line}" if line else "") if one])
    return Draft(
        name=name.lower(),
        origin=f"the OpenCompass config {source.short}" + (f", {where}" if where else ""),
        digest=source.digest,
        keys=keys,
        notes=(*notes, *module.notes),
        port=_port,
        stands_for="this gateway's own port of OpenCompass's parsers",
    )


def _port(spec: TemplateSpec) -> Reference | None:
    """OpenCompass's parser of string models, as it is ported here and held against the package."""
    if spec.api or spec.turns == "opencompass":
        return None  # the template is the port itself then, and proves nothing
    template = build(replace(spec, turns="opencompass"))
    return Reference(
        "this gateway's port of OpenCompass's parser",
        lambda dialogue: template.render(dialogue).text,
        bos=spec.bos,
        excluded=(TOOLS, NEIGHBOURS, ODD_SYSTEM, STARTS_LATE, ENDS_EARLY, CONTINUED),
        hint="OpenCompass prints a role of `round` that says nothing as an empty turn, which turns: natural does not: "
        "take the role out of `round` (SYSTEM belongs in reserved_roles), or repeat it with --turns opencompass",
    )


def _kept(value: Mapping[str, Any], path: str, known: tuple[str, ...], notes: list[str]) -> dict[str, Any]:
    """The keys that a template file has as well; ``None`` means absent, as the reference's configs write it."""
    for key, one in value.items():
        if key not in known:
            notes.append(f"{META}.{path}{key} = {_short(one)}: OpenCompass does not read it either, as far as is known")
    return {key: value[key] for key in known if value.get(key) is not None}


def _stops(model: Mapping[str, Any], keys: dict[str, Any], notes: list[str]) -> list[str]:
    generation = model.get("generation_kwargs")
    found: list[str] = []
    for owner in (model, generation if isinstance(generation, dict) else {}):
        for name in STOPS:
            value = owner.get(name)
            texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
            found += [text for text in texts if isinstance(text, str) and text]
            if value is not None and not all(isinstance(text, str) for text in texts or [0]):
                notes.append(f"{name} = {_short(value)} is no plain text or list of texts, so it was left out")
    if isinstance(generation, dict) and (end := generation.get("eos_token_id")) is not None:
        ids = end if isinstance(end, list | tuple) else [end]
        if len(ids) == 1 and type(ids[0]) is int and keys.get("eos_token_id", ids[0]) == ids[0]:
            keys["eos_token_id"] = ids[0]
        else:
            notes.append(f"generation_kwargs.eos_token_id = {_short(end)}: a template names one; "
                         "write the others' texts under stop")  # fmt: skip
    return list(dict.fromkeys(found))


def _placed(key: str, value: Any) -> str:
    told = PLACES.get(key, "has no place in a template")
    return f"{key} = {_short(value)}: {told.format(value=value)}"


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, Called | Named) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
