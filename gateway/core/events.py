"""Events of an answer, the same for every engine and API.

A backend yields any number of ``Delta`` for each choice, one ``Finish`` for each choice, and at most one ``Usage``.
``Document`` is a whole answer that is not a completion (embeddings). An answer that is not streamed has the same
events, in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.frozen import dataclass


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
