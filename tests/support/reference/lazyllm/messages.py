"""The dictionary forms of a prompt: OpenAI's and Anthropic's messages (``docs/spec/lazyllm.md`` 8.3, 8.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.reference.lazyllm.checks import check_concatenated, check_joinable, need
from tests.support.reference.lazyllm.errors import PrompterError


def history_messages(own: Any, called: Any) -> list[Any]:
    """The turns as messages; messages pass untouched."""
    found: list[Any] = []
    for item in (*(own or ()), *(called or ())):
        if isinstance(item, dict):
            found.append(item)
        elif isinstance(item, list):
            if len(item) > 2:
                raise PrompterError("AssertionError", "history item length cannot be greater than 2")
            found += [{"role": role, "content": text} for role, text in zip(("user", "assistant"), item, strict=False)]
        else:
            raise PrompterError("ValueError", "history must be a list of list or dict")
    return found


def openai_messages(
    system_parts: list[Any], user: str, rest: Any, history: list[Any], tools: Any, *, modern: bool
) -> dict[str, Any]:
    """OpenAI's body without a model. ``system_parts``: joined to the system message; empty for none."""
    messages = [*history, *_last_messages(rest, modern=modern)]
    if user:
        if not messages:
            raise PrompterError("IndexError", "list index out of range")
        content = need(messages[-1], "content")
        check_concatenated(content)
        messages[-1] = {**messages[-1], "content": user + content}
    if system_parts:
        given = [part for part in system_parts if part] if modern or not system_parts[1] else system_parts[:2]
        check_joinable(given)
        messages.insert(0, {"role": "system", "content": "\n".join(given)})
    return {"messages": messages, "tools": tools} if tools else {"messages": messages}


def _last_messages(rest: Any, *, modern: bool) -> list[Any]:
    if isinstance(rest, str):
        return [{"role": "user", "content": rest}]
    if isinstance(rest, dict):
        return [rest]
    if modern and isinstance(rest, list) and all(isinstance(message, dict) for message in rest):
        return list(rest)
    if modern and isinstance(rest, tuple) and len(rest) == 1:
        return [{"role": "user", "content": rest[0]}]
    raise PrompterError("TypeError", "input must be a string or a dict")


def anthropic_messages(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the system message taken out; the last one wins, as in LazyLLM."""
    found: dict[str, Any] = {}
    messages: list[Any] = []
    for message in body["messages"]:
        if message.get("role") == "system":
            found["system"] = need(message, "content")
        else:
            messages.append(message)
    return {**found, "messages": messages, **({"tools": body["tools"]} if body.get("tools") else {})}
