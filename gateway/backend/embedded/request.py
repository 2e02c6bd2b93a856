"""Parameters of a call and options of a target, as the embedded engine accepts them.

Each parameter is a row of a table; any other is refused by name. Null counts as absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, InvalidValue, Problem, UnsupportedParameter

MAX_ALTERNATIVES = 20
"""The largest value of ``logprobs``."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The parameters by which the next token is chosen; the defaults are OpenAI's."""

    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: no limit."""
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class CallParams:
    """The parameters of one call."""

    sampling: SamplingParams = SamplingParams()
    max_tokens: int = 16
    """OpenAI's default for ``/v1/completions``; templated calls always have a limit."""
    ignore_eos: bool = False
    echo: bool = False
    logprobs: int | None = None
    """Alternatives per token; 0: the chosen token only; None: no log probabilities."""
    skip_special_tokens: bool = True
    add_special_tokens: bool | None = None
    """None: as the template or the target has it."""


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """One prompt, tokenized."""

    tokens: tuple[int, ...]
    text: str | None
    """As the client wrote it; None if it came as token ids."""
    added: int = 0
    """Leading tokens that the tokenizer added (BOS); an echo does not show them."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One call: every prompt ``n`` times."""

    params: CallParams
    prompts: tuple[PromptTokens, ...]
    n: int = 1
    stops: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    token_delay: float = 0.0
    """Seconds to wait before each token."""


# ---------------------------------------------------------------- parameters of a call

Check = Callable[[Any], Any]
"""Returns the value as the engine uses it; raises ``ValueError`` with a phrase for people."""


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
    "seed": _whole(-(2**63)),
    "logit_bias": _bias,
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
}
OTHER: Mapping[str, Check] = {
    "max_tokens": _whole(0),
    "ignore_eos": _flag,
    "echo": _flag,
    "logprobs": _whole(0, MAX_ALTERNATIVES),
    "skip_special_tokens": _flag,
    "add_special_tokens": _flag,
}
PARAMS: frozenset[str] = frozenset({*SAMPLING, *OTHER, "user"})
"""Every parameter of a call beside ``n``, the stops and the prompt."""


def read_params(params: Mapping[str, Any]) -> CallParams:
    """The parameters of a call. Raises ``UnsupportedParameter`` or ``InvalidValue`` with the field's name."""
    given = {name: value for name, value in params.items() if value is not None}
    for name in given:
        if name not in PARAMS:
            raise UnsupportedParameter(
                f"the embedded engine does not take {name[:64]!r}; it takes {', '.join(sorted(PARAMS))}", param=name
            )
    return CallParams(sampling=SamplingParams(**_checked(given, SAMPLING)), **_checked(given, OTHER))


def _checked(given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    checked = {}
    for name in checks.keys() & given.keys():
        try:
            checked[name] = checks[name](given[name])
        except ValueError as error:
            raise InvalidValue(f"{name} {error}", param=name) from None
    return checked


# ---------------------------------------------------------------- options of a target


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """The setting ``options`` of a target."""

    token_delay: float = 0.0
    """Seconds to wait before each token, for demonstrations and tests."""
    max_model_len: int | None = None
    """Shortens the context."""


OPTIONS: Mapping[str, Check] = {"token_delay": _number(0, 60), "max_model_len": _whole(1)}


def read_options(target: TargetSpec) -> EmbeddedOptions:
    """Raises ``ConfigError`` with all problems of the target's options."""
    values, problems = {}, []
    for name, value in target.options.items():
        try:
            if name not in OPTIONS:
                raise ValueError(f"is not an option of embedded targets (known: {', '.join(sorted(OPTIONS))})")
            values[name] = OPTIONS[name](value)
        except ValueError as error:
            problems.append(Problem(target.label, 0, f"options.{name}", str(error)))
    if problems:
        raise ConfigError(tuple(problems))
    return EmbeddedOptions(**values)
