"""SDKs and libraries: each runs a script of ``configs``, which asks every sum and prints the score.

``OBJECTS`` are those that ask for objects of a type: their score is the share of answers that are one. ``CALLS`` are
those that let a model call a function: their score is the share of answers that use its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job
from tests.support.harnesses.read import printed


def sdk(name: str, title: str, script: str, *packages: str, guide: str = "", **more: Any) -> Client:
    """A client that is one script, for Node if its name ends in ``.mjs``."""
    return Client(
        name=name,
        title=title,
        guide=guide or name,
        packages=Packages(packages, node=script.endswith(".mjs")),
        command=runs(script),
        files=(script,),
        reads=("BASE_URL", "MODEL"),
        score=printed,
        **more,
    )


def runs(script: str) -> Callable[[Job], list[str]]:
    """The command that runs a script."""
    return lambda job: ["node" if script.endswith(".mjs") else f"{job.bin}/python", script]


OPENAI = "openai==3.51.0"
SCORING: dict[str, Any] = {"environment": "openai-python", "needs": frozenset({"logprobs", "completions"})}
PRICES = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # no download of prices
ONLINE = {"HF_HUB_OFFLINE": "0"}  # in offline mode it refuses every call, also to a local address

CLIENTS = (
    sdk("openai-python", "openai (Python)", "openai_python.py", OPENAI, guide="openai-sdk"),
    sdk(
        "openai-loglikelihood",
        "openai (Python), log-likelihood",
        "openai_loglikelihood.py",
        OPENAI,
        guide="openai-sdk",
        **SCORING,
    ),
    sdk("openai-node", "openai (Node)", "openai_node.mjs", "openai@6.49.0", guide="openai-sdk"),
    sdk("agents-sdk", "OpenAI Agents SDK", "agents_sdk_sums.py", "openai-agents==0.24.0"),
    sdk("ai-sdk", "AI SDK (Node)", "ai_sdk_sums.mjs", "ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92"),
    sdk(
        "huggingface-hub",
        "Hugging Face InferenceClient",
        "huggingface_sums.py",
        "huggingface-hub==2.4.0",
        variables=ONLINE,
    ),
    sdk("litellm-sdk", "LiteLLM SDK", "litellm_sums.py", "litellm==1.106.2", variables=PRICES),
    sdk("langchain", "LangChain", "langchain_sums.py", "langchain-openai==1.7.3"),
    sdk("llama-index", "LlamaIndex", "llama_index_sums.py", "llama-index-llms-openai-like==0.8.1"),
    sdk("pydantic-ai", "Pydantic AI", "pydantic_ai_sums.py", "pydantic-ai-slim[openai]==2.68.0"),
    sdk("instructor", "instructor", "instructor_sums.py", "instructor==1.17.0"),
    sdk("dspy", "DSPy", "dspy_sums.py", "dspy==3.4.1", "litellm==1.106.2"),
    sdk("llm", "llm", "llm_sums.py", "llm==0.36"),
)


def objects(name: str, script: str) -> Client:
    """The client ``name`` with a script that asks for objects; the engine must be able to constrain an answer."""
    (client,) = [client for client in CLIENTS if client.name == name]
    return replace(
        client,
        name=f"{name}-objects",
        environment=client.folder,
        command=runs(script),
        files=(script,),
        sums=20,
        needs=frozenset({"json_schema"}),
    )


OBJECTS = (
    objects("openai-python", "openai_objects.py"),
    objects("agents-sdk", "agents_sdk_objects.py"),
    objects("ai-sdk", "ai_sdk_objects.mjs"),
    objects("litellm-sdk", "litellm_objects.py"),
    objects("langchain", "langchain_objects.py"),
    objects("pydantic-ai", "pydantic_ai_objects.py"),
    objects("instructor", "instructor_objects.py"),
    objects("llm", "llm_objects.py"),
)


def calls(name: str, script: str) -> Client:
    """The client ``name`` with a script in which a model calls a function."""
    return replace(objects(name, script), name=f"{name}-calls", sums=1, needs=frozenset())


CALLS = (calls("agents-sdk", "agents_sdk_calls.py"), calls("langchain", "langchain_calls.py"))
