"""What do the requests of both endpoints share? Fields that only the gateway writes, and what it says of the others."""

from __future__ import annotations

from collections.abc import Set
from heapq import nsmallest
from typing import Any

from gateway.backend.engines import EngineCapabilities
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.exchange import Exchange

MAX_NAMED = 8
"""Fields named in one notice."""


def common_fields(exchange: Exchange, capabilities: EngineCapabilities, max_stops: int | None = None) -> dict[str, Any]:
    """The fields that both endpoints share; ``InvalidValue`` for stop ids that are none."""
    body: dict[str, Any] = {"stream": exchange.stream}
    if exchange.n > 1:
        body["n"] = exchange.n
    if exchange.stops:
        body["stop"] = list(exchange.stops[:max_stops])
    if capabilities.stop_token_ids and (ids := _stop_token_ids(exchange)):
        body["stop_token_ids"] = ids
    if exchange.stream:
        body["stream_options"] = {**exchange.stream_options, "include_usage": True}
    return body


def unsent_stops(exchange: Exchange, max_stops: int | None) -> tuple[str, ...]:
    """The notice for stops that are more than the target takes; the gateway cuts at all of them in any case."""
    more = len(exchange.stops) - max_stops if max_stops is not None else 0
    return (f"stops_enforced_here: {more}",) if more > 0 else ()


def unverified(exchange: Exchange, known: Set[str]) -> tuple[str, ...]:
    """The notice for fields that the engine is not known to understand, fit for a header."""
    if not exchange.stream_options and exchange.params.keys() <= known:
        return ()
    strange = {*exchange.params, *(f"stream_options.{key}" for key in exchange.stream_options)} - known
    return (f"unverified_parameter: {' '.join(map(_plain, nsmallest(MAX_NAMED, strange)))}",) if strange else ()


def refuse_stream_options(exchange: Exchange) -> None:
    """For targets that know none but ``include_usage``, which is the gateway's to set."""
    for key in exchange.stream_options:
        name = f"stream_options.{_plain(key)}"
        raise UnsupportedParameter(f"this model's target does not take {name}; leave it out", param=name)


def _stop_token_ids(exchange: Exchange) -> list[int]:
    """The template's, then the client's own, as with stop strings."""
    theirs = exchange.params.get("stop_token_ids")
    if theirs is None and "stop_token_ids" not in exchange.params:
        return list(exchange.stop_token_ids)
    if not isinstance(theirs, list) or not all(type(token) is int for token in theirs):
        raise InvalidValue("stop_token_ids must be a list of token ids", param="stop_token_ids")
    return [*exchange.stop_token_ids, *theirs]


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "?" for c in name[:64])
