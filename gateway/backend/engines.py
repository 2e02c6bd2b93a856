"""Capabilities of each kind of engine, one row for each. The backends and ``gateway check`` read the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from gateway.backend.openai.request.control_fields import words
from gateway.config.snapshot import Engine, TargetSpec
from gateway.wire.request_fields import (
    HINTS,
    NEVER_SENT,
    STRUCTURAL,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
)
from metatemplate.values.dialogue import EMPTY_MAPPING

COMPLETIONS_PARAMS = frozenset(CompletionRequest.model_fields) - STRUCTURAL - HINTS - {"response_format"}
CHAT_PARAMS = frozenset(ChatRequest.model_fields) - STRUCTURAL - NEVER_SENT
EMBEDDINGS_PARAMS = frozenset(EmbeddingRequest.model_fields) - STRUCTURAL
"""The three constants ``…_PARAMS`` are the parameters that OpenAI's endpoints receive."""

OPENAI_STOPS = 4
"""The number of stop strings that OpenAI's API accepts."""


ConstraintForm = Literal["vllm", "text", "object"]
"""How a constraint field has a JSON Schema: in vLLM's object of constraints, as JSON text, or as a JSON object."""


@dataclass(frozen=True, slots=True)
class ConstraintField:
    """The field of an engine's ``/completions`` that constrains an answer to JSON."""

    name: str
    form: ConstraintForm


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """How one family of servers differs from OpenAI's API."""

    adds_bos: bool | None = None
    """True: the engine adds a BOS before a string prompt. None: not known."""
    bos_switch: str | None = None
    """The body field that turns the engine's BOS off and on; None: the engine has no such field."""
    reports_stops: bool = False
    """True: the end of an answer names the stop string that ended it, if there was one."""
    stop_token_ids: bool = False
    """True: the engine stops at the token ids in the field ``stop_token_ids``."""
    choices: bool | None = None
    """True: ``/completions`` returns ``n`` choices. None: not known."""
    lists: bool | None = None
    """True: the engine accepts a list of prompts in one call. None: not known."""
    token_prompts: bool = True
    """True: the engine accepts a prompt of token ids."""
    streamed_choices: bool = True
    """True: a stream has ``n`` choices, like an answer without a stream."""
    missing: frozenset[str] = frozenset()
    """OpenAI's completions fields that the engine ignores without an error."""
    ignored: frozenset[str] = frozenset()
    """Fields of other engines that this engine ignores without an error. The gateway refuses these fields."""
    explicit: Mapping[str, Any] | None = EMPTY_MAPPING
    """Sampling field of the engine → the value that equals OpenAI's default, because a model's files may set other
    defaults. A field with the value None is not sent. If the mapping is None, the provider's defaults are used."""
    sampling: frozenset[str] = frozenset()
    """Fields that the engine understands and OpenAI's API does not have."""
    chat: frozenset[str] = frozenset()
    """Further fields that only the engine's chat endpoint understands."""
    renders: bool = False
    """True: the chat endpoint accepts ``chat_template_kwargs``, and ``/tokenize`` returns the number of tokens of a
    prompt and the length of the context."""
    media_addresses: bool = True
    """True: the gateway sends addresses of media to the server, and the server fetches the media."""
    constraint: ConstraintField | None = None
    """The field that constrains the answer of ``/completions`` to JSON; None: the engine has no such field."""
    chat_stops: int | None = None
    """The number of stop strings that the engine's chat endpoint accepts; None: no limit."""


