"""Makes a meta template from a FastChat conversation, by probing a renderer of the conversation's separator style.

The source is JSON or YAML with the fields of FastChat's class ``Conversation``, or Python that calls this class.

``fastchat_styles.json`` describes each separator style by these keys:

- ``begin``: the start of every prompt. ``bos``: the BOS that the prompt contains.
- ``system`` and ``without``: the text before the turns, with and without a system message.
- ``needs: message``: the system template is used only for a system message that is not empty.
- ``turn``: any turn. ``first``: the first turn. ``answer``: an assistant turn. ``open``: the requested answer.
- ``round``: the text before a round. ``behind``: the text after an answer.
- ``alternates``: the position of a turn decides its role. ``trims``: white space around messages is removed.

``{either}`` is ``sep`` in even turns and ``sep2`` in odd turns. The styles were compared with FastChat 0.2.36; three
styles are newer than this release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue
from gateway.importer.draft import EMPTY, NO_SYSTEM, STRICT_TURNS, SUBSETS, Draft, Reference
from gateway.importer.python.values import CallExpression, NameReference
from gateway.importer.python_file import PythonFile
from gateway.importer.source import Source
from gateway.importer.turns import NotTurns, infer

FASTCHAT_CLASSES = ("Conversation",)
CONVERSATION_FIELDS = (
    "name", "system_template", "system_message", "roles", "messages", "offset", "sep_style", "sep", "sep2", "stop_str",
    "stop_token_ids", "max_image_size_mb",
)  # fmt: skip
"""The fields of FastChat's class, in the order of its arguments."""
TEXTS = {"name": "", "system_template": "{system_message}", "system_message": "", "sep": "\n", "sep2": ""}
"""Field with a text as its value → the default value."""
DEFAULT_ROLES = ("USER", "ASSISTANT")
STYLE_SLOT = re.compile(r"\{(\w+)\}")


