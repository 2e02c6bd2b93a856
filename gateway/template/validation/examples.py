"""The form of the examples inside a template file. Their results are checked by ``registry.run_examples``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.template.spec.template import Example
from gateway.template.validation.problems import Path, Problems

EXAMPLE_KEYS = ("messages", "prompt", "sent", "continue_final_message", "tools", "tool_choice", "variables")
RESULT_KEYS = {True: ("sent", "prompt"), False: ("prompt", "sent")}
"""True for a template that makes messages → the valid key, the invalid key."""


def read_examples(value: Any, problems: Problems, *, sends_messages: bool) -> tuple[Example, ...]:
    """The examples; mistakes are added to ``problems``."""
    listed = problems.items(value, ("examples",))
    return tuple(_example(entry, ("examples", number), problems, sends_messages) for number, entry in enumerate(listed))


def _example(value: Any, path: Path, problems: Problems, sends_messages: bool) -> Example:
    entry = problems.mapping(value, path, "an example")
    problems.keys(entry, EXAMPLE_KEYS, path)
    right, wrong = RESULT_KEYS[sends_messages]
    if wrong in entry:
        made = "messages, so write `sent`" if sends_messages else "a string, so write `prompt`"
        problems.add((*path, wrong), f"this template makes {made}")
    elif entry and right not in entry:
        problems.add(path, f"an example without `{right}` checks nothing: add the expected result")
    return Example(
        messages=_messages(entry.get("messages"), (*path, "messages"), problems),
        prompt=problems.text(entry["prompt"], (*path, "prompt")) if "prompt" in entry else None,
        sent=tuple(problems.items(entry["sent"], (*path, "sent"))) if "sent" in entry else None,
        continue_final=problems.flag(entry.get("continue_final_message", False), (*path, "continue_final_message")),
        tools=_tools(entry, path, problems),
        tool_choice=entry.get("tool_choice"),
        variables=problems.mapping(entry.get("variables", {}), (*path, "variables"), "variables"),
    )


def _tools(entry: Mapping[str, Any], path: Path, problems: Problems) -> tuple[Mapping[str, Any], ...]:
    tools = problems.items(entry.get("tools", ()), (*path, "tools"))
    for number, tool in enumerate(tools):
        problems.mapping(tool, (*path, "tools", number), "a tool")
    choice = entry.get("tool_choice")
    if choice is not None and not isinstance(choice, str | Mapping):
        problems.add((*path, "tool_choice"), "must be none, auto, required or {type: function, function: {name: …}}")
    return tuple(tools)


def _messages(value: Any, path: Path, problems: Problems) -> tuple[Mapping[str, Any], ...]:
    if not value:
        problems.add(path, "an example needs `messages`: add at least one {role, content}")
        return ()
    messages = problems.items(value, path)
    return tuple(message for number, message in enumerate(messages) if _is_message(message, (*path, number), problems))


def _is_message(value: Any, path: Path, problems: Problems) -> bool:
    before = len(problems.found)
    if not isinstance(value, Mapping):
        problems.add(path, "a message must be a mapping with `role` and `content`")
        return False
    if not isinstance(value.get("role"), str):
        problems.add((*path, "role"), "a message needs a role: user, assistant, system …")
    content = value.get("content")
    if isinstance(content, (list, tuple)):
        for number, part in enumerate(content):
            if not _is_part(part):
                problems.add(
                    (*path, "content", number), "a part must be a mapping with `type`, and `text` if it is text"
                )
    elif content is not None and not isinstance(content, str):
        problems.add((*path, "content"), "content must be text or a list of parts: put text in quotes")
    return len(problems.found) == before


def _is_part(part: Any) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return False
    return isinstance(part.get("text", "" if part["type"] != "text" else None), str)
