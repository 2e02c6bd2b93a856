"""Writes events as JSON that is kept, and reads them again: answers in the cache, and recordings.

An event is a list of its type's name and its fields; fields with their default are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from gateway.core.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage

EVENT_TYPES: Mapping[str, type[Event]] = {one.__name__: one for one in (Begun, Delta, Finish, Usage, Document)}


def dump_json(value: Any) -> str:
    """JSON in ASCII, also of lone surrogates, of integers of any size, and of our frozen values inside ``value``."""
    return json.dumps(value, separators=(",", ":"), default=_plain)


def named_events(events: Iterable[Event]) -> list[tuple[str, Event]]:
    """The events with the names of their types, as ``dump_json`` writes them."""
    return [(type(event).__name__, event) for event in events]


def load_events(text: str | bytes) -> tuple[Event, ...]:
    """The events in a text of ``dump_json(named_events(…))``. Raises ``ValueError`` if the text is anything else."""
    try:
        return tuple([_event(name, values) for name, values in json.loads(text)])
    except (KeyError, TypeError) as error:
        raise ValueError("the text has no events") from error


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
