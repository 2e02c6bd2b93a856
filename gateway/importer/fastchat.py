"""A FastChat conversation becomes a meta template: its separator style is rendered, and the turns are found by probing.

Read from JSON or YAML with the fields of FastChat's ``Conversation``, or from calls of it in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.importer.draft import EMPTY, NO_SYSTEM, STRICT_TURNS, SUBSETS, Draft, Reference
from gateway.importer.fastchat_styles import Conversation, styles
from gateway.importer.python_file import CallExpression, NameReference, PythonFile
from gateway.importer.source import Source
from gateway.importer.turns import NotTurns, infer

CLASSES = ("Conversation",)
FIELDS = (
    "name", "system_template", "system_message", "roles", "messages", "offset", "sep_style", "sep", "sep2", "stop_str",
    "stop_token_ids", "max_image_size_mb",
)  # fmt: skip
"""In the order of the class's arguments."""
TEXTS = {"name": "", "system_template": "{system_message}", "system_message": "", "sep": "\n", "sep2": ""}
"""Fields that are texts, with their defaults."""
DEFAULT_ROLES = ("USER", "ASSISTANT")


def read_fastchat(source: Source, *, subset: Iterable[str] = ()) -> list[Draft]:
    """A draft for each conversation of the file. Raises ``ConfigError``."""
    if not source.name.endswith(".py"):
        value = source.value()
        listed = value if isinstance(value, list) else [value]
        if not listed or not all(isinstance(one, dict) for one in listed):
            raise source.refuse(0, "does not hold a conversation: a mapping with name, roles, sep_style, sep …")
        return [_draft(one, 0, source, tuple(subset)) for one in listed]
    file = PythonFile(source)
    found = [call for _, call in file.find_calls(CLASSES)]
    if not found:
        raise source.refuse(0, "has no call of Conversation(…) with literal arguments")
    drafts = [_draft(_fields(call, file), call.line, source, tuple(subset)) for call in found]
    return [replace(draft, notes=(*draft.notes, *file.notes)) for draft in drafts]


def _fields(call: CallExpression, file: PythonFile) -> dict[str, Any]:
    file.check_unchanged(call, "the conversation")
    fields = dict(zip(FIELDS, call.args, strict=False)) | dict(call.keywords)
    for name, value in fields.items():
        if name == "sep_style" and isinstance(value, NameReference):
            fields[name] = value.last
        else:
            file.check_plain(value, f"{name} of the conversation")
    return fields


def _draft(fields: Mapping[str, Any], line: int, source: Source, subset: tuple[str, ...]) -> Draft:
    conversation = _conversation(fields, line, source)
    default = _text(fields, "system_message", line, source)
    alone = not default and not conversation.writes_empty_system
    system = "system" not in subset
    if not system and not default and conversation.writes_empty_system:
        raise source.refuse(line, "FastChat writes an empty system turn if there is no system message, so every prompt "
                            "has one: leave out --without system", "system_template")  # fmt: skip
    reference = _reference(conversation, alone=alone, default=default, subset=subset)
    try:
        turns = infer(reference, bos_text=conversation.bos_text, system=system, alone=alone or not system)
    except NotTurns as error:
        raise error.refuse(source, line, "sep_style", subset) from None
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
        origin=f"the FastChat conversation {conversation.name!r} of {source.short_name}"
        + (f", line {line}" if line else ""),
        sha256=source.sha256,
        keys=keys,
        notes=(*_notes(fields, default, conversation), *notes, *turns.notes([*stops, *map(str, ids)])),
        reference=reference,
    )


def _reference(conversation: Conversation, *, alone: bool, default: str, subset: tuple[str, ...]) -> Reference:
    def prompt(dialogue: Dialogue, open_turn: bool) -> str:
        messages = [{"role": one.role, "content": one.text} for one in dialogue.messages]
        return conversation.prompt(messages, open_turn=open_turn)

    own_system = () if "system" in subset or alone else (NO_SYSTEM,)
    return Reference(
        name=f"this gateway's table of FastChat's styles, {conversation.sep_style}",
        render=lambda dialogue: prompt(dialogue, True),
        whole=lambda dialogue: prompt(dialogue, False),
        bos="none" if conversation.bos_text else "engine",
        default_system="" if "system" in subset else default,
        excluded=(*own_system, *[SUBSETS[word] for word in subset], EMPTY, *STRICT_TURNS),
    )


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
        raise source.refuse(line, f"the style {str(style)[:40]!r} is not supported; supported: {', '.join(styles())}",
                            "sep_style")  # fmt: skip
    roles = fields.get("roles", DEFAULT_ROLES)
    if not isinstance(roles, list | tuple) or len(roles) != 2 or not all(isinstance(role, str) for role in roles):
        raise source.refuse(line, "must be two texts, for the user and the assistant", "roles")
    texts = {name: _text(fields, name, line, source) for name in TEXTS if name != "system_message"}
    if texts["system_template"].replace("{system_message}", "").count("{"):
        raise source.refuse(line, "has a brace outside {system_message}: FastChat would fill or refuse it",
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
    given = [fields.get(name) for name in ("stop_str", "stop_token_ids")]
    stops, ids = [
        list(one) if isinstance(one, list | tuple) else [] if one is None or one == "" else [one] for one in given
    ]
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise source.refuse(line, "must be a text or a list of texts", "stop_str")
    if not all(type(one) is int and one >= 0 for one in ids):
        raise source.refuse(line, "must be a list of token ids", "stop_token_ids")
    notes = []
    if len(ids) > 1:
        notes.append(f"stop_token_ids {ids}: a template names one eos_token_id; write the others' texts under stop")
    return stops, ids, notes


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
