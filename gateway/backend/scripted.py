"""Backend that plays a script, for tests, demonstrations and documentation.

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
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import UnionType
from typing import Any

import yaml

from gateway.backend.engines import ENGINES
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, GatewayError, Problem, UpstreamInvalidResponse
from gateway.core.exchange import Events, Exchange
from gateway.stream.batches import IteratorEvents
from metatemplate.values.events import Begun, Delta, Document, Event, Finish, Usage

Step = str | Mapping[str, Any]
Script = Sequence[Step]

HELLO: Script = ("Hello", " world", {"finish": "stop"}, {"usage": [7, 2]})


def _errors(kind: type[GatewayError]) -> Iterator[type[GatewayError]]:
    for below in kind.__subclasses__():
        yield from _errors(below)
    yield kind


ERRORS = {kind.code: kind for kind in _errors(GatewayError) if kind is not ConfigError}
"""Error code → error class."""

Action = Event | float | GatewayError
"""An event, a number of seconds to pause, or an error that ends the script."""


def _error(code: str) -> GatewayError:
    if code not in ERRORS:
        raise ValueError(f"no error with the code {code}")
    return ERRORS[code](f"the script contains the error {code}")


STEPS: Mapping[str, tuple[type | UnionType, Callable[[Any, int], Action]]] = {
    "text": (str, lambda text, index: Delta(index, text)),
    "fields": (Mapping, lambda fields, index: Delta(index, fields=fields)),
    "extras": (Mapping, lambda extras, index: Delta(index, extras=extras)),
    "logprobs": (tuple, lambda logprobs, index: Delta(index, logprobs=logprobs)),
    "finish": (str, lambda reason, index: Finish(index, reason)),
    "usage": (list | tuple, lambda counts, index: Usage(*counts)),
    "document": (Mapping, lambda body, index: Document(body)),
    "pause": (int | float, lambda seconds, index: float(seconds)),
    "error": (str, lambda code, index: _error(code)),
}
"""Key of a step → (type of the value, function from the value and the step's choice index to the action)."""


class ScriptedBackend:
    """Plays ``scripts`` in turn, one script for each exchange. The last script repeats."""

    capabilities = ENGINES["openai"]

    def __init__(self, *scripts: Script, label: str = "scripted/0") -> None:
        """Parse the scripts. Raises ``ValueError`` for an invalid step."""
        self._scripts = [[_action(step) for step in script] for script in scripts or (HELLO,)]
        self._label = label
        self._opened = 0

    @classmethod
    def from_target(cls, target: TargetSpec) -> ScriptedBackend:
        """Return a backend for the file in the setting ``script``. Raises ``ConfigError`` for an invalid file."""
        assert target.script is not None, "config requires script"
        try:
            script = yaml.safe_load(target.script.read_text(encoding="utf-8"))
            if not isinstance(script, list):
                raise ValueError("a script must be a list of steps")
            return cls(script, label=target.label)
        except (OSError, yaml.YAMLError, ValueError, TypeError) as error:
            raise ConfigError((Problem(str(target.script), 0, "", str(error)),)) from error

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Play the next script. See ``Backend.open``."""
        script = self._scripts[min(self._opened, len(self._scripts) - 1)]
        self._opened += 1
        if exchange.endpoint == "embeddings" and not any(isinstance(act, Document | GatewayError) for act in script):
            raise UpstreamInvalidResponse("the script has no document step for this embeddings request; add the step")
        async with aclosing(self._play(script)) as events:
            yield IteratorEvents(events)

    async def _play(self, script: Sequence[Action]) -> AsyncGenerator[Event, None]:
        begun = False
        for action in script:
            if isinstance(action, float):
                await asyncio.sleep(action)
                continue
            if isinstance(action, GatewayError):
                raise type(action)(action.message)
            if not begun:
                begun = True
                yield Begun(self._label)
            yield action


def _action(step: Step) -> Action:
    if isinstance(step, str):
        return Delta(0, step)
    if not isinstance(step, Mapping):
        raise ValueError(f"a step must be a text or a mapping, not {step!r}; put quotes around a text")
    name = next((name for name in STEPS if name in step), None)
    if name is None:
        raise ValueError(f"unknown step: {', '.join(map(str, step))}; known: {', '.join(STEPS)}")
    kind, action = STEPS[name]
    value, index = step[name], step.get("index", 0)
    if not isinstance(value, kind) or type(index) is not int:
        raise ValueError(f"the step {dict(step)} has a value of the wrong type")
    return action(value, index)
