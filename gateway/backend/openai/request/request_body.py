"""The fields that the request bodies of both endpoints share, and notices about other fields."""

from __future__ import annotations

from collections.abc import Mapping, Set
from heapq import nsmallest
from typing import Any

import orjson

from gateway.backend.engines import EngineCapabilities
from gateway.backend.openai.request.neutral_values import without_neutral_values
from gateway.core.errors import InvalidUnicode, InvalidValue, UnsupportedParameter
from gateway.core.exchange import Exchange
from metatemplate.values.words import closest

MAX_NAMED = 8
"""The maximum number of fields that one notice names."""


def add_common_fields(
    body: dict[str, Any], exchange: Exchange, capabilities: EngineCapabilities, max_stops: int | None = None
) -> None:
    """Add to a body the fields that chat and completions share.

    Raises ``InvalidValue`` for invalid ``stop_token_ids``, ``UnsupportedParameter`` for a field that would be ignored.
    """
    if capabilities.ignored and not capabilities.ignored.isdisjoint(exchange.params):
        for name in sorted(capabilities.ignored.intersection(exchange.params)):
            if exchange.params[name] is not False:
                raise UnsupportedParameter(f"this model's engine does not support {name}; leave it out", param=name)
    body["stream"] = exchange.stream
    if exchange.n > 1:
        body["n"] = exchange.n
    if exchange.stops:
        body["stop"] = list(exchange.stops[:max_stops])
    if capabilities.stop_token_ids and (ids := stop_token_ids(exchange)):
        body["stop_token_ids"] = ids
    if exchange.stream:
        body["stream_options"] = {**exchange.stream_options, "include_usage": True}


def stops_notice(exchange: Exchange, max_stops: int | None) -> tuple[str, ...]:
    """Return a notice if the target accepts fewer stop strings. The gateway itself cuts at the other stop strings."""
    more = len(exchange.stops) - max_stops if max_stops is not None else 0
    return (f"stops_enforced_here: {more}",) if more > 0 else ()


def check_fields(exchange: Exchange, known: frozenset[str]) -> tuple[Exchange, tuple[str, ...]]:
    """Return the exchange for a target that knows these fields, and notices about other fields, safe for a header.

    Neutral values of other fields are left out. The engine may not understand the fields that are kept.
    """
    if known.issuperset(exchange.params) and not exchange.stream_options:
        return exchange, ()
    exchange, notices = without_neutral_values(exchange, known)
    strange = {*exchange.params, *(f"stream_options.{key}" for key in exchange.stream_options)} - known
    if strange:
        names = [_printable(name) + _meant(name, known) for name in nsmallest(MAX_NAMED, strange)]
        notices += (f"unverified_parameter: {' '.join(names)}",)
    return exchange, notices


def _meant(name: str, known: Set[str]) -> str:
    near = closest(name, known, 0.9)
    return f" (did you mean {near}?)" if near is not None else ""


def refuse_stream_options(exchange: Exchange) -> None:
    """Raise ``UnsupportedParameter`` if the exchange has stream options. For targets that accept no stream options."""
    for key in exchange.stream_options:
        name = f"stream_options.{_printable(key)}"
        raise UnsupportedParameter(f"this model's target does not accept {name}; leave it out", param=name)


def serialise(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON. Raises ``InvalidUnicode`` or ``InvalidValue`` for a value that JSON cannot express."""
    try:
        return orjson.dumps(body, default=_as_dict)
    except TypeError as error:
        if "surrogate" in str(error):
            raise InvalidUnicode("the request contains a lone surrogate; send whole characters") from None
        message = "the request has a value that JSON cannot express, such as an integer of more than 64 bits"
        raise InvalidValue(message) from None


def _as_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def stop_token_ids(exchange: Exchange) -> list[int]:
    """Return the stop token ids: first the template's, then the client's, like stop strings."""
    if "stop_token_ids" not in exchange.params:
        return list(exchange.stop_token_ids)
    own = exchange.params["stop_token_ids"]
    if not isinstance(own, list) or not all(type(token) is int for token in own):
        raise InvalidValue.at("stop_token_ids", " must be a list of token ids")
    return [*exchange.stop_token_ids, *own]


def _printable(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "?" for c in name[:64])
