"""The rows of the four tables, in the order of the documentation."""

from __future__ import annotations

from tests.support.harnesses.clients import (
    agents,
    ais_bench,
    evalscope,
    guidellm,
    inspect_ai,
    lm_eval,
    opencompass,
    promptfoo,
    sdks,
)

MODULES = (sdks, inspect_ai, lm_eval, evalscope, promptfoo, opencompass, ais_bench, guidellm)
ROWS = {client.name: client for module in MODULES for client in module.CLIENTS}
OBJECT_ROWS = {client.name: client for client in sdks.OBJECTS}
"""The clients that ask for objects of a type (``--objects``)."""
AGENT_ROWS = {client.name: client for client in agents.CLIENTS}
"""The clients that let a model call their functions (``--agents``)."""
CALL_ROWS = {client.name: client for client in sdks.CALLS}
"""The clients that let models of several families call one function (``--calls``)."""
