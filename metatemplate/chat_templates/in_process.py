"""Limits for the conversations that are rendered in this process. A subprocess renders larger conversations.

Rendering in this process blocks the event loop, so each conversation must take a short time. The time grows with the
length of the conversation or with the square of the length. Each template is measured once, at load. All templates are
measured in a subprocess, because a subprocess can be killed if a template never ends. A template that is slow only for
other conversations is stopped in this process by ``sandbox/limits.py``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from metatemplate.chat_templates.sandbox.subprocess_renderer import SubprocessRenderer

MESSAGE_LIMITS = (16, 64, 256)
"""The possible limits for the number of messages. A template gets the largest limit that is fast enough."""
CHARACTERS_PER_MESSAGE = 1024
"""The limit in characters is the limit in messages times this number: 256 Ki characters for 256 messages."""
FAST_SECONDS = 0.05
"""The longest processor time that is fast enough. Typical templates need a few milliseconds for 256 messages."""
IDLE_SECONDS = 5.0
"""The measuring process ends this many seconds after the last measurement."""

_measuring = SubprocessRenderer("", (), "")
_lock = threading.Lock()


@lru_cache(maxsize=256)  # the gateway reads and then builds a configuration, and so loads each template several times
def message_limits(name: str, sources: tuple[str, ...], clock: str, variables: str) -> tuple[int, ...]:
    """Measure the templates of a folder. Return a limit for each: one of ``MESSAGE_LIMITS``, or 0 for a slow template.

    ``variables``: the JSON text of the template variables that are the same for every request. Raises
    ``TemplateFailure`` if a template cannot be compiled.
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
        seconds = (_measuring.seconds(template, {**variables, **probe}) for probe in _probes(number))
        if next((one for one in seconds if one is not None), float("inf")) > FAST_SECONDS:
            break
        limit = number
    return limit


def _probes(number: int) -> Iterator[dict[str, Any]]:
    """Yield conversations of ``number`` messages and fewer. A template may refuse some of them."""
    turns = [("user", "assistant")[place % 2] for place in range(number - 1)]
    for roles in (turns, ["system", *turns], ["system", *turns[:-1]], turns[:-1], ["system", "user"], ["user"]):
        size = number * CHARACTERS_PER_MESSAGE // len(roles)
        text = ("word " * size)[:size]
        for content in (text, [{"type": "text", "text": text}]):
            messages = [{"role": role, "content": content} for role in roles]
            yield {"messages": messages, "tools": None, "add_generation_prompt": True}
