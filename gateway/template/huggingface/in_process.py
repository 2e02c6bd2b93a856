"""Limits on the conversations that are rendered in this process; others go to the template's subprocess.

A render in this process holds the event loop, so its time has to be short for every conversation that a client may
send. Templates are the operator's, and need time in proportion to the conversation or to its square. Each template is
measured once, when it is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gateway.core.errors import GatewayError
from gateway.template.huggingface.sandbox.compiled_template import CompiledTemplate

MESSAGE_LIMITS = (16, 64, 256)
"""Messages of the longest conversation that is rendered in this process: the largest of these that is fast enough."""
CHARACTERS_PER_MESSAGE = 1024
"""Characters that such a conversation may have for each message of the limit: 256 Ki for 256 messages."""
MAX_SECONDS = 0.05
"""Processor time of a render that is fast enough. Typical templates take a few milliseconds for 256 messages."""
VALUE_SIZE = 16
"""Characters that a value counts for beside its text and its keys."""


def message_limit(template: CompiledTemplate, variables: Mapping[str, Any]) -> int:
    """Measure a template: the limit of messages from ``MESSAGE_LIMITS``, or 0 if it is too slow for the smallest.

    ``variables``: the template variables that are the same for every request.
    """
    limit = 0
    for number in MESSAGE_LIMITS:
        messages = [
            {
                "role": ("user", "assistant")[place % 2],
                "content": ("word " * CHARACTERS_PER_MESSAGE)[:CHARACTERS_PER_MESSAGE],
            }
            for place in range(number - 1)
        ]
        began = time.thread_time()
        with suppress(GatewayError):  # a template that refuses this conversation is measured up to the refusal
            template.render({**variables, "messages": messages, "tools": None, "add_generation_prompt": True})
        if time.thread_time() - began > MAX_SECONDS:
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
