"""Events of an answer, the same for every engine and API.

A backend yields any number of ``Delta`` for each choice, one ``Finish`` for each choice, and at most one ``Usage``.
``Document`` is a whole answer that is not a completion (embeddings). An answer that is not streamed has the same
events, in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.frozen import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with its log probability and all other values that OpenAI's two log probability formats have."""

    token: str
    logprob: float | None
    """The log probability; None for the first token of an echoed prompt."""
    top: tuple[tuple[str, float, tuple[int, ...] | None], ...] | None = None
    """Alternatives as (token, logprob, bytes), in the engine's order; None if the engine sent no alternatives."""
    bytes: tuple[int, ...] | None = None
    """The UTF-8 bytes of the token; None if the engine did not send the bytes."""
    offset: int | None = None
    """The ``text_offset`` of the completions format; None if the engine did not send an offset."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of one choice."""

    index: int
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Other keys of a chat delta, unchanged: ``tool_calls``, ``reasoning_content``, ``refusal`` …"""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Other keys of the choice, unchanged: ``prompt_logprobs``, ``token_ids`` …"""


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of one choice."""

    index: int
    reason: str
    """One of OpenAI's finish reasons: ``stop``, ``length``, ``tool_calls``, ``content_filter``, ``function_call``."""
    matched: str | int | None = None
    """The stop string or token id that ended the choice; None if not known."""
    source: str = "engine"
    """What ended the choice: ``engine``, or ``gateway`` if the gateway cut the text at a stop string."""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of the whole call."""

    prompt: int
    completion: int
    source: str = "upstream"
    """The source of the counts: ``upstream``, or ``estimated`` if the gateway counted the tokens."""
    details: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Further keys of the upstream's ``usage``, such as ``prompt_tokens_details``, unchanged."""


def total_usage(usages: Sequence[Usage | None]) -> Usage | None:
    """Return the sum of the token counts of several calls; None if the counts of a call are not known.

    The sum has no ``details``, because not all kinds of details can be added.
    """
    known = [usage for usage in usages if usage is not None]
    if len(known) < len(usages):
        return None
    return Usage(
        sum([usage.prompt for usage in known]),
        sum([usage.completion for usage in known]),
        source="upstream" if all(usage.source == "upstream" for usage in known) else "estimated",
    )


SKIPPED_CHOICE = "skipped_choice"
"""The name of the notice that a target sent a choice that was not requested."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The first event of an answer: a target has begun to answer. A later one, without a target, has only notices."""

    target: str
    """The target's label from the configuration, such as ``my-sft-7b/0``."""
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Keys of the whole answer that clients receive, such as ``system_fingerprint`` and ``service_tier``."""
    notices: tuple[str, ...] = ()
    """Changes made while the request was delivered to the target, for ``x-gateway-notice``."""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole answer that is not a completion, such as embeddings."""

    body: Mapping[str, Any]


Event = Begun | Delta | Finish | Usage | Document


def is_content(event: Event) -> bool:
    """Return whether an event has content for the client. ``Begun``, ``Usage`` and an empty delta have no content."""
    if isinstance(event, Delta):
        if event.text or event.logprobs:
            return True
        return bool(event.extras) or (event.fields is not EMPTY_MAPPING and any(event.fields.values()))
    return not isinstance(event, Begun | Usage)


MAX_COMPLETION = 16 * 1024 * 1024
"""The maximum size of one answer with all choices, as counted by ``delta_size``. An answer that is not streamed may
have the same number of bytes."""
PIECE = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished choice."""

    index: int
    text: str
    finish: Finish
    logprobs: tuple[TokenLogprob, ...] | None = None
    """The log probabilities of all tokens of the choice; None if the target sent no log probabilities."""
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The keys of the chat message except role and content (``tool_calls``, …), merged from all deltas."""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Further keys of the choice from the target, unchanged."""


@dataclass(frozen=True, slots=True)
class Completion:
    """All choices in order of their indexes, and the token counts."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    begun: Begun | None = None
    events: tuple[Event, ...] = ()
    """All events in order. Empty if the events were not kept, or if the answer has only one piece of text."""


def delta_size(delta: Delta) -> int:
    """Return the size of a delta: its characters, plus ``PIECE`` for the delta and for each value in the delta."""
    size = PIECE + len(delta.text)
    if delta.logprobs is not None or delta.fields is not EMPTY_MAPPING or delta.extras is not EMPTY_MAPPING:
        tokens = sum([1 + len(token.top or ()) for token in delta.logprobs or ()])
        size += PIECE * tokens + _value_size(delta.fields) + _value_size(delta.extras)
    return size


def _value_size(value: object) -> int:
    if isinstance(value, str):
        return PIECE + len(value)
    if isinstance(value, Mapping):
        return PIECE + sum(map(_value_size, value.values()))
    return PIECE + sum(map(_value_size, value)) if isinstance(value, list) else PIECE
