"""The fields of requests, with their types and ranges.

There are three kinds of fields: fields of several endpoints, fields of one endpoint, and fields that only the operator
may set. Any other field is unknown, and the policy decides whether to send it. Ranges come from OpenAI's API, and size
limits from ``docs/spec/reliability.md`` 3.2.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticKnownError

from gateway.core.call import Unit
from metatemplate.values.dialogue import MAX_TURNS
from metatemplate.values.kinds import TextOr

MAX_MESSAGES = 2048
MAX_TOOLS = 128
MAX_CHOICES = 8
MAX_STOPS = {"chat": 4, "completions": 64}
MAX_STOP_LENGTH = 256
MAX_PROMPTS = 1024
MAX_INPUTS = 2048
"""Maximum texts in one embeddings request (OpenAI's limit)."""
MAX_CANDIDATES = 128
MAX_NAME = 256
MAX_VARIABLES = 256
MAX_LABELS = 16
MAX_LABEL = 512
"""Maximum entries of ``metadata``, and maximum characters of each."""
MAX_EXAMPLES = 256
"""Maximum rows of few-shot examples in one request."""
OPENAI_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""OpenAI's values of parameters that the client did not send."""

FORBIDDEN = frozenset({
    # A client that could set these would choose the upstream, its key, its template or its answer
    # (CVE-2024-6587, CVE-2026-115918). They are refused under every policy, unless they are fields of the endpoint.
    "api_base", "base_url", "api_key", "api_version", "api_type", "custom_llm_provider", "model_list",
    "organization", "deployment_id", "extra_headers", "extra_body", "extra_query", "headers", "chat_template",
    "chat_template_kwargs", "mock_response", "mock_tool_calls", "fallbacks", "context_window_fallbacks",
    "metadata", "litellm_params", "litellm_call_id", "proxy_server_request", "num_retries", "max_retries",
    "timeout", "force_timeout", "azure", "vertex_project", "vertex_credentials", "aws_access_key_id",
    "aws_secret_access_key", "aws_session_token",
})  # fmt: skip


def _whole_stops(value: str | list[str]) -> str | list[str]:
    for stop in [value] if isinstance(value, str) else value:
        if not stop:
            raise ValueError("an empty stop string matches everywhere; leave it out")
        if len(stop) > MAX_STOP_LENGTH:
            raise ValueError(f"a stop string may have at most {MAX_STOP_LENGTH} characters")
    return value


def _at_most(limit: int) -> BeforeValidator:
    """Refuse an object with more than ``limit`` items before the items are checked, because each error takes time."""

    def short(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > limit:
            details = {"field_type": "Dictionary", "max_length": limit, "actual_length": len(value)}
            raise PydanticKnownError("too_long", details)
        return value

    return BeforeValidator(short)


TOKEN_ID: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
PROMPTS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        {"type": "array", "minItems": 1, "items": TOKEN_ID},
        {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1, "items": TOKEN_ID}},
    ]
}
"""The JSON schema of a prompt. ``message_content.py`` checks a prompt without this schema."""


Stops = Annotated[TextOr[Annotated[list[str], Field(fail_fast=True)]], AfterValidator(_whole_stops)]
Bias = Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], _at_most(1024)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class Strict(BaseModel):
    """Base class: types must match exactly (no ``"1"`` for 1), and errors never repeat the input."""

    model_config = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True, allow_inf_nan=False)


class Closed(BaseModel):
    """Base class: types must match exactly, a key that is not listed is refused, and errors never repeat the input."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class StreamOptions(Strict):
    """The field ``stream_options``. Other keys, such as vLLM's ``continuous_usage_stats``, are passed on."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class StoredPrompt(Closed):
    """A dataset prompt. A variable is any JSON value; at ``/v1/responses``, it may also be a content part."""

    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    version: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    variables: Annotated[dict[str, Any], Field(max_length=MAX_VARIABLES)] | None = None


class PromptOptions(StoredPrompt):
    """``gateway.prompt``: a dataset prompt instead of messages."""

    examples: Annotated[list[dict[str, Any]], Field(max_length=MAX_EXAMPLES)] | None = None


class TurnOptions(Closed):
    """``gateway.turns``: a dialogue of several requests in one call."""

    mode: Literal["every", "every_with_gt", "last"] = "every"
    questions: Annotated[list[str], Field(max_length=MAX_TURNS)] | None = None
    answers: Annotated[list[str], Field(max_length=MAX_TURNS)] | None = None


class GatewayOptions(Closed):
    """The request's extension field ``gateway``."""

    explain: bool = False
    repeat: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """The cache stores a separate answer for each value of ``repeat``."""
    variables: Annotated[dict[str, Any], Field(max_length=MAX_VARIABLES)] | None = None
    """Values for the slots of the model's template."""
    prompt: Annotated[PromptOptions, _at_most(8)] | None = None
    turns: Annotated[TurnOptions, _at_most(8)] | None = None


