"""One call for the embedded engine: tokenized prompts and checked parameters.

A parameter that is not in ``PARAMS`` is refused with an error that names the parameter. Null counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.exchange import Exchange


def _range(default: Any, kind: type, low: float = 0, high: float = 1) -> Any:
    """Return a field whose values have the type ``kind`` and are from ``low`` to ``high``."""
    return field(default=default, metadata={"range": (kind, low, high)})


@dataclass(frozen=True, slots=True)
class CallParams:
    """The parameters of one call; the defaults are OpenAI's."""

    temperature: float = _range(1.0, float, 0, 100)
    """The sampling temperature. 0: the likeliest token is chosen."""
    top_p: float = _range(1.0, float, 1e-6, 1)
    top_k: int = _range(0, int, -1, 2**31)
    """The number of likeliest tokens to choose from. 0 or -1: no limit."""
    seed: int | None = _range(None, int, -(2**63), 2**63 - 1)
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = _range(0.0, float, -2, 2)
    frequency_penalty: float = _range(0.0, float, -2, 2)
    max_tokens: int = _range(16, int, 0, 2**31)
    """The maximum length of the answer. 16 is OpenAI's default for ``/v1/completions``; templated calls set a limit."""
    ignore_eos: bool = _range(False, bool)
    echo: bool = _range(False, bool)
    logprobs: int | None = _range(None, int, 0, 20)
    """The number of alternatives per token. 0: the chosen token only; None: no log probabilities."""
    prompt_logprobs: int | None = _range(None, int, 0, 20)
    """The number of alternatives per token of the prompt. 0: the prompt's tokens only; None: no log probabilities."""
    return_token_ids: bool = _range(False, bool)
    """True: the answer contains the token ids of the prompt and of each delta."""
    skip_special_tokens: bool = _range(True, bool)
    add_special_tokens: bool | None = _range(None, bool)
    """Whether the tokenizer adds special tokens such as BOS. None: the template or the target decides."""


RANGES: Mapping[str, tuple[type, float, float]] = {
    one.name: one.metadata["range"] for one in fields(CallParams) if one.metadata
}
"""Parameter → (type, smallest value, largest value)."""
TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number"}
PARAMS = frozenset({*RANGES, "logit_bias", "user"})
"""Every parameter of a call except ``n``, the stop strings and the prompt."""


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """One prompt, tokenized."""

    tokens: tuple[int, ...]
    text: str | None
    """The prompt as the client wrote it; None if the client sent token ids."""
    added: int = 0
    """Leading tokens that the tokenizer added (BOS); an echo does not show them."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One call, with ``n`` choices for every prompt."""

    exchange: Exchange
    params: CallParams
    prompts: tuple[TokenizedPrompt, ...]
    token_delay: float = 0.0
    """Seconds that the engine waits before each step of each choice."""


def read_params(params: Mapping[str, Any], vocabulary_size: int) -> CallParams:
    """Check the parameters of a call. Raises ``UnsupportedParameter`` or ``InvalidValue`` with the field's name."""
    given = {name: value for name, value in params.items() if value is not None}
    for name, value in given.items():
        if name not in PARAMS:
            raise UnsupportedParameter(
                f"the embedded engine does not accept {name[:64]!r}; accepted: {', '.join(sorted(PARAMS))}", param=name
            )
        if name in RANGES:
            kind, low, high = RANGES[name]
            fits = type(value) is kind or (kind is float and type(value) is int)
            if not fits or not low <= value <= high:
                between = "" if kind is bool else f" between {low:g} and {high:g}"
                raise InvalidValue.at(name, f" must be {TYPE_NAMES[kind]}{between}")
    given.pop("user", None)
    if "logit_bias" in given:
        given["logit_bias"] = _bias(given["logit_bias"], vocabulary_size)
    return CallParams(**given)


def _bias(value: Any, vocabulary_size: int) -> dict[int, float]:
    """Return ``logit_bias`` as token id → number to add to the score of the token."""
    try:
        bias = {int(token): float(number) for token, number in value.items()}
        if all(0 <= token < vocabulary_size and -100 <= number <= 100 for token, number in bias.items()):
            return bias
    except (AttributeError, TypeError, ValueError):
        pass
    message = f"logit_bias must map token ids from 0 to {vocabulary_size - 1} to numbers between -100 and 100"
    raise InvalidValue(message, param="logit_bias")
