"""Joins the events of a call into one ``Completion``, for clients that do not stream.

Values with the same key are joined: strings and lists in ``fields``, only lists in ``extras``. For other values the
last value that is not null is used. Tool calls are joined by their index. All pieces are joined once, at the end, so
the work is linear. ``MAX_COMPLETION`` limits their size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.errors import UpstreamIncomplete, UpstreamTooLarge
from metatemplate.values import fast_paths
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import (
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
    if not fast_paths.ENABLED or not 3 <= len(batch) <= 4:
        return None
    begun, delta, finish = batch[0], batch[1], batch[2]
    usage = batch[3] if len(batch) == 4 else None
    if type(begun) is not Begun or type(delta) is not Delta or type(finish) is not Finish:
        return None
    if (usage is not None and type(usage) is not Usage) or finish.index != delta.index:
        return None
    if delta.fields is not EMPTY_MAPPING or delta.extras is not EMPTY_MAPPING or finish.extras is not EMPTY_MAPPING:
        return None
    return Completion((Choice(delta.index, delta.text, finish, delta.logprobs),), usage, begun)


class CompletionBuilder:
    """Collects the events of a call one by one."""

    def __init__(self, *, keep_events: bool = False) -> None:
        """``keep_events``: True if ``Completion.events`` must contain the events."""
        self._events: list[Event] | None = [] if keep_events else None
        self._deltas: dict[int, list[Delta]] = {}
        self._finishes: dict[int, Finish] = {}
        self._size = 0
        self._usage: Usage | None = None
        self._begun: Begun | None = None

    def add(self, event: Event) -> None:
        """Add an event. Raises ``UpstreamTooLarge`` beyond ``MAX_COMPLETION``. Do not pass a ``Document``.

        The first finish of a choice and the last usage of the call are kept (``docs/spec/reliability.md`` C30).
        """
        if self._events is not None:
            self._events.append(event)
        if type(event) is Delta:
            self._size += delta_size(event)
            if self._size > MAX_COMPLETION:
                raise UpstreamTooLarge(f"the model's server streamed an answer of more than {MAX_COMPLETION} bytes")
            self._deltas.setdefault(event.index, []).append(event)
        elif type(event) is Finish:
            self._finishes.setdefault(event.index, event)
        elif type(event) is Usage:
            self._usage = event
        elif type(event) is Begun:
            begun = self._begun
            self._begun = event if begun is None else replace(begun, notices=(*begun.notices, *event.notices))

    def result(self) -> Completion:
        """Return the answer. Raises ``UpstreamIncomplete`` if there is no choice, or if a choice has no finish."""
        if not self._finishes and not self._deltas:
            raise UpstreamIncomplete("the model's server ended its answer without a choice")
        if unfinished := self._deltas.keys() - self._finishes.keys():
            raise UpstreamIncomplete(f"the model's server sent no finish_reason for choice {min(unfinished)}")
        choices = [_choice(finish, self._deltas.get(index, ())) for index, finish in sorted(self._finishes.items())]
        return Completion(tuple(choices), self._usage, self._begun, tuple(self._events or ()))


def _choice(finish: Finish, deltas: Sequence[Delta]) -> Choice:
    """Return the choice with these deltas."""
    logprobs: list[TokenLogprob] | None = None
    fields: dict[str, list[Any]] = {}
    extras: dict[str, list[Any]] = {}
    for delta in deltas:
        if delta.logprobs is not None:
            logprobs = logprobs or []
            logprobs += delta.logprobs
        if delta.fields is not EMPTY_MAPPING:
            _gather(fields, delta.fields)
        if delta.extras is not EMPTY_MAPPING:
            _gather(extras, delta.extras)
    if finish.extras is not EMPTY_MAPPING:
        _gather(extras, finish.extras)
    return Choice(
        finish.index,
        "".join([delta.text for delta in deltas]),
        finish,
        None if logprobs is None else tuple(logprobs),
        {key: _joined(key, values) for key, values in fields.items()} if fields else EMPTY_MAPPING,
        {key: _last(values) for key, values in extras.items()} if extras else EMPTY_MAPPING,
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
        return next((value for value in values[::-1] if value), "") if key in WHOLE else "".join(values)
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
