"""Fields that control an engine instead of a completion. A request with such a field needs a policy that allows it.

These fields choose adapters, workers, cache entries and queue places, name hosts to connect to, load code, or bypass
the limits of a policy. The lists come from each engine's public sources, at the versions named below. A field of one
engine is refused for all engines, because an undeclared engine may be reached through a router or another server.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def words(text: str) -> frozenset[str]:
    """Return the names in a text, which are separated by white space."""
    return frozenset(text.split())


CONTROL_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        # vllm/entrypoints/openai/{chat_completion,completion}/protocol.py, main of 2026-11 (002032ee), and 0.10 to
        # 0.12 for logits_processors and guided_decoding_backend. prompt_embeds are tensors to be deserialised.
        "vLLM": words(
            "cache_salt ec_transfer_params guided_decoding_backend kv_transfer_params logits_processors "
            "media_io_kwargs priority prompt_embeds request_id session_id vllm_xargs watermarking"
        ),
        # python/sglang/srt/entrypoints/openai/protocol.py, main of 2026-11 (004c82e0), and the fields of
        # managers/io_struct.py:GenerateReqInput that routers pass on. custom_logit_processor is pickled code.
        "SGLang": words(
            "audio_data bootstrap_host bootstrap_pair_key bootstrap_port bootstrap_room cache_salt conversation_id "
            "custom_labels custom_logit_processor custom_params data_parallel_rank decode_tp_size "
            "disagg_prefill_dp_rank extra_key image_data input_embeds input_ids lora_id lora_path ngram_corpus_id "
            "priority require_reasoning rid routed_dp_rank router_hint routing_key sampling_params session_id "
            "session_params trace_headers video_data"
        ),
        # tools/server/README.md and server-task.cpp, b7800 to b8900 (00dc8057, 00efb3e1). n_predict and n_cmpl override
        # max_tokens and n; the server itself derives the parsers and triggers from its chat template.
        "llama.cpp": words(
            "adapters backend_sampling chat_format chat_parser generation_prompt grammar_lazy grammar_triggers id_slot "
            "image_data lora n_cache_reuse n_cmpl n_predict parse_tool_calls preserved_tokens slot_id "
            "speculative.n_max speculative.n_min speculative.ngram_m_hits speculative.ngram_size_n "
            "speculative.ngram_size_m speculative.p_min speculative.type sse_ping_interval"
        ),
        # router/src/lib.rs:GenerateParameters, 3.3 (db931fcf).
        "TGI": words("adapter_id"),
        # transformers/cli/serving, 5.23: a generation configuration in JSON, with beams and sequences in any number.
        "transformers serve": words("generation_config"),
        # tensorrt_llm/serve/openai_protocol.py, 1.2.
        "TensorRT-LLM": words(
            "cache_salt conversation_params disaggregated_params kv_cache_retention_config lora_request "
            "prompt_adapter_request scheduling_params"
        ),
        # lib/llm/src/protocols/openai/nvext.rs: workers, ranks, priorities and raw prompts, all under one field.
        "Dynamo and NIM": words("nvext"),
        # Objects in which servers accept fields for the engine that they call.
        "several servers": words("engine_args extra_args"),
    }
)
"""Engine → control fields."""

STEERING: frozenset[str] = frozenset().union(*CONTROL_FIELDS.values())
"""The control fields of all engines."""
