"""A client's request, parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from gateway.core.dialogue import EMPTY_MAPPING, Dialogue
from gateway.core.exchange import EndpointName, RawPrompt
from gateway.core.frozen import dataclass
from gateway.core.prompt import Notice


@dataclass(frozen=True, slots=True)
class PromptReference:
    """A dataset prompt that a request names instead of messages (``gateway: {prompt: {id: …}}``)."""

    id: str
    """The name of a file in ``prompts/``, without ``.yaml``."""
    version: str = ""
    """The hash that the file must have, as ``x-gateway-dataset-prompt`` shows it; empty: any."""
    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The row of the dataset: column → value."""
    examples: tuple[Mapping[str, Any], ...] | None = None
    """The rows of the examples; None: the retriever of the prompt file chooses them."""


MAX_TURNS = 64
"""The most turns that the model answers in one call."""


@dataclass(frozen=True, slots=True)
class TurnRequests:
    """A dialogue of several requests in one call (``gateway: {turns: …}``)."""

    mode: Literal["every", "every_with_gt", "last"]
    """See ``gateway.template.dataset.multi_turn.InferMode``."""
    questions: tuple[str, ...] = ()
    """User messages after the request's messages; empty: the turns are the assistant messages of the request."""
    answers: tuple[str, ...] = ()
    """The dataset's answers to the questions; empty if the mode does not need them."""


Unit = Literal["tokens", "none", "characters", "bytes"]
"""The unit by whose number a log-likelihood is divided; ``none``: it is not divided."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The labelled texts of a log-likelihood request."""

    labelled: Mapping[str, str | Dialogue]
    """Label → a string, which is sent unchanged, or a complete conversation. All values have the same type. Empty if
    the call names a dataset prompt."""
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
    session: str = ""
    """The header ``x-session-id``; empty: none."""
    tenant: str = ""
    """See ``Exchange``."""
    repeat: int = 0
    """See ``Exchange``."""
    dialogue: Dialogue | None = None
    """The conversation of a chat request; without messages if the request names a dataset prompt."""
    prompt: PromptReference | None = None
    turns: TurnRequests | None = None
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
    echo: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Fields of the request that the answer repeats (``/v1/responses``), in the answer's form."""
    notices: tuple[Notice, ...] = ()
    """Fields of the request that have no effect."""
    fallbacks: tuple[str, ...] = ()
    """The models that may answer if the requested one fails, and that the client's key may use."""
    candidates: Candidates | None = None
    """The candidates of a log-likelihood request."""
    allow_markers: bool = False
    """True: the client's key may send markers of the model's template in texts."""
    explain: bool = False
    """True: the response body must have the provenance and the prompt under the key ``gateway``."""


@dataclass(frozen=True, slots=True)
class TokenizeCall(Call):
    """A request for the token ids of a prompt or of a conversation."""

    add_special_tokens: bool | None = None
    """Whether the tokenizer adds its special tokens (BOS); None: as when the model reads this prompt."""
    token_strs: bool = False
    """True: the answer also has the tokens' names in the vocabulary."""
