"""The first different token of two answers, and how close the choice between the two tokens was."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from gateway.evaluate.analysis.rows import ChosenToken, RunRow

DEFAULT_FLOOR = 0.125
"""The floor of runs for which it was not measured: one step of a logit between 16 and 32 in bfloat16.

The floor is the largest difference between the log probabilities of a token that one of two runs with equal settings
chose, in the two runs, after equal tokens. Noise of this size in two tokens moves their gap by twice the floor.
"""
UNLIKELY = "not the likeliest token at temperature 0"
NEAR_TIE = "near tie"
WIDE_GAP = "wide gap"
NO_GAP = "gap not recorded"
REMARKS = (UNLIKELY, NEAR_TIE, WIDE_GAP, NO_GAP)
"""What can be remarked about a row whose first different token was sampled."""
NEUTRAL = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "stop",
        "stop_token_ids",
        "logprobs",
        "top_logprobs",
        "return_token_ids",
        "prompt_logprobs",
        "add_special_tokens",
        "skip_special_tokens",
        "user",
    }
)
"""Parameters that leave the likeliest token likeliest at temperature 0. Others do if they have no effect."""
TokenPair = tuple[ChosenToken | None, ChosenToken | None]
NO_EFFECT: Collection[object] = (None, False, 0, 1.0, {}, [], "auto", "none")


@dataclass(frozen=True, slots=True)
class SampledRemark:
    """A remark about the first different token of two answers."""

    kind: str
    """One of ``REMARKS``."""
    text: str


def remark_of(a: RunRow, b: RunRow, floor: float, *, same_prompt: bool) -> SampledRemark | None:
    """Return the remark about two rows whose texts differ; None after different prompts, where a gap has no meaning.

    ``floor``: see ``DEFAULT_FLOOR``.
    """
    for name, row in (("first", a), ("second", b)):
        if (found := _unlikely(row)) is not None:
            token, gap = found
            return SampledRemark(UNLIKELY, f"{token!r} of the {name} run is {UNLIKELY} (gap {gap:.3f})")
    if not same_prompt:
        return None
    pair = next(filter(_is_different, _places(a, b)), None)
    if pair is None:
        return SampledRemark(NO_GAP, "gap not recorded (gateway run --evidence)")
    one, other = pair
    change = f"token {_shown(one)} → {_shown(other)}"
    gaps = [*_gap(one, other, a), *_gap(other, one, b)]
    gap, at_least = max(gaps, default=(0.0, True))
    if gap > 2 * floor:
        return SampledRemark(WIDE_GAP, f"{change}, a wide gap ({'at least ' if at_least else ''}{gap:.3f})")
    if any(bound for _, bound in gaps) or not gaps:
        return SampledRemark(NO_GAP, f"{change}, gap not recorded: one is not among the two likeliest of the other run")
    return SampledRemark(NEAR_TIE, f"{change}, a near tie (gap {gap:.3f}, at most {2 * floor:.3f})")


def largest_shift(a: RunRow, b: RunRow) -> float | None:
    """Return the largest difference between the log probabilities of a token that one of the runs chose.

    Only tokens after equal tokens are compared, and those that both runs have recorded. None: there are none.
    """
    pairs = [(one, other) for one, other in _places(a, b) if one is not None and other is not None]
    both = [*pairs, *[(other, one) for one, other in pairs]]
    shifts = [abs(own.logprob - value) for own, other in both if (value := _logprob(own.text, other)) is not None]
    return max(shifts, default=None)


def _logprob(text: str, place: ChosenToken) -> float | None:
    """Return the log probability of a token at a place of the other run; None: not recorded."""
    return place.logprob if place.text == text else dict(place.top).get(text)


def _places(a: RunRow, b: RunRow) -> Iterator[TokenPair]:
    """Yield the tokens of two rows up to the first different one of each choice. None: the answer has ended."""
    for tokens, others in zip(a.facts.tokens or (), b.facts.tokens or (), strict=False):
        for place in zip_longest(tokens, others):
            yield place
            if _is_different(place):
                break


def _is_different(place: TokenPair) -> bool:
    one, other = place
    return one is None or other is None or one.text != other.text


def _unlikely(row: RunRow) -> tuple[str, float] | None:
    """Return the first token that was not the likeliest, and its gap, if the likeliest was asked for."""
    params = row.facts.params or {}
    others = [value for name, value in params.items() if name not in NEUTRAL]
    steered = any(value is True or value not in NO_EFFECT for value in others)  # True equals 1.0
    if steered or params.get("temperature") != 0:
        return None
    for token in (token for tokens in row.facts.tokens or () for token in tokens):
        gap = max([value for _, value in token.top], default=token.logprob) - token.logprob
        if gap > 0:
            return token.text, gap
    return None


def _gap(own: ChosenToken | None, other: ChosenToken | None, row: RunRow) -> list[tuple[float, bool]]:
    """Return the gap between two tokens in the run that chose ``own``, and whether it may be larger. Empty: not known.

    ``other``: the token of the other run; None if its answer had ended.
    """
    if own is None or not own.top:
        return []
    texts = {other.text} if other is not None else {"", *(row.facts.params or {}).get("stop", ())}
    found = [abs(own.logprob - value) for text, value in own.top if text in texts]
    if found:
        return [(min(found), False)]
    return [(own.logprob - min([value for _, value in own.top]), True)]


def _shown(token: ChosenToken | None) -> str:
    return "the end" if token is None else repr(token.text)
