"""The gateway's LM and API parsers behind the constructors and ``parse`` methods of the reference.

Rules: ``docs/spec/opencompass.md`` 4 and 5. Where the reference crashes by accident (section 12), a flat list is one
round, the end section opens with its first marker, and all other crashes are TemplateErrors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from metatemplate.errors import TemplateFailure
from metatemplate.opencompass import parsers
from metatemplate.opencompass.parsers import Role
from tests.support.reference.opencompass.dialect import OPENCOMPASS, Dialect
from tests.support.reference.opencompass.prompt_list import PromptList, appended, is_marker

MESSAGE_ROLES = ("system", "user", "assistant")
SECTIONS = ("begin", "round", "end", "ice")


class LMParser:
    """Turns prompts into text; the same in both packages."""

    def __init__(self, meta_template: Mapping[str, Any] | None = None) -> None:
        """Raises TemplateFailure for a meta template that the reference refuses at once."""
        self._parser: parsers.LMParser | None = None
        if meta_template:
            checked = checked_meta_template(meta_template)
            for role in (*checked["round"], *checked["reserved_roles"]):
                if isinstance(role, dict) and any(isinstance(role.get(key), list) for key in ("begin", "end")):
                    raise TemplateFailure(f'role "{role["role"]}": token lists are not supported; write text')
            self._parser = parsers.LMParser(checked)

    def parse(self, prompt: Any, mode: Any = "gen") -> Any:
        """A string stays as it is; a PromptList becomes text; a plain list or tuple, each of its elements."""
        return parse_each(prompt, mode, self._text)

    def _text(self, items: PromptList, mode: Any) -> str:
        if self._parser is None:
            return joined_by_lines(items)
        try:
            return "".join([piece.text for piece in self._parser.pieces(nested(items), mode)])
        except TypeError as error:
            raise TemplateFailure("begin, prompt and end must be text for a string model") from error


class APIParser(parsers.APIParser):
    """Turns prompts into lists of messages."""

    def __init__(self, meta_template: Any = None, dialect: Dialect = OPENCOMPASS) -> None:
        """Raises TemplateFailure for a meta template that the reference refuses at once."""
        self._dialect = dialect
        self._leading: list[Any] | None = None
        self._meta: Mapping[str, Any] | None = None
        if isinstance(meta_template, list):
            self._leading = leading_messages(meta_template, dialect)
        elif meta_template:
            self._meta = checked_meta_template(meta_template)
            super().__init__(self._meta)

    def parse(self, prompt: Any, mode: Any = "gen") -> Any:
        """A string stays as it is; a PromptList becomes messages; a plain list or tuple, each of its elements."""
        if self._dialect.takes_messages and are_messages(prompt):
            return deepcopy(prompt) if self._leading is None else merged_lists(self._leading, prompt)
        return parse_each(prompt, mode, self._messages)

    def _messages(self, items: PromptList, mode: Any) -> Any:
        if self._leading is not None:
            raise TemplateFailure("a meta template that is a list of messages takes only a list of messages")
        if self._meta is None:
            return self._without_template(items)
        if any(isinstance(entry, str) for entry in self._meta["round"]):
            raise TemplateFailure("a string in the meta round has no api_role; remove it")
        try:
            merged = PromptList(merge_neighbours(message for _, message in self.messages(nested(items), mode)))
        except KeyError as error:
            raise TemplateFailure(f"a role has no {error}; every role of an API template needs one") from error
        if not merged:
            raise TemplateFailure("no message to send: there is no turn before the role that generates")
        return PromptList([self._meta["begin"], *merged]) if self._meta["begin"] else merged

    def _without_template(self, items: PromptList) -> Any:
        text = joined_by_lines(items)
        if text or not self._dialect.takes_parts:
            return text
        return [part for item in items if isinstance(item, dict) for part in item.get("prompt_mm", ())]

    def prompt(self, role: Role) -> Any:
        """The message's content, which may be a list of parts in AISBench."""
        if self._dialect.takes_parts and "prompt" not in role and "prompt_mm" in role:
            return role["prompt_mm"]
        if self._dialect.prompt_required and "prompt" not in role:
            raise TemplateFailure(f'role "{role.get("role")}" has neither prompt nor prompt_mm')
        content: Any = role.get("begin", "")
        for key in ("prompt", "end"):
            content = appended(content, role.get(key, ""))
        return content


def parse_each(prompt: Any, mode: Any, parse: Callable[[PromptList, Any], Any]) -> Any:
    """Apply ``parse`` to every PromptList of a prompt; strings stay."""
    if isinstance(prompt, (list, tuple)) and not isinstance(prompt, PromptList):
        return [parse_each(one, mode, parse) for one in prompt]
    if mode not in ("gen", "ppl"):
        raise TemplateFailure(f"mode is gen or ppl, not {mode!r}")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, PromptList):
        return parse(prompt, mode)
    raise TemplateFailure(f"a prompt is a string, a PromptList or a list of them, not {type(prompt).__name__}")


