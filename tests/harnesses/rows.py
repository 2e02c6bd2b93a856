"""The rows of the table, in the order of the documentation."""

from __future__ import annotations

from tests.harnesses.clients import (
    ais_bench,
    evalscope,
    inspect_ai,
    langchain,
    lm_eval,
    openai_node,
    openai_python,
    opencompass,
    promptfoo,
)

ROWS = {
    client.name: client
    for module in (
        openai_python,
        openai_node,
        langchain,
        inspect_ai,
        lm_eval,
        evalscope,
        promptfoo,
        opencompass,
        ais_bench,
    )
    for client in module.CLIENTS
}
