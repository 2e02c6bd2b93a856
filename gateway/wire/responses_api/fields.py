"""The fields of a ``/v1/responses`` request and of its items, with their types and ranges.

Fields that require storage or built-in tools of the server are refused. ``REFUSED`` contains the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.wire.request_fields import HINTS, MAX_NAME, MAX_TOOLS, Closed, Hints, Sampling
from metatemplate.values.kinds import TextOr

MAX_ITEMS = 4096
"""Maximum items of ``input``. A conversation of 2048 messages may have further items for reasoning and calls."""

MAX_KEYS = 64
"""Maximum keys of an object with a fixed set of keys. The check of each unknown key takes some microseconds."""


# ---------------------------------------------------------------- the request


class TextFormat(Closed):
    """``text.format``: the form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextOptions(Closed):
    """The field ``text``: options for the text of the answer."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningOptions(Closed):
    """The field ``reasoning``. ``summary`` and ``generate_summary`` have no effect: engines write no summaries."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class FunctionTool(Closed):
    """A function that the client runs."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamespaceTool(Closed):
    """A group of functions. Each function is checked later."""

    type: Literal["namespace"]
    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)]


class FunctionChoice(Closed):
    """``tool_choice`` for one function."""

    type: Literal["function"]
    name: str
    namespace: str | None = None
    """The namespace of the function. None: the only function with this name, or a name of a chat request."""


class ObfuscationOption(Closed):
    """The field ``stream_options``."""

    include_obfuscation: Literal[False] | None = None


Include = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]


class ResponsesRequest(Sampling, Hints):
    """``POST /v1/responses``. Nested objects are checked later, one by one."""

    input: TextOr[Annotated[list[dict[str, Any]], Field(max_length=MAX_ITEMS)]] | None = None
    """Required if the request has no dataset prompt."""
    instructions: str | None = None
    prompt: dict[str, Any] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: TextOr[dict[str, Any]] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: Annotated[list[Include], Field(max_length=16, fail_fast=True)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    stream_options: dict[str, Any] | None = None
    service_tier: str | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Field(max_length=64)] | None = None
    store: bool | None = None
    background: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: Any = None
    conversation: Any = None
    max_tool_calls: Any = None
    context_management: Any = None
    moderation: Any = None


SAME: tuple[str, ...] = (
    "model",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "user",
    "stream",
    "gateway",
    "parallel_tool_calls",
    "service_tier",
    "chat_template_kwargs",
    *sorted(HINTS),
)
"""Fields that have the same name and meaning in a chat request."""

STATELESS = "the gateway stores nothing; send the earlier items again in input"
REFUSED: Mapping[str, tuple[object, str]] = {
    # Field → (the value that has no effect, the reason for refusing every other value).
    "store": (False, "the gateway stores no responses; send false, or leave it out"),
    "background": (False, "the answer is sent only as the response to the request; leave it out"),
    "truncation": ("disabled", "the gateway drops no items of a conversation; leave it out"),
    "previous_response_id": (None, STATELESS),
    "conversation": (None, STATELESS),
    "max_tool_calls": (None, "this field limits tools on the server, but the gateway runs no tools; leave it out"),
    "context_management": (None, "the gateway drops no items of a conversation; leave it out"),
    "moderation": (None, "the gateway does not moderate content; leave it out"),
}

INSTEAD_OF: Mapping[str, str] = {
    # Field of chat or completions → what to send here instead.
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "top_logprobs, or include: [message.output_text.logprobs]",
    "functions": "tools",
    "function_call": "tool_choice",
    "n": "one request for each answer",
    **dict.fromkeys(
        ("add_generation_prompt", "audio", "continue_final_message", "modalities", "prediction", "web_search_options"),
        "such a request to /v1/chat/completions",
    ),
}


# ---------------------------------------------------------------- items of the input


class Item(Closed):
    """An item of the conversation. ``id`` and ``status`` describe the item, and are not sent to a model."""

    type: str
    id: str | None = None
    status: str | None = None


class MessageItem(Item):
    """A message of any role."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: TextOr[Annotated[list[dict[str, Any]], Field(max_length=1024)]]


class FunctionCallItem(Item):
    """A function call that the model made."""

    call_id: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    name: str
    namespace: str | None = None
    """The namespace of the function. None: the function has none."""
    arguments: str
    parsed_arguments: Any = None
    """Added by the Python SDK's ``responses.parse``."""


class FunctionOutputItem(Item):
    """The result of a function call."""

    call_id: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    output: TextOr[Annotated[list[dict[str, Any]], Field(max_length=1024)]]


class ReasoningText(Closed):
    """A piece of reasoning, or of its summary."""

    type: str
    text: str


class ReasoningItem(Item):
    """Reasoning that a model wrote before its message or call."""

    summary: Annotated[list[dict[str, Any]], Field(max_length=1024, fail_fast=True)] | None = None
    content: Annotated[list[dict[str, Any]], Field(max_length=1024, fail_fast=True)] | None = None
    encrypted_content: str | None = None


ITEMS: Mapping[str, type[Item]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionOutputItem,
    "reasoning": ReasoningItem,
}


# ---------------------------------------------------------------- parts of a content


class TextContent(Closed):
    """A part ``input_text``, or a part ``output_text`` of an earlier answer. The other keys describe that answer."""

    type: str
    text: str
    annotations: Any = None
    logprobs: Any = None
    parsed: Any = None
    """Added by the Python SDK's ``responses.parse``."""


class ImageContent(Closed):
    """A part ``input_image``."""

    type: str
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None


class AudioContent(Closed):
    """A part ``input_audio``, in the form of chat requests."""

    type: str
    input_audio: dict[str, Any]


class FileContent(Closed):
    """A part ``input_file``."""

    type: str
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None
    file_url: str | None = None


class RefusalContent(Closed):
    """A part ``refusal`` of an earlier answer."""

    type: str
    refusal: str


CONTENT_PARTS: Mapping[str, type[Closed]] = {
    "input_text": TextContent,
    "output_text": TextContent,
    "input_image": ImageContent,
    "input_audio": AudioContent,
    "input_file": FileContent,
    "refusal": RefusalContent,
}
