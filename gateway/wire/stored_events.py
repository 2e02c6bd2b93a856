"""Writes events as JSON for the cache and for recordings, and reads this JSON.

An event is written as the list ``[name of the type, fields]``. Fields with their default value are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from gateway.core.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage

EVENT_TYPES: Mapping[str, type[Event]] = {one.__name__: one for one in (Begun, Delta, Finish, Usage, Document)}


def dump_json(value: Any) -> str:
    """Return ``value`` as ASCII JSON. Lone surrogates, integers of any size and frozen dataclasses are supported."""
    return json.dumps(value, separators=(",", ":"), default=_plain)


def named_events(events: Iterable[Event]) -> list[tuple[str, Event]]:
    """Return (name of the type, event) for each event, as input for ``dump_json``."""
    return [(type(event).__name__, event) for event in events]


def load_events(text: str | bytes) -> tuple[Event, ...]:
    """Return the events in a text that ``dump_json(named_events(…))`` wrote. Raises ``ValueError`` for other texts."""
    try:
        return tuple([_event(name, values) for name, values in json.loads(text)])
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError("the text does not contain stored events") from error


def _event(name: str, values: dict[str, Any]) -> Event:
    if values.get("logprobs") is not None:
        values["logprobs"] = tuple([_token(**token) for token in values["logprobs"]])
    if "notices" in values:
        values["notices"] = tuple(values["notices"])
    return EVENT_TYPES[name](**values)


def _token(
    token: str,
    logprob: float | None,
    top: list[tuple[str, float, list[int] | None]] | None = None,
    bytes: list[int] | None = None,
    offset: int | None = None,
) -> TokenLogprob:
    alternatives = None
    if top is not None:
        alternatives = tuple([(text, value, None if raw is None else tuple(raw)) for text, value, raw in top])
    return TokenLogprob(token, logprob, alternatives, None if bytes is None else tuple(bytes), offset)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return {one.name: found for one in fields(value) if (found := getattr(value, one.name)) != one.default}
