"""One configured model: its prompt template, its rules for requests, its backend and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gateway.backend.engines import PromptLogprobs
from gateway.config.snapshot import ModelSpec
from gateway.core.caller import Caller
from gateway.core.exchange import Backend, EndpointName
from gateway.policy.admit.parameters import Form, ParameterPolicy
from metatemplate.markers.role_boundaries import SafeRenderer
from metatemplate.templates.base import PromptListTemplate, Template
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.frozen import dataclass

if TYPE_CHECKING:
    from gateway.backend.openai.engine_tokenizer import EngineTokenizer
    from gateway.backend.openai.tokenizer_client import TokenizerClient
    from gateway.calls.preparation.reasoning_replay import ReasoningReplay
    from gateway.policy.admit.media import MediaRule
    from gateway.stream.json_schema.checker import SchemaChecker
    from metatemplate.answers.output_parsing import OutputParsing
    from metatemplate.datasets.prompt import DatasetPrompt
    from metatemplate.markers.prompt_ids import PromptIds
    from metatemplate.markers.prompt_tokens import PromptTokenizer

MAX_HEADER = 1024
"""The maximum number of characters of a header value that contains names or notices."""


@dataclass(frozen=True, slots=True)
class Route:
    """One configured model with everything that a call needs."""

    spec: ModelSpec
    form: Form
    template: Template
    renderer: SafeRenderer
    """Renders conversations with the template, and applies the policy for markers."""
    prompt_lists: PromptListTemplate | None
    """The template that renders the prompt lists of dataset prompts. None if there are no dataset prompts."""
    parameters: Mapping[EndpointName, ParameterPolicy]
    """The parameter policy of each endpoint."""
    media: MediaRule | None
    """The rule for media in messages. None for a model that reads strings: its template refuses media."""
    template_id: str
    """The template's name and hash, ``name@sha256:12hex``, for the header ``x-gateway-template``."""
    headers: tuple[bytes, ...]
    """The values of the headers of every answer to a rendered prompt. See ``answer_headers``."""
    raw_headers: tuple[bytes, ...]
    """The same values for raw prompts and embeddings, which use no template."""
    backend: Backend | None = None
    """The model's targets with the delivery layers around them. None for commands that only render prompts."""
    eos_stops: tuple[str, ...] = ()
    """The text of the template's ``eos_token_id``. Empty if the gateway cannot decode this token id."""
    tokens: Tokenizer | None = None
    """The model's tokenizer. None if the gateway does not have the tokenizer."""
    prompt_tokens: PromptTokenizer | None = None
    """Encodes rendered prompts as token ids. None if all prompts are sent as text."""
    prompt_ids: PromptIds | None = None
    """Makes the token ids of every rendered prompt. None if the targets do not have ``prompt: ids``."""
    max_model_len: int | None = None
    """The context length in tokens, as configured or read from a loaded model. None if unknown."""
    engine_tokenizer: EngineTokenizer | None = None
    """Counts tokens at the engine. None if the gateway counts the tokens, or if the engine cannot count tokens."""
    tokenizer_client: TokenizerClient | None = None
    """The client for the tokenizer endpoints of the first target. None if its engine has no such endpoints."""
    passes_template_kwargs: bool = False
    """True if all targets render the chat template themselves and accept ``chat_template_kwargs``."""
    prompt_logprobs: PromptLogprobs | None = None
    """The kind of request that returns a prompt's log probabilities. None if the targets cannot return them."""
    output_parsing: OutputParsing | None = None
    """Chooses the parser for the answer to a chat request. None if all text of an answer is content."""
    schemas: SchemaChecker | None = None
    """Validates the JSON Schemas of clients, and the answers to them. None if no target can constrain an answer."""
    reasoning: ReasoningReplay | None = None
    """Puts back the reasoning that a client has left out. None if the policy does not want this."""
    prompts: Mapping[str, DatasetPrompt] = field(default=EMPTY_MAPPING)
    """The dataset prompts, by name. All models share them."""
    default_tools: Sequence[Mapping[str, Any]] = ()
    """The tools that are sent with a request without tools, for targets that accept messages."""
    fallbacks: Mapping[str, Route] = field(default=EMPTY_MAPPING)
    """Name → the route of a model that is tried if this model fails, in order."""

    def fallbacks_of(self, caller: Caller) -> list[str]:
        """Return the names of the fallback models that a client may use, in order."""
        return [name for name in self.fallbacks if caller.may_use(name)]

    @property
    def context_length(self) -> int | None:
        """The context length in tokens, from the configuration or from the engine. None if unknown."""
        return self.max_model_len if self.engine_tokenizer is None else self.engine_tokenizer.length


def answer_headers(model: ModelSpec, template_id: str) -> tuple[bytes, ...]:
    """Return the names of the model, the template and the policy, for the headers of all answers of a route."""
    return header_value(model.name), header_value(template_id), header_value(model.policy.name)


@lru_cache(maxsize=1024)
def header_value(value: str) -> bytes:
    """Return a value as one line of ASCII, of at most ``MAX_HEADER`` characters. Most values occur in many answers."""
    if len(value) > MAX_HEADER:
        value = value[: MAX_HEADER - 3] + "..."
    return value.replace("\r", " ").replace("\n", " ").encode("ascii", "replace")
