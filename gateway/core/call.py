"""A client's request, parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from gateway.core.dialogue import EMPTY_MAPPING, Dialogue
from gateway.core.exchange import EndpointName, RawPrompt
from gateway.core.frozen import dataclass

Unit = Literal["tokens", "none", "characters", "bytes"]
"""The unit by whose number a log-likelihood is divided; ``none``: it is not divided."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The labelled texts of a log-likelihood request."""

    labelled: Mapping[str, str | Dialogue]
    """Label → a string, which is sent unchanged, or a complete conversation. All values have the same type."""
    context: str | Dialogue | None = None
    """The text, or the conversation, before each candidate; not scored. With a context the candidates are strings."""
    normalize: Unit = "tokens"


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the client sent it, before any policy."""

    endpoint: EndpointName
    model: str
    request_id: str
    received: float
    """Monotonic seconds at which the request's head arrived."""
    dialogue: Dialogue | None = None
    """The conversation of a chat request."""
    prompts: tuple[RawPrompt, ...] = ()
    """The prompts of a completions request."""
    prompt_is_list: bool = False
    params: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Fields for the target, in OpenAI's names; null fields are left out."""
    unknown: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Fields that are not in OpenAI's API; the policy decides about them."""
    given: frozenset[str] = frozenset()
    """Names of all fields of the body that are not null."""
    n: int = 1
    stops: tuple[str, ...] = ()
    stream: bool = False
    stream_options: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The keys of the client's ``stream_options`` except ``include_usage``."""
    include_usage: bool = False
    candidates: Candidates | None = None
    """The candidates of a log-likelihood request."""
    explain: bool = False
    """True: the response body must have the provenance and the prompt under the key ``gateway``."""