class Hints(Strict):
    """Fields that cannot change an answer: a hint for a cache, a name for the caller, or labels of the call.

    A valid hint never fails a call. It is sent to a target that knows the field, and left out for any other target,
    with a notice. Hints are no part of the cache key.
    """

    prompt_cache_key: str | None = None
    """Calls with the same value use the same target under ``balance: sticky``."""
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    metadata: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=MAX_LABEL)]], Field(max_length=MAX_LABELS), _at_most(MAX_LABELS)
        ]
        | None
    ) = None
    client_metadata: Annotated[dict[str, Any], Field(max_length=64), _at_most(64)] | None = None


HINTS = frozenset(Hints.model_fields)
NEVER_SENT = frozenset({"metadata", "client_metadata"})
"""Hints that no target receives. Providers accept ``metadata`` only for calls that they store, and LiteLLM reads it
itself."""


class Sampling(Strict):
    """The common fields of all endpoints that return text."""

    model: Annotated[str, Field(min_length=1)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Stops | None = None
    seed: Int64 | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Bias | None = None
    user: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    stream: bool | None = None
    gateway: Annotated[GatewayOptions, _at_most(64)] | None = None


class Shared(Sampling, Hints):
    """The common fields of chat and completions."""

    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream_options: StreamOptions | None = None


class TextPart(Strict):
    """A part of a message's content. The other keys of media parts are passed on unchanged."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    text: str | None = None


class ChatMessage(Strict):
    """One message. The template decides which roles are allowed."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: TextOr[Annotated[list[TextPart], Field(max_length=1024, fail_fast=True)]] | None = None
    name: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    tool_calls: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None


class ChatRequest(Shared):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: TextOr[dict[str, Any]] | None = None
    parallel_tool_calls: bool | None = None
    functions: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    function_call: TextOr[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: Annotated[list[str], Field(fail_fast=True)] | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    service_tier: str | None = None
    store: bool | None = None
    web_search_options: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Field(max_length=64)] | None = None
    """Forbidden for completions, embeddings and log-likelihoods. The template decides which keys are allowed."""


class CompletionRequest(Shared):
    """``POST /v1/completions``. ``prompt`` may have all four forms of OpenAI's API."""

    prompt: Annotated[Any, WithJsonSchema(PROMPTS_SCHEMA)]
    """Checked in ``message_content.py``, because pydantic's messages for a union of four types are not clear."""
    max_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    suffix: str | None = None
    response_format: dict[str, Any] | None = None
    """Not in OpenAI's API. The engine gets it as its own constraint."""


class EmbeddingRequest(Strict):
    """``POST /v1/embeddings``."""

    model: Annotated[str, Field(min_length=1)]
    input: Annotated[Any, WithJsonSchema(PROMPTS_SCHEMA)]
    encoding_format: str | None = None
    dimensions: Annotated[int, Field(ge=1, le=2**31)] | None = None
    user: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    gateway: Annotated[GatewayOptions, _at_most(64)] | None = None


Conversation = Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]


class LoglikelihoodRequest(Strict):
    """``POST /v1/loglikelihood``."""

    model: Annotated[str, Field(min_length=1)]
    candidates: (
        Annotated[
            dict[Annotated[str, Field(max_length=MAX_NAME)], TextOr[Conversation]],
            Field(min_length=1),
            _at_most(MAX_CANDIDATES),
        ]
        | None
    ) = None
    prompt: Annotated[PromptOptions, _at_most(8)] | None = None
    context: TextOr[Conversation] | None = None
    normalize: Unit | None = None
    gateway: Annotated[GatewayOptions, _at_most(64)] | None = None


FOREIGN: dict[str, dict[str, str]] = {
    # Fields of other endpoints, and where to send them. An answer that ignores such a field would be wrong.
    "chat": {"prompt": "/v1/completions"},
    "completions": dict.fromkeys(
        ("messages", "add_generation_prompt", "continue_final_message"), "/v1/chat/completions"
    ),
    # vLLM and SGLang read ``messages`` of an embeddings request as a conversation, including addresses of media.
    "embeddings": {
        "prompt": "/v1/completions",
        **dict.fromkeys(("messages", "add_generation_prompt", "continue_final_message"), "/v1/chat/completions"),
    },
}

STRUCTURAL = frozenset(
    {
        "model",
        "messages",
        "prompt",
        "n",
        "stop",
        "stream",
        "stream_options",
        "gateway",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template_kwargs",
    }
)
"""Fields that become attributes of ``Call``; every other known field is a parameter."""
