"""A client's request, parsed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field
from typing import Any, Literal

from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.exchange import EndpointName, RawPrompt
from metatemplate.values.dialogue import EMPTY_MAPPING, Dialogue
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Notice


@dataclass(frozen=True, slots=True)
class PromptReference:
    """A reference to a dataset prompt, in place of messages in a request (``gateway: {prompt: {id: …}}``)."""

    id: str
    """The name of a file in ``prompts/``, without ``.yaml``."""
    version: str = ""
    """The required hash of the prompt file, as in the header ``x-gateway-dataset-prompt``. Empty: any hash is valid."""
    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The row of the dataset: column → value."""
    examples: tuple[Mapping[str, Any], ...] | None = None
    """The dataset rows to use as examples. None: the retriever of the prompt file chooses the rows."""


@dataclass(frozen=True, slots=True)
class TurnRequests:
    """A dialogue that one call sends to the model in several requests (``gateway: {turns: …}``)."""

    mode: Literal["every", "every_with_gt", "last"]
    """Which answers form the history. See ``metatemplate.datasets.turn_requests.InferMode``."""
    questions: tuple[str, ...] = ()
    """User messages to append to the request's messages. Empty: the request's assistant messages are the turns."""
    answers: tuple[str, ...] = ()
    """The dataset's answers to the questions; empty if ``mode`` does not need answers."""


Unit = Literal["tokens", "none", "characters", "bytes"]
"""A log-likelihood is divided by the candidate's length in this unit. ``none``: no division."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The labelled texts of a log-likelihood request."""

    labelled: Mapping[str, str | Dialogue]
    """Label → a string, which is sent unchanged, or a complete conversation. All values have the same type. Empty if
    the call names a dataset prompt."""
    context: str | Dialogue | None = None
    """The text or conversation before each candidate; not scored. With a context, all candidates are strings."""
    normalize: Unit = "tokens"


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the client sent it, before any policy."""

    endpoint: EndpointName
    model: str
    request_id: str
    caller: Caller = ANONYMOUS
    repeat: int = 0
    """The value of ``gateway.repeat``; the cache stores a separate answer for each value."""
    dialogue: Dialogue | None = None
    """The conversation of a chat request. The conversation has no messages if the request names a dataset prompt."""
    dataset_prompt: PromptReference | None = None
    turns: TurnRequests | None = None
    raw_prompts: tuple[RawPrompt, ...] = ()
    """The prompts of a completions request."""
    prompt_is_list: bool = False
    params: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Request fields to send to the target, with OpenAI's names. Null fields are left out."""
    unknown: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Request fields that are not in OpenAI's API. The policy decides whether to send, drop or refuse these fields."""
    given: Set[str] = frozenset()
    """Names of all fields of the body that are not null."""
    n: int = 1
    stops: tuple[str, ...] = ()
    stream: bool = False
    stream_options: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The keys of the client's ``stream_options`` except ``include_usage``."""
    include_usage: bool = False
    echo: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Request fields that an answer of ``/v1/responses`` repeats, in the format of the answer. Empty for others."""
    notices: tuple[Notice, ...] = ()
    """Notices about request fields that have no effect."""
    candidates: Candidates | None = None
    """The candidates of a log-likelihood request."""
    explain: bool = False
    """True: the response body must contain the provenance and the prompt under the key ``gateway``."""

    @property
    def is_responses_api(self) -> bool:
        """True if the client called ``/v1/responses``, whose fields have names of their own."""
        return bool(self.echo)


@dataclass(frozen=True, slots=True)
class TokenizeCall(Call):
    """A request for the token ids of a prompt or of a conversation."""

    add_special_tokens: bool | None = None
    """Whether the tokenizer adds special tokens such as BOS. None: the same as in a call of the model."""
    token_strs: bool = False
    """True: the answer also contains the name of each token in the vocabulary."""