ENGINES: Mapping[Engine, EngineCapabilities] = MappingProxyType(
    {
        # Standard fields only: the address may belong to any engine, so the BOS is not known.
        "openai": EngineCapabilities(
            sampling=frozenset({"stream_options.include_obfuscation"}), chat_stops=OPENAI_STOPS
        ),
        # vLLM, vllm/entrypoints/openai/completion/protocol.py; a running server was compared.
        "vllm": EngineCapabilities(
            adds_bos=True,
            bos_switch="add_special_tokens",
            reports_stops=True,
            stop_token_ids=True,
            choices=True,
            lists=True,
            explicit=MappingProxyType({"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}),
            sampling=words(
                "add_special_tokens allowed_token_ids cache_salt ignore_eos include_stop_str_in_output length_penalty "
                "min_p min_tokens priority prompt_logprobs repetition_penalty response_format return_token_ids "
                "return_tokens_as_token_ids skip_special_tokens spaces_between_special_tokens stop_token_ids "
                "stream_options.continuous_usage_stats structured_outputs top_k truncate_prompt_tokens use_beam_search"
            ),
            chat=words(
                "add_generation_prompt bad_words chat_template_kwargs continue_final_message documents echo "
                "include_reasoning mm_processor_kwargs"
            ),
            renders=True,
            # vllm/sampling_params.py, StructuredOutputsParams: one of json (a schema), json_object (true) and others;
            # vLLM 0.12 removed the earlier fields guided_json and others, and ignores them. With --reasoning-parser,
            # the constraint waits for the end of a reasoning that a prompt may never begin (vllm-project/vllm#57726).
            constraint=ConstraintField("structured_outputs", "vllm"),
        ),
        # SGLang, python/sglang/srt/entrypoints/openai/protocol.py: its CompletionRequest has no
        # add_special_tokens and ignores unknown fields, so a BOS in the text has to be removed.
        "sglang": EngineCapabilities(
            adds_bos=True,
            reports_stops=True,
            stop_token_ids=True,
            choices=True,
            lists=True,
            ignored=frozenset({"prompt_logprobs"}),
            explicit=MappingProxyType({"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}),
            sampling=words(
                "custom_params ebnf ignore_eos json_schema lora_path min_p min_tokens no_stop_trim priority regex "
                "repetition_penalty response_format return_token_ids skip_special_tokens stop_regex stop_token_ids "
                "stream_options.continuous_usage_stats top_k"
            ),
            chat=words("chat_template_kwargs continue_final_message separate_reasoning stream_reasoning"),
            renders=True,
            # CompletionRequest.json_schema is a string. serving_completions.py (004c82e0) writes {"type": "object"} for
            # json_object. --reasoning-parser suspends the constraint, as in vLLM (sgl-project/sglang#11971).
            constraint=ConstraintField("json_schema", "text"),
        ),
        # llama.cpp's own server; also llama-cpp-python, except for JSON constraints and prompts of token ids. A string
        # always gets the BOS that the model's metadata ask for.
        "llamacpp": EngineCapabilities(
            adds_bos=True,
            choices=False,
            lists=False,
            ignored=frozenset({"prompt_logprobs", "return_token_ids"}),
            explicit=MappingProxyType({"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}),
            sampling=words(
                "cache_prompt grammar json_schema min_p mirostat mirostat_eta mirostat_mode mirostat_tau n_probs "
                "repeat_penalty response_format top_k typical_p"
            ),
            chat=words("add_generation_prompt reasoning_format"),
            # tools/server/server-task.cpp (00efb3e1): the schema is converted to a grammar. The field has no effect in
            # a body with the key grammar, even if its value is null.
            constraint=ConstraintField("json_schema", "object"),
        ),
        # llama-cpp-python, llama_cpp/server/types.py and app.py (0.3.35): CreateCompletionRequest has no other field
        # than these, and ignores unknown fields. app.py excludes n and best_of. It was observed to ignore
        # include_usage, and to answer 500 to lists of prompts and to token ids. It has a field for a grammar, and none
        # for a JSON Schema.
        "llamacpp-python": EngineCapabilities(
            adds_bos=True,
            choices=False,
            lists=False,
            token_prompts=False,
            missing=frozenset({"best_of"}),
            ignored=words("json_schema prompt_logprobs return_token_ids"),
            explicit=MappingProxyType({"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}),
            sampling=words(
                "grammar logit_bias_type min_p min_tokens mirostat_eta mirostat_mode mirostat_tau repeat_penalty top_k"
            ),
        ),
        # TGI, the router's CompletionRequest: model, prompt (string or list), max_tokens, seed, suffix, stream, stop,
        # the two penalties, temperature, top_p. TGI has been in maintenance since 2025-12.
        "tgi": EngineCapabilities(
            adds_bos=True,
            choices=False,
            lists=True,
            token_prompts=False,
            ignored=frozenset({"prompt_logprobs", "return_token_ids"}),
            missing=frozenset({"best_of", "echo", "logit_bias", "logprobs", "presence_penalty"}),
            # TGI refuses top_p=1 and ignores presence_penalty, so OpenAI's defaults are expressed by leaving both out.
            explicit=MappingProxyType({"top_p": None, "presence_penalty": None, "repetition_penalty": 1.0}),
            sampling=frozenset({"repetition_penalty"}),
        ),
    }
)

LITELLM = EngineCapabilities(
    # choices depends on the provider, see LiteLLMBackend
    token_prompts=False,
    streamed_choices=False,  # LiteLLM's stream wrapper keeps the finish reason of one choice only
    explicit=None,
)
"""The capabilities of any provider behind LiteLLM."""

EMBEDDED = EngineCapabilities(
    adds_bos=True,
    bos_switch="add_special_tokens",
    stop_token_ids=True,
    choices=True,
    lists=True,
    sampling=frozenset({"prompt_logprobs", "return_token_ids"}),
)
"""The capabilities of the engine in ``gateway/backend/embedded``."""

_OF_KIND: Mapping[str, EngineCapabilities] = {"litellm": LITELLM, "embedded": EMBEDDED}


PromptLogprobs = Literal["echo", "prompt_logprobs"]
"""The field that requests the log probabilities of a prompt: OpenAI's ``echo`` with ``logprobs``, or vLLM's field."""


def prompt_logprobs_of(targets: Sequence[TargetSpec], *, text: bool) -> PromptLogprobs | None:
    """Return the field for prompt log probabilities that all targets understand; None if no field works for all.

    ``text``: True if the targets receive strings.
    """
    rows = [declared_capabilities(target) for target in targets]
    if all("prompt_logprobs" in row.sampling for row in rows):
        return "prompt_logprobs"
    return "echo" if text and all(row.missing.isdisjoint({"echo", "logprobs"}) for row in rows) else None


def declared_capabilities(target: TargetSpec) -> EngineCapabilities:
    """Return the capabilities of a target's engine according to the configuration. No request is sent.

    A recording that answers in place of a target has the capabilities of that target, so that requests stay the same.
    """
    return _OF_KIND.get(target.replayed or target.speaks) or ENGINES[target.engine]
