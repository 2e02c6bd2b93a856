"""Limits on the conversations that are rendered in this process; others go to the template's subprocess.

A render in this process holds the event loop, so its time has to be short for every conversation that a client may
send. Templates need time in proportion to the conversation or to its square. Each template is measured once, when it is
loaded, in a subprocess: one that never ends is stopped there. One process measures all templates.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gateway.template.huggingface.sandbox.subprocess_renderer import SubprocessRenderer

MESSAGE_LIMITS = (16, 64, 256)
"""Messages of the longest conversation that is rendered in this process: the largest of these that is fast enough."""
CHARACTERS_PER_MESSAGE = 1024
"""Characters that such a conversation may have for each message of the limit: 256 Ki for 256 messages."""
MAX_SECONDS = 0.05
"""Processor time of a render that is fast enough. Typical templates take a few milliseconds for 256 messages."""
VALUE_SIZE = 16
"""Characters that a value counts for beside its text and its keys."""
IDLE_SECONDS = 5.0
"""Time from the last measurement to the end of the measuring process."""

_measuring = SubprocessRenderer("", (), "")
_lock = threading.Lock()


@lru_cache(maxsize=256)  # a configuration is read and then built: each template is loaded several times
def message_limits(name: str, sources: tuple[str, ...], clock: str, variables: str) -> tuple[int, ...]:
    """Measure the templates of a folder: for each the limit from ``MESSAGE_LIMITS``, or 0 if it is too slow for all.

    ``variables``: as JSON, the template variables that are the same for every request. Raises ``TemplateError`` for
    templates that cannot be compiled.
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
    """Whether a value of JSON is or holds a number: a template could repeat a text that many times."""
    if isinstance(value, (list, tuple)):
        return any(map(has_number, value))
    if isinstance(value, Mapping):
        return any(map(has_number, value.values()))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def size_of(value: Any, limit: int) -> int:
    """Characters in a value of JSON. Counting stops once ``limit`` is exceeded."""
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
