"""The parsers of the chat inferencer, for OpenAI messages (``docs/spec/opencompass.md`` 8).

Message order, no rounds, no fallbacks, meta ``begin`` and ``end`` unused, and for string models always an open
assistant turn at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metatemplate.errors import TemplateFailure
from tests.support.reference.opencompass.prompt_list import PromptList

OPENAI_ROLES: Mapping[str, str] = {"SYSTEM": "system", "HUMAN": "user", "BOT": "assistant"}
DEFAULT_API_ROLES: Mapping[str, str] = {"system": "SYSTEM", "user": "HUMAN", "assistant": "BOT"}

Messages = Sequence[Mapping[str, Any]]


class ChatLMParser:
    """Messages to a string."""

    def __init__(self, meta_template: Mapping[str, Any] | None = None) -> None:
        self._roles = _by_openai_role(meta_template)

    def parse(self, chat: Any) -> Any:
        """A chat becomes a string, a list of chats a list of strings, an empty chat ``[]``. Raises TemplateFailure."""
        return _each(chat, self._one)

    def _one(self, chat: Messages) -> str:
        roles = self._roles
        if not roles:
            return "\n".join([_text(_content(message), "content") for message in chat])
        if "assistant" not in roles:
            raise TemplateFailure("the meta template has no BOT role, so no role can answer; add one")
        pieces: list[str] = []
        for message in chat:
            role = roles.get(_role(message), {})
            content = _text(_content(message), "content")
            pieces += [_text(role.get("begin") or "", "begin"), content, _text(role.get("end") or "", "end")]
        pieces.append(_text(roles["assistant"].get("begin") or "", "begin"))
        return "".join(pieces)


class ChatAPIParser:
    """Messages to ``{"role": api_role, "prompt": content}``, one for one."""

    def __init__(self, meta_template: Mapping[str, Any] | None = None) -> None:
        self._roles = _by_openai_role(meta_template)

    def parse(self, chat: Any) -> Any:
        """A chat becomes a PromptList, a list of chats a list of them, an empty chat ``[]``. Raises TemplateFailure."""
        return _each(chat, self._one)

    def _one(self, chat: Messages) -> PromptList:
        return PromptList(
            {"role": _api_role(_role(message), self._roles), "prompt": _content(message)} for message in chat
        )


def to_chat(prompt: str | Sequence[Any]) -> list[dict[str, Any]]:
    """A PromptList as messages; strings are user messages, roles other than the three are left out.

    An item that holds the word ``section`` is taken for a marker, as in the reference;
    an empty string, on which the reference crashes, is skipped.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, (list, tuple)):
        raise TemplateFailure(f"a prompt is a string or a PromptList, not {type(prompt).__name__}")
    messages: list[dict[str, Any]] = []
    for item in prompt:
        if not isinstance(item, (str, dict)):
            raise TemplateFailure(f"a PromptList holds strings and dicts, not {type(item).__name__}")
        if item == "" or "section" in item:
            continue
        if isinstance(item, str):
            messages.append({"role": "user", "content": item})
        elif (role := _role(item)) in OPENAI_ROLES:
            if "prompt" not in item:
                raise TemplateFailure(f"a turn of role {role} has no prompt")
            messages.append({"role": OPENAI_ROLES[role], "content": item["prompt"]})
    return messages


def _each(chat: Any, one: Any) -> Any:
    if not isinstance(chat, (list, tuple)):
        raise TemplateFailure(f"a chat is a list of messages, not {type(chat).__name__}")
    if not chat:
        return []
    if isinstance(chat[0], Mapping):
        return one(chat)
    return [_each(inner, one) for inner in chat]


def _by_openai_role(meta_template: Mapping[str, Any] | None) -> dict[Any, Mapping[str, Any]] | None:
    if not meta_template:
        return None
    if not isinstance(meta_template, Mapping):
        raise TemplateFailure("a meta template is a mapping")
    roles: dict[Any, Mapping[str, Any]] = {}
    for role in [*_entries(meta_template, "round"), *_entries(meta_template, "reserved_roles")]:
        if not isinstance(role, Mapping):
            raise TemplateFailure("the message parsers take roles only; a string in the meta round has no place there")
        name = _role(role)
        roles[OPENAI_ROLES.get(name, name)] = role
    return roles


def _entries(meta_template: Mapping[str, Any], key: str) -> list[Any]:
    entries = meta_template.get(key, [])
    if entries in ("", {}):
        return []
    if not isinstance(entries, list):
        raise TemplateFailure(f"{key} of a meta template is a list")
    return entries


def _role(message: Mapping[str, Any]) -> Any:
    if not isinstance(message, Mapping) or "role" not in message:
        raise TemplateFailure("a message or turn has no `role`")
    if isinstance(message["role"], (list, dict)):
        raise TemplateFailure("a role's name is a string")
    return message["role"]


def _content(message: Mapping[str, Any]) -> Any:
    return message.get("content") or ""


def _text(text: Any, what: str) -> str:
    if not isinstance(text, str):
        raise TemplateFailure(f"{what} must be text for a string model, not {type(text).__name__}")
    return text


def _api_role(name: Any, roles: Mapping[Any, Mapping[str, Any]] | None) -> Any:
    """The role an API model knows; unknown ones stay as they are."""
    if roles is None:
        return DEFAULT_API_ROLES.get(name, name)
    if name not in roles:
        return name
    if "api_role" not in roles[name]:
        raise TemplateFailure(f'role "{roles[name]["role"]}" has no api_role; every role of an API template needs one')
    return roles[name]["api_role"]