def checked_meta_template(meta_template: Mapping[str, Any]) -> dict[str, Any]:
    """The meta template with all its keys. Raises TemplateFailure for one without usable roles."""
    if not isinstance(meta_template, Mapping):
        raise TemplateFailure("a meta template is a mapping with the key `round`")
    if "round" not in meta_template:
        raise TemplateFailure("round is required in a meta template")
    complete = {"begin": "", "end": "", "reserved_roles": [], **meta_template}
    names: list[Any] = []
    for key in ("round", "reserved_roles"):
        if not isinstance(complete[key], list) or (key == "round" and not complete[key]):
            raise TemplateFailure(f"{key} of a meta template is a list, and the round is not empty")
        for role in complete[key]:
            if not isinstance(role, (str, dict)) or (isinstance(role, dict) and not isinstance(role.get("role"), str)):
                raise TemplateFailure(f"{key} of a meta template holds strings, and roles that have a name")
            if isinstance(role, dict) and role["role"] in names:
                raise TemplateFailure(f'role "{role["role"]}" is defined twice')
            names += [role["role"]] if isinstance(role, dict) else []
    complete["reserved_roles"] = [role for role in complete["reserved_roles"] if isinstance(role, dict)]
    return complete


def nested(items: PromptList) -> list[Any]:
    """The items of a PromptList with sections that nest. Raises TemplateFailure if they cannot."""
    if not all(isinstance(item, (str, dict)) for item in items):
        raise TemplateFailure("a PromptList holds strings and dicts")
    dicts = [item for item in items if isinstance(item, dict)]
    if dicts and not any(map(is_marker, dicts)):
        return [{"section": "round", "pos": "begin"}, *items, {"section": "round", "pos": "end"}]
    open_sections: list[Any] = []
    result: list[Any] = []
    for item in items:
        result.append(item)
        if isinstance(item, str):
            continue
        if not is_marker(item):
            if not open_sections or "role" not in item:
                raise TemplateFailure("a turn stands in a section and has a `role`")
            continue
        section, pos = item["section"], item["pos"]
        if section not in SECTIONS or pos not in ("begin", "end"):
            raise TemplateFailure(f"unknown section marker {section!r}, {pos!r}")
        if pos == "begin" or (section == "end" and not open_sections):
            open_sections.append(section)
            result[-1] = {"section": section, "pos": "begin"}
        elif not open_sections or open_sections.pop() != section:
            raise TemplateFailure(f"section {section!r} ends and was not the last to begin")
    return result


def joined_by_lines(items: Sequence[Any]) -> str:
    """Without a meta template: texts joined by line breaks; an empty item still puts a break before the next."""
    text, armed = "", False
    for item in items:
        if not isinstance(item, (str, dict)):
            raise TemplateFailure(f"a PromptList holds strings and dicts, not {type(item).__name__}")
        if isinstance(item, dict) and is_marker(item):
            continue
        prompt = item if isinstance(item, str) else item.get("prompt", "")
        if prompt and not isinstance(prompt, str):
            raise TemplateFailure("prompt must be text for a string model")
        text += ("\n" if armed else "") + prompt if prompt else ""
        armed = True
    return text


def merge_neighbours(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbours of one role, empty ones too, with a line break between."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["prompt"] = _joined(merged[-1]["prompt"], message["prompt"])
        else:
            merged.append(dict(message))
    return merged


def _joined(first: Any, second: Any) -> Any:
    """Two prompts as one: texts with a line break between, or one list of content parts."""
    if isinstance(second, str):
        return appended(first, f"\n{second}")
    if isinstance(second, list) and isinstance(first, (str, list)):
        return [*(first if isinstance(first, list) else [{"type": "text", "text": first}]), *second]
    raise TemplateFailure("neighbours of one api_role cannot be joined: a prompt is neither text nor a list of parts")


def leading_messages(meta_template: list[Any], dialect: Dialect) -> list[Any]:
    """A meta template that is a list of messages, checked."""
    if not dialect.takes_messages:
        raise TemplateFailure("a meta template is a mapping with the key `round`, not a list")
    for message in meta_template:
        if not isinstance(message, dict) or message.get("role") not in MESSAGE_ROLES or "content" not in message:
            raise TemplateFailure(
                "a list as meta template holds messages with role system, user or assistant, and content"
            )
    return meta_template


def are_messages(prompt: Any) -> bool:
    """True for a list of messages, or of strings that hold both words, as in the reference."""
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(item, (dict, str)) and "role" in item and "content" in item for item in prompt)
    )


def merged_lists(leading: Sequence[Any], prompt: Sequence[Any]) -> list[Any]:
    """Meta messages laid over the prompt's: same role, contents joined; missing role, message inserted."""
    rest = [deepcopy(message) for message in prompt]
    if not all(isinstance(message, dict) for message in rest):
        raise TemplateFailure("a meta template that is a list of messages takes only a list of messages")
    out: list[Any] = []
    place = 0
    for message in leading:
        role = message["role"]
        while place < len(rest) and rest[place]["role"] != role and any(m["role"] == role for m in rest[place:]):
            out.append(rest[place])
            place += 1
        if place < len(rest) and rest[place]["role"] == role:
            out.append({**rest[place], "content": appended(message["content"], rest[place]["content"])})
            place += 1
        else:
            out.append(deepcopy(message))
    return out + rest[place:]
