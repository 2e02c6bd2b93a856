"""Fields and values of OpenAI's API that cannot change an answer: hints, and values that clients send as defaults.

A target that knows such a field receives it, because a server may have other defaults. For a target that does
not know the field, the field is left out instead of refused. ``temperature: 1`` and ``top_p: 1`` are not neutral,
because many models have other defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gateway.core.exchange import Exchange
from gateway.wire.request_fields import HINTS

NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "best_of": (1,),
        "echo": (False,),
        "frequency_penalty": (0,),
        "function_call": ("auto",),
        "functions": ([],),
        "logit_bias": ({},),
        "logprobs": (False,),  # 0 requests the log probabilities of the chosen tokens
        "modalities": (["text"],),
        "parallel_tool_calls": (True,),
        "presence_penalty": (0,),
        "response_format": ({"type": "text"},),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "tool_choice": ("auto",),
        "tools": ([],),
        "top_logprobs": (0,),
        "user": ("",),
        "stream_options.continuous_usage_stats": (False, True),  # clients get the usage once, at the end
        "stream_options.include_obfuscation": (False,),
    }
)
"""Field → its neutral values."""


def is_neutral(name: str, value: Any) -> bool:
    """Return whether a value of a field cannot change an answer. 0 and False are different values."""
    return name in HINTS or any(
        value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
        for neutral in NEUTRAL_VALUES.get(name, ())
    )


def without_neutral_values(exchange: Exchange, known: Set[str]) -> tuple[Exchange, tuple[str, ...]]:
    """Return the exchange without hints and neutral values of fields that the target does not know.

    Also returns a notice for each field that is left out.

    ``known``: the parameters, and the keys of ``stream_options`` as ``stream_options.KEY``.
    """
    fields = {**exchange.params, **{f"stream_options.{key}": value for key, value in exchange.stream_options.items()}}
    left_out = {name for name, value in fields.items() if name not in known and is_neutral(name, value)}
    if not left_out:
        return exchange, ()
    kept = replace(
        exchange,
        params={name: value for name, value in exchange.params.items() if name not in left_out},
        stream_options={
            key: value for key, value in exchange.stream_options.items() if f"stream_options.{key}" not in left_out
        },
    )
    return kept, tuple([f"omitted_parameter: {name}" for name in sorted(left_out)])
