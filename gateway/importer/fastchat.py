"""A FastChat conversation becomes a meta template: its separator style is rendered, and the turns are found by probing.

Read from JSON or YAML with the fields of FastChat's ``Conversation``, or from calls of it in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

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


def read_fastchat(source: Source, *, subset: tuple[str, ...] = ()) -> list[Draft]:
    """A draft for each conversation of the file. Raises ``ConfigError``."""
    if not source.name.endswith(".py"):
        value = source.value()
        listed = value if isinstance(value, list) else [value]
        if not listed or not all(isinstance(one, dict) for one in listed):
            raise source.refuse(0, "does not hold a conversation: a mapping with name, roles, sep_style, sep …")
        return [_draft(one, 0, source, subset) for one in listed]
    file = PythonFile(source)
    drafts = [_draft(_fields(call, file), call.line, source, subset) for _, call in file.find_calls(CLASSES)]
    if not drafts:
        raise source.refuse(0, "has no call of Conversation(…) with literal arguments")
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
    if not (system or default or alone):
        raise source.refuse(line, "FastChat writes an empty system turn if there is no system message, so every prompt "
                            "has one: leave out --without system", "system_template")  # fmt: skip
    bos = conversation.bos_text
    reference = Reference(
        name=f"this gateway's table of FastChat's styles, {conversation.sep_style}",
        render=conversation.prompt,
        whole=partial(conversation.prompt, open_turn=False),
        bos="none" if bos else "engine",
        default_system=default if system else "",
        excluded=(
            *([NO_SYSTEM] if system and not alone else []), *[SUBSETS[word] for word in subset], EMPTY, *STRICT_TURNS,
        ),
    )  # fmt: skip
    try:
        turns = infer(reference, bos_text=bos, system=system, alone=alone or not system)
    except NotTurns as error:
        raise error.refuse(source, line, "sep_style", subset) from None
    stops = _listed(fields, "stop_str", lambda one: isinstance(one, str) and one, "text", line, source)
    ids = _listed(fields, "stop_token_ids", lambda one: type(one) is int and one >= 0, "token id", line, source)
    notes = [] if bos else ["bos: engine, because FastChat's tokenizers put the model's BOS before the text"]
    if default:
        notes.append(f"system_message: FastChat sends {default!r} when a request brings no system message; a template "
                     "has no such default: let clients send it")  # fmt: skip
    if given := fields.get("messages"):
        notes.append(f"messages: {len(given)} given messages before every conversation; let clients send them")
    if len(ids) > 1:
        notes.append(f"stop_token_ids {ids}: a template names one eos_token_id; write the others' texts under stop")
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
        notes=(*notes, *turns.notes([*stops, *map(str, ids)])),
        reference=reference,
    )


# ---------------------------------------------------------------- fields


def _conversation(fields: Mapping[str, Any], line: int, source: Source) -> Conversation:
    unknown = ", ".join([str(name) for name in fields if name not in FIELDS])[:80]
    if unknown:
        raise source.refuse(line, f"a conversation has no field {unknown}: {', '.join(FIELDS)}")
    style = fields.get("sep_style", "ADD_COLON_SINGLE")
    style = style.rsplit(".", 1)[-1].upper() if isinstance(style, str) else str(style)
    if style not in styles():
        raise source.refuse(line, f"the style {style[:40]!r} is not supported; supported: {', '.join(styles())}",
                            "sep_style")  # fmt: skip
    roles = fields.get("roles", DEFAULT_ROLES)
    if not isinstance(roles, list | tuple) or len(roles) != 2 or not all(isinstance(role, str) for role in roles):
        raise source.refuse(line, "must be two texts, for the user and the assistant", "roles")
    texts = {name: _text(fields, name, line, source) for name in TEXTS if name != "system_message"}
    if "{" in texts["system_template"].replace("{system_message}", ""):
        raise source.refuse(line, "has a brace outside {system_message}: FastChat would fill or refuse it",
                            "system_template")  # fmt: skip
    return Conversation(roles=(roles[0], roles[1]), sep_style=style, **texts)


def _text(fields: Mapping[str, Any], name: str, line: int, source: Source) -> str:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise source.refuse(line, "must be text", name)
    return TEXTS[name] if value is None else value


def _listed(
    fields: Mapping[str, Any], name: str, is_valid: Callable[[Any], Any], what: str, line: int, source: Source
) -> list[Any]:
    """The entries of a field that holds one, several or none."""
    value = fields.get(name)
    entries = list(value) if isinstance(value, list | tuple) else [] if value in (None, "") else [value]
    if not all(map(is_valid, entries)):
        raise source.refuse(line, f"must be a {what} or a list of {what}s", name)
    return entries
