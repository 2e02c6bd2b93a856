"""What comes back from a backend: a small vocabulary for every engine and API.

A backend yields any number of ``Delta`` for each choice, one ``Finish`` for each
choice, and at most one ``Usage``. ``Document`` stands alone: an answer that is
no completion (embeddings). Non-streaming answers are the same events at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with its log probability; lossless for both OpenAI shapes."""

    token: str
    logprob: float | None
    """None for the first token of an echoed prompt."""
    top: tuple[tuple[str, float, tuple[int, ...] | None], ...] | None = None
    """Alternatives as (token, logprob, bytes), in the engine's order; None when it gave none."""
    bytes: tuple[int, ...] | None = None
    """UTF-8 bytes of the token, when the engine gave them."""
    offset: int | None = None
    """``text_offset`` of the completions shape, when the engine gave it."""


@dataclass(frozen=True, slots=True)
class Delta:
    """More of one choice."""

    index: int
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Other keys of a chat delta, word for word: ``tool_calls``, ``reasoning_content``, ``refusal`` …"""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Other keys of the choice, word for word: ``prompt_logprobs``, ``token_ids`` …"""


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of one choice."""

    index: int
    reason: str
    """One of OpenAI's: ``stop``, ``length``, ``tool_calls``, ``content_filter``, ``function_call``."""
    matched: str | int | None = None
    """The stop string (or token id) that ended it, when known."""
    source: str = "engine"
    """Who found the end: ``engine`` or ``gateway`` (the gateway's own cut)."""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of the whole call."""

    prompt: int
    completion: int
    source: str = "upstream"
    """``upstream``, or ``estimated`` when counted here."""
    details: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """``prompt_tokens_details`` and the like, word for word."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A target took the call; comes first, and once per attempt that got so far."""

    target: str
    """The target's label from the configuration, such as ``my-sft-7b/0``."""
    attempts: int = 1
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """``system_fingerprint``, ``service_tier``: answer-level keys worth passing on."""
    notices: tuple[str, ...] = ()
    """What the delivery changed, in the words of ``x-gateway-notice``."""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole answer that is not a completion; for embeddings."""

    body: Mapping[str, Any]


Event = Begun | Delta | Finish | Usage | Document