@cache
def styles() -> Mapping[str, Mapping[str, Any]]:
    """Return the styles by name. The file of styles is read only once."""
    text = resources.files(__package__).joinpath("fastchat_styles.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return found


@dataclass(frozen=True, slots=True)
class FastChatConversation:
    """The fields of FastChat's class ``Conversation`` that affect the prompt."""

    name: str
    roles: tuple[str, str]
    sep_style: str
    sep: str = "\n"
    sep2: str = ""
    system_template: str = "{system_message}"

    @property
    def bos_text(self) -> str:
        """The BOS that the style writes into the prompt; empty if the style writes no BOS."""
        return str(styles()[self.sep_style].get("bos", ""))

    @property
    def writes_empty_system(self) -> bool:
        """True: without a system message, FastChat writes an empty system turn."""
        style = styles()[self.sep_style]
        return style.get("needs") != "message" and bool(self.system_template.replace("{system_message}", ""))

    def prompt(self, dialogue: Dialogue) -> str:
        """Return the text of a conversation. It ends with the start of an assistant turn, unless it is complete.

        Raises ``InvalidValue`` if a system message is not the first message, or if FastChat does not support a role.
        """
        style = styles()[self.sep_style]
        system = ""
        turns: list[tuple[str, str | None]] = []
        for number, message in enumerate(dialogue.messages):
            role = message.role
            if role == "system" and number == 0:
                system = message.text
            elif role in ("user", "assistant"):
                turns.append((self.roles[role == "assistant"], message.text))
            else:
                raise InvalidValue(f"FastChat cannot write this {role} message", param=f"messages[{number}].role")
        if not dialogue.options.whole:
            turns.append((self.roles[1], None))
        parts = [style.get("begin", ""), self._system(style, system)]
        parts += [self._turn(style, number, role, text) for number, (role, text) in enumerate(turns)]
        return "".join(parts)

    def _system(self, style: Mapping[str, Any], system: str) -> str:
        prompt = self.system_template.replace("{system_message}", system)
        if not system and (not prompt or style.get("needs") == "message"):
            return self._filled(style.get("without", ""))
        return self._filled(style.get("system", ""), system=prompt)

    def _turn(self, style: Mapping[str, Any], number: int, role: str, text: str | None) -> str:
        answer = number % 2 == 1
        before = "" if answer else style.get("round", "")
        either = self.sep2 if answer else self.sep
        role = self.roles[number % 2] if style.get("alternates") else role
        if not text:  # FastChat treats an empty message as the requested answer
            form = style["open"] if answer or "answer" not in style else style["turn"].partition("{text}")[0]
            return before + self._filled(form, role=role)
        form = style.get("first", style["turn"]) if number == 0 else style["turn"]
        if answer:
            form = style.get("answer", style["turn"])
        text = text.strip() if style.get("trims") else text
        behind = style.get("behind", "") if answer else ""
        return before + self._filled(form, role=role, text=text, either=either) + behind

    def _filled(self, form: str, **slots: str) -> str:
        values = {"sep": self.sep, "sep2": self.sep2, **slots}
        return STYLE_SLOT.sub(lambda found: values[found[1]], form)


def read_fastchat(source: Source, *, subset: tuple[str, ...] = ()) -> list[Draft]:
    """Return a draft for each conversation of the file. Raises ``ConfigError`` if the file cannot be imported."""
    if not source.name.endswith(".py"):
        value = source.value()
        listed = value if isinstance(value, list) else [value]
        if not listed or not all(isinstance(one, dict) for one in listed):
            raise source.refuse(0, "the file must contain a mapping with FastChat's fields, such as name and sep_style")
        return [_draft(one, 0, source, subset) for one in listed]
    file = PythonFile(source)
    drafts = [_draft(_fields(call, file), call.line, source, subset) for _, call in file.find_calls(FASTCHAT_CLASSES)]
    if not drafts:
        raise source.refuse(0, "the file has no call of Conversation(…) with plain values")
    return [replace(draft, notes=(*draft.notes, *file.notes)) for draft in drafts]


def _fields(call: CallExpression, file: PythonFile) -> dict[str, Any]:
    file.check_unchanged(call, "the conversation")
    fields = dict(zip(CONVERSATION_FIELDS, call.args, strict=False)) | dict(call.keywords)
    for name, value in fields.items():
        if name == "sep_style" and isinstance(value, NameReference):
            fields[name] = value.last
        else:
            file.check_plain(value, f"{name} of the conversation")
    return fields


def _draft(fields: Mapping[str, Any], line: int, source: Source, subset: tuple[str, ...]) -> Draft:
    conversation = _conversation(fields, line, source)
    default = _text(fields, "system_message", line, source)
    stops = _listed(fields, "stop_str", lambda one: isinstance(one, str) and one, "text", line, source)
    ids = _listed(fields, "stop_token_ids", lambda one: type(one) is int and one >= 0, "token id", line, source)
    alone = not default and not conversation.writes_empty_system
    system, bos = "system" not in subset, conversation.bos_text
    if not (system or default or alone):
        raise source.refuse(line, "every prompt of this style has a system turn; "
                            "remove the option `--without system`", "system_template")  # fmt: skip
    subsets = [SUBSETS[word] for word in subset]
    reference = Reference(
        name=f"this gateway's table of FastChat's styles, {conversation.sep_style}",
        render=conversation.prompt,
        writes_whole=True,
        bos="none" if bos else "engine",
        default_system=default if system else "",
        excluded=(*([NO_SYSTEM] if system and not alone else []), *subsets, EMPTY, *STRICT_TURNS),
    )
    try:
        turns = infer(reference, bos_text=bos, system=system, alone=alone or not system)
    except NotTurns as error:
        raise error.refuse(source, line, "sep_style", subset) from None
    return Draft(
        name=conversation.name.lower() or source.stem.lower(),
        origin=f"the FastChat conversation {conversation.name!r} of {source.short_name}"
        + (f", line {line}" if line else ""),
        sha256=source.sha256,
        keys={
            "kind": "meta",
            "description": f"Imported from the FastChat conversation {conversation.name}.",
            **turns.keys(),
            **({"eos_token_id": ids[0]} if len(ids) == 1 else {}),
            **({"stop": stops} if stops else {}),
            **({"bos": "text", "bos_text": bos} if bos else {"bos": "engine"}),
        },
        notes=(*_notes(bos, default, fields.get("messages"), ids), *turns.notes([*stops, *map(str, ids)])),
        reference=reference,
    )


def _notes(bos: str, default: str, messages: Any, ids: list[int]) -> Iterator[str]:
    if not bos:
        yield "bos: engine, because FastChat's tokenizers put the model's BOS before the text"
    if default:
        yield (f"system_message: FastChat sends {default!r} if a request has no system message; a template "
               "cannot do this, so clients must send this text")  # fmt: skip
    if messages:
        yield f"messages: clients must send the {len(messages)} given messages before every conversation"
    if len(ids) > 1:
        yield (f"stop_token_ids {ids}: a template can have only one eos_token_id; list the texts of these tokens "
               "under stop")  # fmt: skip


# ---------------------------------------------------------------- fields


def _conversation(fields: Mapping[str, Any], line: int, source: Source) -> FastChatConversation:
    unknown = ", ".join([str(name) for name in fields if name not in CONVERSATION_FIELDS])[:80]
    if unknown:
        raise source.refuse(line, f"unknown field {unknown}; the known fields are {', '.join(CONVERSATION_FIELDS)}")
    style = fields.get("sep_style", "ADD_COLON_SINGLE")
    style = style.rsplit(".", 1)[-1].upper() if isinstance(style, str) else str(style)
    if style not in styles():
        raise source.refuse(line, f"the style {style[:40]!r} is not supported; supported: {', '.join(styles())}",
                            "sep_style")  # fmt: skip
    roles = fields.get("roles", DEFAULT_ROLES)
    if not isinstance(roles, list | tuple) or len(roles) != 2 or not all(isinstance(role, str) for role in roles):
        raise source.refuse(line, "must be a list of two texts: the user's role and the assistant's role", "roles")
    texts = {name: _text(fields, name, line, source) for name in TEXTS if name != "system_message"}
    if "{" in texts["system_template"].replace("{system_message}", ""):
        raise source.refuse(line, "contains a brace outside {system_message}; remove the brace",
                            "system_template")  # fmt: skip
    return FastChatConversation(roles=(roles[0], roles[1]), sep_style=style, **texts)


def _text(fields: Mapping[str, Any], name: str, line: int, source: Source) -> str:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise source.refuse(line, "must be text", name)
    return TEXTS[name] if value is None else value


def _listed(
    fields: Mapping[str, Any], name: str, is_valid: Callable[[Any], Any], what: str, line: int, source: Source
) -> list[Any]:
    """Return the values of a field as a list. The field may contain one value, a list of values, or nothing."""
    value = fields.get(name)
    entries = list(value) if isinstance(value, list | tuple) else [] if value in (None, "") else [value]
    if not all(map(is_valid, entries)):
        raise source.refuse(line, f"must be a {what} or a list of {what}s", name)
    return entries
