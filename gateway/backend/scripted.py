"""What if a backend only played a script? The double for tests and docs, a real backend all the same.

A script is a list of steps, written in YAML or Python::

    - Hello                             # text of choice 0
    - {text: " world", index: 1}        # text of another choice
    - {pause: 0.2}                      # seconds
    - {fields: {reasoning_content: hm}} # other keys of a chat delta
    - {finish: stop}                    # end of choice 0; {finish: length, index: 1} of another
    - {usage: [7, 2]}                   # prompt and completion tokens
    - {error: upstream_disconnected}    # any code of gateway/core/errors.py
    - {document: {object: list}}        # an answer that is no completion
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.core.events import Begun, Delta, Document, Event, Finish, Usage
from gateway.core.exchange import Exchange

Step = str | Mapping[str, Any]
Script = Sequence[Step]

HELLO: Script = ("Hello", " world", {"finish": "stop"}, {"usage": [7, 2]})


class ScriptedBackend:
    """Plays ``scripts`` in turn, one for each exchange; the last one repeats.

    ``heard`` holds every exchange it was asked, ``active`` how many are open, ``left_early`` how many were left before
    their script had ended.
    """

    def __init__(self, *scripts: Script, label: str = "scripted/0") -> None:
        self._scripts = scripts or (HELLO,)
        self._label = label
        for script in self._scripts:
            _check(script)
        self.heard: list[Exchange] = []
        self.active = 0
        self.left_early = 0

    @classmethod
    def from_file(cls, path: Path, label: str) -> ScriptedBackend:
        """Read one script from a YAML file; ``ConfigError`` when it is none."""
        try:
            script = yaml.safe_load(path.read_text(encoding="utf-8"))
            if not isinstance(script, list):
                raise ValueError("a script is a list of steps")
            return cls(script, label=label)
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise ConfigError((Problem(str(path), 0, "", str(error)),)) from error

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[AsyncIterator[Event]]:
        """Play the next script; a pause or an error may come before the first event."""
        script = self._scripts[min(len(self.heard), len(self._scripts) - 1)]
        self.heard.append(exchange)
        self.active += 1
        played = _Played()
        events = self._play(script, played)
        try:
            yield events
        finally:
            self.active -= 1
            self.left_early += not played.ended
            await events.aclose()

    async def _play(self, script: Script, played: _Played) -> AsyncGenerator[Event, None]:
        begun = False
        for step in script:
            if isinstance(step, Mapping) and "pause" in step:
                await asyncio.sleep(float(step["pause"]))
                continue
            if isinstance(step, Mapping) and "error" in step:
                played.ended = True
                raise ERRORS[step["error"]](f"the script says {step['error']}")
            if not begun:
                begun = True
                yield Begun(self._label)
            yield _event(step)
        played.ended = True


class _Played:
    """Whether a script came to its end."""

    ended = False


def _event(step: Step) -> Event:
    if isinstance(step, str):
        return Delta(0, step)
    index = int(step.get("index", 0))
    for name, make in _STEPS.items():
        if name in step:
            return make(step[name], index)
    raise ValueError(f"no such step: {', '.join(step)}; known: {', '.join(_STEPS)}, pause, error")


_STEPS: Mapping[str, Callable[[Any, int], Event]] = {
    "text": lambda value, index: Delta(index, value),
    "fields": lambda value, index: Delta(index, fields=value),
    "extras": lambda value, index: Delta(index, extras=value),
    "logprobs": lambda value, index: Delta(index, logprobs=tuple(value)),
    "finish": lambda value, index: Finish(index, value),
    "usage": lambda value, index: Usage(value[0], value[1]),
    "document": lambda value, index: Document(value),
}


def _all_errors(kind: type[GatewayError]) -> dict[str, type[GatewayError]]:
    found = {kind.code: kind}
    for below in kind.__subclasses__():
        if below is not ConfigError:
            found |= _all_errors(below)
    return found


ERRORS = _all_errors(GatewayError)
"""Every error a script can play, by its code."""


def _check(script: Script) -> None:
    for step in script:
        if not isinstance(step, str | Mapping):
            raise ValueError(f"a step is a text or a mapping, not {step!r}; put quotes around a text")
        if isinstance(step, Mapping) and "pause" in step:
            continue
        if isinstance(step, Mapping) and "error" in step:
            if step["error"] not in ERRORS:
                raise ValueError(f"no error with the code {step['error']}")
        else:
            _event(step)
