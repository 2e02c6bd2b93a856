"""How does a FastChat conversation become a meta template? Its separator style is rendered, and the turns are probed.

Read from JSON or YAML with the fields of FastChat's ``Conversation``, or from Python with calls of it, as syntax.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.importer.draft import (
    CONTINUED,
    EMPTY,
    ENDS_EARLY,
    NEIGHBOURS,
    NO_SYSTEM,
    ODD_SYSTEM,
    STARTS_LATE,
    SUBSETS,
    TOOLS,
    Draft,
    Exclusion,
    Reference,
)
from gateway.importer.python_source.module import read_module
from gateway.importer.python_source.values import Called, Module, Named, refuse_changed, refuse_trouble
from gateway.importer.separators import Conversation, styles
from gateway.importer.source import Source
from gateway.importer.turns import NotTurns, infer

CLASS = ("Conversation",)
FIELDS = (
    "name", "system_template", "system_message", "roles", "messages", "offset", "sep_style", "sep", "sep2", "stop_str",
    "stop_token_ids", "max_image_size_mb",
)  # fmt: skip
"""In the order of the class, for arguments without names."""
TEXTS = {"name": "", "system_template": "{system_message}", "system_message": "", "sep": "\n", "sep2": ""}
"""Fields that are texts, with the class's defaults; ``sep2`` is None there."""
DEFAULT_ROLES = ("USER", "ASSISTANT")


def read_fastchat(source: Source, *, subset: Iterable[str] = ()) -> list[Draft]:
    """A draft for each conversation of the file. Raises ``ConfigError``."""
    if not source.name.endswith(".py"):
        value = source.value()
        listed = value if isinstance(value, list) else [value]
        if not listed or not all(isinstance(one, dict) for one in listed):
            raise source.refuse(0, "holds no conversation: a mapping with name, roles, sep_style, sep …")
        return [_draft(one, 0, source, tuple(subset)) for one in listed]
    module = read_module(source)
    found = [call for _, call in module.find_calls(CLASS)]
    if not found:
        raise source.refuse(0, "calls Conversation(…) nowhere that can be read as syntax")
    drafts = [_draft(_fields(call, module, source), call.line, source, tuple(subset)) for call in found]
    return [replace(draft, notes=(*draft.notes, *module.notes)) for draft in drafts]


def _fields(call: Called, module: Module, source: Source) -> dict[str, Any]:
    if (error := refuse_changed(module, call, "the conversation", source)) is not None:
        raise error
    fields = dict(zip(FIELDS, call.args, strict=False)) | dict(call.keywords)
    for name, value in fields.items():
        if name == "sep_style" and isinstance(value, Named):
            fields[name] = value.last
        elif (error := refuse_trouble(module, value, f"{name} of the conversation", source)) is not None:
            raise error
    return fields


def _draft(fields: Mapping[str, Any], line: int, source: Source, subset: tuple[str, ...]) -> Draft:
    conversation = _conversation(fields, line, source)
    default = _text(fields, "system_message", line, source)
    alone = not default and not conversation.writes_empty_system
    system = "system" not in subset
    if not system and not alone and conversation.writes_empty_system and not default:
        raise source.refuse(line, "FastChat writes an empty system turn when there is no system message, so nothing is "
                            "left without system messages: import with them", "system_template")  # fmt: skip
    try:
        turns = infer(
            lambda messages, open_turn: conversation.prompt(messages, open_turn=open_turn),
            bos_text=conversation.bos_text,
            system=system,
            alone=alone or not system,
        )
    except NotTurns as error:
        hint = "; --without system leaves system messages out" if system else ""
        raise source.refuse(line, f"begin and end of roles cannot say this style: {error.message}{hint}",
                            "sep_style") from None  # fmt: skip
    stops, ids, notes = _stops(fields, line, source)
    bos = conversation.bos_text
    keys: dict[str, Any] = {
        "kind": "meta",
        "description": f"Imported from the FastChat conversation {conversation.name}.",
        **turns.keys(),
        **({"eos_token_id": ids[0]} if len(ids) == 1 else {}),
        **({"stop": stops} if stops else {}),
        **({"bos": "text", "bos_text": bos} if bos else {"bos": "engine"}),
    }
    return Draft(
        name=conversation.name.lower() or source.stem.lower(),
        origin=f"the FastChat conversation {conversation.name!r} of {source.short}"
        + (f", line {line}" if line else ""),
        digest=source.digest,
        keys=keys,
        notes=(*_notes(fields, default, conversation), *notes, *turns.unended([*stops, *map(str, ids)])),
        reference=_reference(conversation, alone=alone, default=default, subset=subset),
        subset=subset,
    )


