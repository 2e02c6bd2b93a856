"""The columns of the table: the engines of tests/engines, and LiteLLM in front of one of them."""

from __future__ import annotations

from dataclasses import replace

from tests.engines.engine import ENGINES, NAME

COLUMNS = {
    **ENGINES,
    "litellm": replace(
        ENGINES["numpy"],
        name="litellm",
        title="LiteLLM",
        target=f'speaks: litellm, model: "hosted_vllm/{NAME}", url: "{{url}}"',
        template="chat",
        refusals={"completions": "invalid_value"},
    ),
}
