"""The rows of the table, in the order of the documentation."""

from __future__ import annotations

from tests.harnesses.clients import (
    agents_sdk,
    ai_sdk,
    ais_bench,
    dspy,
    evalscope,
    guidellm,
    huggingface,
    inspect_ai,
    instructor,
    langchain,
    litellm,
    llama_index,
    llm,
    lm_eval,
    openai_node,
    openai_python,
    opencompass,
    promptfoo,
    pydantic_ai,
)

ROWS = {
    client.name: client
    for module in (
        openai_python,
        openai_node,
        agents_sdk,
        ai_sdk,
        huggingface,
        litellm,
        langchain,
        llama_index,
        pydantic_ai,
        instructor,
        dspy,
        llm,
        inspect_ai,
        lm_eval,
        evalscope,
        promptfoo,
        opencompass,
        ais_bench,
        guidellm,
    )
    for client in module.CLIENTS
}
