"""What does each engine understand? One row per dialect, read by the backends and by ``gateway check``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gateway.backend.openai.control_fields import words
from gateway.config.snapshot import Engine
from gateway.core.dialogue import EMPTY_MAPPING

COMPLETIONS_PARAMS = words(
    "best_of echo frequency_penalty logit_bias logprobs max_tokens presence_penalty seed suffix temperature top_p user"
)
"""The fields of OpenAI's ``/v1/completions``, beside those the gateway writes itself."""

CHAT_PARAMS = words(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata "
    "modalities parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort response_format "
    "safety_identifier seed service_tier store temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)
"""The fields of OpenAI's ``/v1/chat/completions``, beside those the gateway writes itself."""

OPENAI_STOPS = 4
"""How many stop strings OpenAI's API takes; more are refused."""

EMBEDDINGS_PARAMS = frozenset({"dimensions", "encoding_format", "input", "user"})


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of servers departs from OpenAI's API."""

    adds_bos: bool | None
    """Does it put a BOS before a string prompt? None: not known."""
    bos_switch: str | None
    """The body field that turns that off and on; None: there is none."""
    stop_token_ids: bool
    """Does it stop at token ids given as ``stop_token_ids``?"""
    choices: bool | None
    """Does ``/completions`` return ``n`` choices? None: not known."""
    lists: bool | None
    """Does it take a list of prompts in one call? None: not known."""
    token_prompts: bool
    """Does it take token ids instead of strings?"""
    streamed_choices: bool = True
    """Do streams carry ``n`` choices as whole answers do?"""
    missing: frozenset[str] = frozenset()
    """OpenAI's completions fields that it does not know; it would ignore them in silence."""
    explicit: Mapping[str, Any] = EMPTY_MAPPING
    """Its own sampling fields with the values that mean "as OpenAI does": a model's files may set others.
    None: the field is left out, though OpenAI has it."""
    sampling: frozenset[str] = frozenset()
    """Fields beyond OpenAI's that it knows."""
    chat: frozenset[str] = frozenset()
    """Fields beyond those that only its chat endpoint knows."""
    renders: bool = False
    """Does its chat endpoint take ``chat_template_kwargs``, and ``/tokenize`` say how many tokens a prompt has, and how
    many the context?"""
    chat_stops: int | None = None
    """How many stop strings its chat endpoint takes; None: as many as there are."""


_COMMON_SAMPLING = frozenset({"top_k", "min_p", "repetition_penalty", "ignore_eos"})

ENGINES: Mapping[Engine, Dialect] = MappingProxyType(
    {
        # Standard fields only; whoever answers behind such an address, we do not know about its BOS.
        "openai": Dialect(
            adds_bos=None,
            bos_switch=None,
            stop_token_ids=False,
            choices=None,
            lists=None,
            token_prompts=True,
            sampling=frozenset({"stream_options.include_obfuscation"}),
            chat_stops=OPENAI_STOPS,
        ),
        # vLLM, vllm/entrypoints/openai/completion/protocol.py; seen running: specs/clients.md 2.1.
        "vllm": Dialect(
            adds_bos=True,
            bos_switch="add_special_tokens",
            stop_token_ids=True,
            choices=True,
            lists=True,
            token_prompts=True,
            explicit=MappingProxyType({"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}),
            sampling=_COMMON_SAMPLING
            | words(
                "add_special_tokens allowed_token_ids cache_salt include_stop_str_in_output length_penalty min_tokens "
                "priority prompt_logprobs response_format return_token_ids return_tokens_as_token_ids "
                "skip_special_tokens spaces_between_special_tokens stop_token_ids "
                "stream_options.continuous_usage_stats structured_outputs truncate_prompt_tokens use_beam_search"
            ),
            chat=words(
                "add_generation_prompt bad_words chat_template_kwargs continue_final_message documents echo "
                "include_reasoning mm_processor_kwargs"
            ),
            renders=True,
        ),
        # SGLang, python/sglang/srt/entrypoints/openai/protocol.py: its CompletionRequest has no
        # add_special_tokens and ignores unknown fields, so a BOS in the text has to go.
        "sglang": Dialect(
            adds_bos=True,
            bos_switch=None,
            stop_token_ids=True,
            choices=True,
            lists=True,
            token_prompts=True,
            explicit=MappingProxyType({"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}),
            sampling=_COMMON_SAMPLING
            | words(
                "custom_params ebnf json_schema lora_path min_tokens no_stop_trim priority regex response_format "
                "return_token_ids skip_special_tokens stop_regex stop_token_ids "
                "stream_options.continuous_usage_stats"
            ),
            chat=words("chat_template_kwargs continue_final_message separate_reasoning stream_reasoning"),
            renders=True,
        ),
        # llama.cpp and llama-cpp-python, the latter seen running: specs/clients.md 2.1 (n ignored, list prompts
        # 500, include_usage ignored); a string always gets the BOS that the model's metadata ask for.
        "llamacpp": Dialect(
            adds_bos=True,
            bos_switch=None,
            stop_token_ids=False,
            choices=False,
            lists=False,
            token_prompts=True,  # llama.cpp's own server; llama-cpp-python answers 500
            explicit=MappingProxyType({"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}),
            sampling=words(
                "cache_prompt grammar min_p mirostat mirostat_eta mirostat_mode mirostat_tau n_probs repeat_penalty "
                "response_format top_k typical_p"
            ),
            chat=words("add_generation_prompt reasoning_format"),
        ),
        # TGI, router's CompletionRequest: model, prompt (string or list), max_tokens, seed, suffix, stream, stop,
        # the two penalties, temperature, top_p; in maintenance since 2025-12.
        "tgi": Dialect(
            adds_bos=True,
            bos_switch=None,
            stop_token_ids=False,
            choices=False,
            lists=True,
            token_prompts=False,
            missing=frozenset({"best_of", "echo", "logit_bias", "logprobs", "presence_penalty"}),
            # It refuses top_p at 1 and does not know the other: for these "as OpenAI does" is to say nothing.
            explicit=MappingProxyType({"top_p": None, "presence_penalty": None, "repetition_penalty": 1.0}),
            sampling=frozenset({"repetition_penalty"}),
        ),
    }
)

LITELLM = Dialect(
    adds_bos=None,
    bos_switch=None,
    stop_token_ids=False,
    choices=None,
    lists=None,
    token_prompts=False,
    streamed_choices=False,  # LiteLLM's stream wrapper keeps the finish reason of one choice only
)
"""What goes through LiteLLM; whether the provider takes ``n`` is known once LiteLLM is asked."""
