"""Backend that plays a script: for tests, demonstrations and documentation.

A script is a list of steps, written in YAML or Python::

    - Hello                             # text of choice 0
    - {text: " world", index: 1}        # text of another choice
    - {pause: 0.2}                      # seconds
    - {fields: {reasoning_content: hm}} # other keys of a chat delta
    - {finish: stop}                    # end of choice 0; {finish: length, index: 1} of another
    - {usage: [7, 2]}                   # prompt and completion tokens
    - {error: upstream_disconnected}    # any code in gateway/core/errors.py
    - {document: {object: list}}        # an answer that is not a completion
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from gateway.backend.engines import ENGINES
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, GatewayError, Problem, UpstreamInvalidResponse
from gateway.core.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage
from gateway.core.exchange import Events, Exchange
from gateway.stream.batches import Singles

Step = str | Mapping[str, Any]
Script = Sequence[Step]

MAX_HEARD = 64
"""Exchanges that a backend remembers."""

HELLO: Script = ("Hello", " world", {"finish": "stop"}, {"usage": [7, 2]})


class ScriptedBackend:
    """Plays ``scripts`` in turn, one for each exchange; the last one repeats.

    ``heard`` holds the last ``MAX_HEARD`` exchanges, ``active`` is the number of open ones, ``left_early`` the number
    of those that were left before the end of their script.
    """

    capabilities = ENGINES["openai"]

    def __init__(self, *scripts: Script, label: str = "scripted/0") -> None:
        self._scripts = scripts or (HELLO,)
        self._label = label
        for script in self._scripts:
            _check(script)
        self.heard: list[Exchange] = []
        self._opened = 0
        self.active = 0
        self.left_early = 0

    @classmethod
    def from_target(cls, target: TargetSpec) -> ScriptedBackend:
        """Play the file that the setting ``script`` names; raises ``ConfigError``."""
        assert target.path is not None, "config requires script"
        return cls.from_file(target.path, target.label)

    @classmethod
    def from_file(cls, path: Path, label: str) -> ScriptedBackend:
        """Read one script from a YAML file; raises ``ConfigError`` if it is not a valid script."""
        try:
            script = yaml.safe_load(path.read_text(encoding="utf-8"))
            if not isinstance(script, list):
                raise ValueError("a script is a list of steps")
            return cls(script, label=label)
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise ConfigError((Problem(str(path), 0, "", str(error)),)) from error

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """See ``Backend``."""
        script = self._scripts[min(self._opened, len(self._scripts) - 1)]
        self._opened += 1
        self.heard = [*self.heard[1 - MAX_HEARD :], exchange]
        if exchange.endpoint == "embeddings" and not any(_makes_embeddings(step) for step in script):
            raise UpstreamInvalidResponse("the script has no document step, which an embeddings request needs")
        self.active += 1
        played = _Played()
        events = self._play(script, played)
        try:
            yield Singles(events)
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
                raise ERRORS[step["error"]](f"error {step['error']} of the script")
            if not begun:
                begun = True
                yield Begun(self._label)
            yield _event(step)
        played.ended = True


class _Played:
    """Whether a script was played to its end."""

    ended = False


def _makes_embeddings(step: Step) -> bool:
    return isinstance(step, Mapping) and ("document" in step or "error" in step)


def _event(step: Step) -> Event:
    if isinstance(step, str):
        return Delta(0, step)
    index = int(step.get("index", 0))
    for name, make in _STEPS.items():
        if name in step:
            return make(step[name], index)
    raise ValueError(f"no such step: {', '.join(map(str, step))}; known: {', '.join(_STEPS)}, pause, error")


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
            found = _all_errors(below) | found  # a subclass may share its parent's code, which then means the parent
    return found


ERRORS = _all_errors(GatewayError)
"""Code → error."""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list_of(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(fits(item) for item in value)


_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "a text; put quotes around it"),
    "fields": (lambda value: isinstance(value, Mapping), "a mapping"),
    "extras": (lambda value: isinstance(value, Mapping), "a mapping"),
    "logprobs": (
        lambda value: _is_list_of(value, lambda item: isinstance(item, TokenLogprob)),
        "a list of TokenLogprob, which only Python can write",
    ),
    "finish": (lambda value: isinstance(value, str), "a finish reason, such as stop"),
    "usage": (lambda value: _is_list_of(value, _is_count) and len(value) == 2, "two whole numbers, such as [7, 2]"),
    "document": (lambda value: isinstance(value, Mapping), "a mapping"),
    "index": (_is_count, "a whole number"),
    "pause": (lambda value: _is_count(value) or (isinstance(value, float) and 0 <= value < math.inf), "seconds"),
    "error": (lambda value: isinstance(value, str), "the code of an error"),
}
"""Key of a step → the test of its value, and the value in words."""


def _check(script: Script) -> None:
    """Raise ``ValueError`` for the first invalid step."""
    for step in script:
        if isinstance(step, str):
            continue
        if not isinstance(step, Mapping):
            raise ValueError(f"a step is a text or a mapping, not {step!r}; put quotes around a text")
        for word, value in step.items():
            if word in _VALUES and not _VALUES[word][0](value):
                raise ValueError(f"{word} must be {_VALUES[word][1]}")
        if "error" in step and step["error"] not in ERRORS:
            raise ValueError(f"no error with the code {step['error']}")
        if not step.keys() & {"pause", "error"}:
            _event(step)
