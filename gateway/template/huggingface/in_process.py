"""Limits for the conversations that are rendered in this process. A subprocess renders larger conversations.

Rendering in this process blocks the event loop, so each conversation must take a short time. The time grows with the
length of the conversation or with the square of the length. Each template is measured once, at load. All templates are
measured in a subprocess, because a subprocess can be killed if a template never ends.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gateway.template.huggingface.sandbox.subprocess_renderer import SubprocessRenderer

MESSAGE_LIMITS = (16, 64, 256)
"""The possible limits for the number of messages. A template gets the largest limit that is fast enough."""
CHARACTERS_PER_MESSAGE = 1024
"""The limit in characters is the limit in messages times this number: 256 Ki characters for 256 messages."""
MAX_SECONDS = 0.05
"""The longest processor time that is fast enough. Typical templates need a few milliseconds for 256 messages."""
VALUE_SIZE = 16
"""Each JSON value counts as this many characters, in addition to the characters of texts and keys."""
IDLE_SECONDS = 5.0
"""The measuring process ends this many seconds after the last measurement."""

_measuring = SubprocessRenderer("", (), "")
_lock = threading.Lock()


@lru_cache(maxsize=256)  # the gateway reads and then builds a configuration, and so loads each template several times
def message_limits(name: str, sources: tuple[str, ...], clock: str, variables: str) -> tuple[int, ...]:
    """Measure the templates of a folder. Return a limit for each: one of ``MESSAGE_LIMITS``, or 0 for a slow template.

    ``variables``: the JSON text of the template variables that are the same for every request. Raises
    ``TemplateError`` if a template cannot be compiled.
    """
    with _lock:
        try:
            _measuring.load(name, sources, clock)
            return tuple([_message_limit(template, json.loads(variables)) for template in range(len(sources))])
        finally:
            _measuring.stop_after(IDLE_SECONDS)


def _message_limit(template: int, variables: Mapping[str, Any]) -> int:
    limit = 0
    for number in MESSAGE_LIMITS:
        messages = [
            {
                "role": ("user", "assistant")[place % 2],
                "content": ("word " * CHARACTERS_PER_MESSAGE)[:CHARACTERS_PER_MESSAGE],
            }
            for place in range(number - 1)
        ]
        values = {**variables, "messages": messages, "tools": None, "add_generation_prompt": True}
        if _measuring.seconds(template, values) > MAX_SECONDS:
            break
        limit = number
    return limit


def has_number(value: Any) -> bool:
    """Return whether a JSON value is or contains a number. A template could repeat a text that number of times."""
    if isinstance(value, (list, tuple)):
        return any(map(has_number, value))
    if isinstance(value, Mapping):
        return any(map(has_number, value.values()))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def size_of(value: Any, limit: int) -> int:
    """Return the size of a JSON value in characters. Counting stops when the size is above ``limit``."""
    size, waiting = 0, [value]
    while waiting and size <= limit:
        one = waiting.pop()
        size += VALUE_SIZE
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif isinstance(one, (dict, Mapping)):
            size += sum(map(len, one))
            waiting += one.values()
    return size
