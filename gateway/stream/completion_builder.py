"""Joins the events of a call into one ``Completion``, for clients that do not stream.

Values with the same key are joined: strings and lists in ``fields``, only lists in ``extras``. For other values the
last value that is not null is used. Tool calls are joined by their index. All pieces are joined once, at the end, so
the work is linear. ``MAX_COMPLETION`` limits their size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core import fast_paths
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import UpstreamIncomplete, UpstreamTooLarge
from gateway.core.events import (
    MAX_COMPLETION,
    Begun,
    Choice,
    Completion,
    Delta,
    Event,
    Finish,
    TokenLogprob,
    Usage,
    delta_size,
)

WHOLE = frozenset({"role", "id", "type", "name"})
"""Keys whose strings are never joined: each delta that has the key contains the whole string."""
OBJECTS = frozenset({"function", "function_call", "custom", "audio"})
"""Keys whose objects arrive in fragments. The strings inside the fragments are joined."""


def fast_completion(batch: Sequence[Event]) -> Completion | None:
    """Return the completion of an answer with one choice and one piece of text; None for every other answer."""
    if not fast_paths.ENABLED:
        return None
    begun = delta = finish = usage = None
    for event in batch:
        if type(event) is Delta and delta is None and finish is None:
            delta = event
        elif type(event) is Finish and finish is None:
            finish = event
        elif type(event) is Usage and usage is None:
            usage = event
        elif type(event) is Begun and begun is None:
            begun = event
        else:
            return None
    if delta is None or finish is None or finish.index != delta.index or finish.extras is not EMPTY_MAPPING:
        return None
    if delta.fields is not EMPTY_MAPPING or delta.extras is not EMPTY_MAPPING:
        return None
    return Completion((Choice(delta.index, delta.text, finish, delta.logprobs),), usage, begun)


class CompletionBuilder:
    """Collects the events of a call one by one."""

    def __init__(self, *, keep_events: bool = False) -> None:
        """``keep_events``: True if ``Completion.events`` must contain the events."""
        self._events: list[Event] | None = [] if keep_events else None
        self._choices: dict[int, _Parts] = {}
        self._size = 0
        self._usage: Usage | None = None
        self._begun: Begun | None = None

    def add(self, event: Event) -> None:
        """Add an event. Raises ``UpstreamTooLarge`` beyond ``MAX_COMPLETION``. Do not pass a ``Document``.

        The first finish of a choice and the last usage of the call are kept (``docs/spec/reliability.md`` C30).
        """
        if self._events is not None:
            self._events.append(event)
        if isinstance(event, Delta):
            self._size += delta_size(event)
            if self._size > MAX_COMPLETION:
                raise UpstreamTooLarge(f"the model's server streamed an answer of more than {MAX_COMPLETION} bytes")
            self._parts(event.index).add(event)
        elif isinstance(event, Finish):
            parts = self._parts(event.index)
            parts.finish = parts.finish or event
        elif isinstance(event, Usage):
            self._usage = event
        elif isinstance(event, Begun):
            begun = self._begun
            self._begun = event if begun is None else replace(begun, notices=(*begun.notices, *event.notices))

    def result(self) -> Completion:
        """Return the answer. Raises ``UpstreamIncomplete`` if there is no choice, or if a choice has no finish."""
        if not self._choices:
            raise UpstreamIncomplete("the model's server ended its answer without a choice")
        choices = tuple(self._choices[index].choice() for index in sorted(self._choices))
        return Completion(choices, self._usage, self._begun, tuple(self._events or ()))

    def _parts(self, index: int) -> _Parts:
        parts = self._choices.get(index)
        if parts is None:
            parts = self._choices[index] = _Parts(index)
        return parts


class _Parts:
    """The collected pieces of one choice."""

    __slots__ = ("extras", "fields", "finish", "index", "logprobs", "text")

    def __init__(self, index: int) -> None:
        self.index = index
        self.text: list[str] = []
        self.logprobs: list[TokenLogprob] | None = None
        self.fields: dict[str, list[Any]] = {}
        self.extras: dict[str, list[Any]] = {}
        self.finish: Finish | None = None

    def add(self, delta: Delta) -> None:
        self.text.append(delta.text)
        if delta.logprobs is not None:
            self.logprobs = self.logprobs or []
            self.logprobs.extend(delta.logprobs)
        if delta.fields is not EMPTY_MAPPING:
            _gather(self.fields, delta.fields)
        if delta.extras is not EMPTY_MAPPING:
            _gather(self.extras, delta.extras)

    def choice(self) -> Choice:
        if self.finish is None:
            raise UpstreamIncomplete(f"the model's server sent no finish_reason for choice {self.index}")
        if self.finish.extras is not EMPTY_MAPPING:
            _gather(self.extras, self.finish.extras)
        return Choice(
            self.index,
            "".join(self.text),
            self.finish,
            None if self.logprobs is None else tuple(self.logprobs),
            {key: _joined(key, values) for key, values in self.fields.items()} if self.fields else EMPTY_MAPPING,
            {key: _last(values) for key, values in self.extras.items()} if self.extras else EMPTY_MAPPING,
        )


def _gather(into: dict[str, list[Any]], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        into.setdefault(key, []).append(value)


def _joined(key: str, values: list[Any]) -> Any:
    """Join the values of one key into one value."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    if len(values) == 1 and key != "tool_calls":
        return values[0]
    if all(isinstance(value, str) for value in values):
        return next((value for value in reversed(values) if value), "") if key in WHOLE else "".join(values)
    if all(isinstance(value, list) for value in values):
        items = [item for value in values for item in value]
        return _tool_calls(items) if key == "tool_calls" and all(isinstance(item, dict) for item in items) else items
    if key in OBJECTS and all(isinstance(value, dict) for value in values):
        return _object(values)
    return values[-1]


def _last(values: list[Any]) -> Any:
    values = [value for value in values if value is not None]
    if values and all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return values[-1] if values else None


def _object(fragments: list[dict[str, Any]]) -> dict[str, Any]:
    gathered: dict[str, list[Any]] = {}
    for fragment in fragments:
        _gather(gathered, fragment)
    return {key: _joined(key, values) for key, values in gathered.items()}


def _tool_calls(fragments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join fragments into tool calls, in order of index.

    A fragment without index begins a call if its ``id`` is new. Without index and ``id``, it continues the last call.
    """
    calls: dict[int, list[dict[str, Any]]] = {}
    ids: dict[str, int] = {}
    last = highest = -1
    for fragment in fragments:
        index, name = fragment.get("index"), fragment.get("id")
        if type(index) is not int:
            fresh = highest + 1
            index = ids.get(name, fresh) if isinstance(name, str) and name else last if last >= 0 else fresh
        if isinstance(name, str) and name:
            ids.setdefault(name, index)
        last, highest = index, max(highest, index)
        calls.setdefault(index, []).append({key: value for key, value in fragment.items() if key != "index"})
    return [_object(calls[index]) for index in sorted(calls)]