def _reference(conversation: Conversation, *, alone: bool, default: str, subset: tuple[str, ...]) -> Reference:
    def render(dialogue: Dialogue) -> str:
        return conversation.prompt(_messages(dialogue))

    def whole(dialogue: Dialogue) -> str:
        return conversation.prompt(_messages(dialogue), open_turn=False)

    always: tuple[Exclusion, ...] = (TOOLS, EMPTY, NEIGHBOURS, ODD_SYSTEM, STARTS_LATE, ENDS_EARLY, CONTINUED)
    excluded = (*[SUBSETS[word] for word in subset], *always)
    if "system" not in subset and not alone:
        excluded = (NO_SYSTEM, *excluded)
    bos = conversation.bos_text
    return Reference(
        f"this gateway's table of FastChat's styles, {conversation.sep_style}",
        render,
        whole,
        "none" if bos else "engine",
        "" if "system" in subset else default,
        excluded,
    )


def _messages(dialogue: Dialogue) -> list[dict[str, str]]:
    return [{"role": one.role, "content": one.text} for one in dialogue.messages]


# ---------------------------------------------------------------- fields


def _conversation(fields: Mapping[str, Any], line: int, source: Source) -> Conversation:
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise source.refuse(
            line, f"a conversation has no field {', '.join(map(str, unknown))[:80]}: {', '.join(FIELDS)}"
        )
    style = fields.get("sep_style", "ADD_COLON_SINGLE")
    style = style.rsplit(".", 1)[-1].upper() if isinstance(style, str) else style
    if style not in styles():
        raise source.refuse(line, f"the style {str(style)[:40]!r} is not known here; known: {', '.join(styles())}",
                            "sep_style")  # fmt: skip
    roles = fields.get("roles", DEFAULT_ROLES)
    if not isinstance(roles, list | tuple) or len(roles) != 2 or not all(isinstance(role, str) for role in roles):
        raise source.refuse(line, "must be two texts, for the user and the assistant", "roles")
    texts = {name: _text(fields, name, line, source) for name in TEXTS if name != "system_message"}
    if texts["system_template"].replace("{system_message}", "").count("{"):
        raise source.refuse(line, "holds another brace than {system_message}: FastChat would fill or refuse it",
                            "system_template")  # fmt: skip
    return Conversation(roles=(roles[0], roles[1]), sep_style=style, **texts)


def _text(fields: Mapping[str, Any], name: str, line: int, source: Source) -> str:
    value = fields.get(name)
    if value is None:
        return TEXTS[name]
    if not isinstance(value, str):
        raise source.refuse(line, "must be text", name)
    return value


def _stops(fields: Mapping[str, Any], line: int, source: Source) -> tuple[list[str], list[int], list[str]]:
    stops: list[Any] = _listed(fields.get("stop_str"))
    ids: list[Any] = _listed(fields.get("stop_token_ids"))
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise source.refuse(line, "must be a text or a list of texts", "stop_str")
    if not all(type(one) is int and one >= 0 for one in ids):
        raise source.refuse(line, "must be a list of token ids", "stop_token_ids")
    notes = []
    if len(ids) > 1:
        notes.append(f"stop_token_ids {ids}: a template names one eos_token_id; write the others' texts under stop")
    return stops, ids, notes


def _listed(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _notes(fields: Mapping[str, Any], default: str, conversation: Conversation) -> list[str]:
    notes = []
    if not conversation.bos_text:
        notes.append("bos: engine, because FastChat's tokenizers put the model's BOS before the text")
    if default:
        notes.append(f"system_message: FastChat sends {default!r} when a request brings no system message; a template "
                     "has no such default: let clients send it")  # fmt: skip
    if fields.get("messages"):
        notes.append(
            f"messages: {len(fields['messages'])} given messages before every conversation; let clients send them"
        )
    return notes
