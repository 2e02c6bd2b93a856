"""Which parameters does the embedded engine take, and in which ranges?

Everything the engine knows is a row of ``FIELDS``; anything else is refused by name, so that
no parameter is dropped in silence. Null counts as absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import InvalidValue, UnsupportedParameter

RAW_MAX_TOKENS = 16
"""OpenAI's default of ``/v1/completions``; templated calls always bring their own."""
MAX_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; the defaults are OpenAI's."""

    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: no limit."""
    min_p: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Over prompt and answer, as vLLM and transformers have it; 1 is off."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one call wants of the engine, checked."""

    sampling: Sampling = Sampling()
    max_tokens: int = RAW_MAX_TOKENS
    ignore_eos: bool = False
    echo: bool = False
    logprobs: int | None = None
    """Alternatives per token; 0 gives the chosen token's alone; None gives nothing."""
    prompt_logprobs: int | None = None
    """vLLM's field: alternatives per prompt token, reported beside the choice."""
    skip_special_tokens: bool = True
    add_special_tokens: bool | None = None
    """None: as the template or the engine's habit says."""


Check = Callable[[Any], Any]


def _number(low: float, high: float, *, above_low: bool = False) -> Check:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError("must be a number")
        if value < low or value > high or (above_low and value == low):
            raise ValueError(f"must lie {'above' if above_low else 'between'} {low:g} and "
                             f"{'at most ' if above_low else ''}{high:g}")  # fmt: skip
        return float(value)

    return check


def _whole(low: int, high: int = 2**63 - 1) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("must be a whole number")
        if not low <= value <= high:
            raise ValueError(f"must be at least {low}" if high == 2**63 - 1 else f"must lie between {low} and {high}")
        return value

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _bias(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise ValueError("must be an object of token ids and numbers")
    limit = _number(-100, 100)
    try:
        return {int(token): limit(amount) for token, amount in value.items()}
    except (TypeError, ValueError):
        raise ValueError("must map token ids to numbers between -100 and 100") from None


SAMPLING: Mapping[str, Check] = {
    "temperature": _number(0, 100),
    "top_p": _number(0, 1, above_low=True),
    "top_k": _whole(-1),
    "min_p": _number(0, 1),
    "seed": _whole(-(2**63)),
    "logit_bias": _bias,
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "repetition_penalty": _number(0, 100, above_low=True),
}
FIELDS: Mapping[str, Check] = {
    "max_tokens": _whole(0),
    "ignore_eos": _flag,
    "echo": _flag,
    "logprobs": _whole(0, MAX_ALTERNATIVES),
    "prompt_logprobs": _whole(0, MAX_ALTERNATIVES),
    "skip_special_tokens": _flag,
    "add_special_tokens": _flag,
}
# Fields that ask for nothing with these values, and cannot be served with others.
INERT: Mapping[str, Callable[[Any], bool]] = {
    "user": lambda value: isinstance(value, str),
    "best_of": lambda value: value == 1,
    "suffix": lambda value: value == "",
}
PARAMS: frozenset[str] = frozenset({*SAMPLING, *FIELDS, *INERT})
"""Every parameter the engine takes, beside ``n``, the stops and the prompt."""


def read_ask(params: Mapping[str, Any]) -> Ask:
    """The call's wishes. Raises ``UnsupportedParameter`` or ``InvalidValue``, naming the field."""
    given = {name: value for name, value in params.items() if value is not None}
    for name in given:
        if name not in PARAMS or (name in INERT and not INERT[name](given[name])):
            raise UnsupportedParameter(
                f"the embedded engine does not take {name[:64]!r}; it takes {', '.join(sorted(PARAMS))}", param=name
            )
    return Ask(sampling=Sampling(**_checked(given, SAMPLING)), **_checked(given, FIELDS))


def _checked(given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    checked = {}
    for name in checks.keys() & given.keys():
        try:
            checked[name] = checks[name](given[name])
        except ValueError as error:
            raise InvalidValue(f"{name} {error}", param=name) from None
    return checked
