"""Tool-call formats: how models write calls in their text, and the scanner that finds the calls.

- ``scanner``     divides a choice's text into content, calls and failed calls as it arrives
- ``format``      the description of a format, and the region of text that its rule follows
- ``json_formats``, ``pythonic``, ``lazyllm``: the formats
- ``json_calls``  reads JSON as calls
- ``literals``    reads Python's literals

To add a format: its ``Format``, and one row of ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.stream.tool_calls.format import Format
from gateway.stream.tool_calls.json_formats import HERMES, JSON, LLAMA3_JSON, MISTRAL
from gateway.stream.tool_calls.lazyllm import CallTokens, lazyllm
from gateway.stream.tool_calls.pythonic import PYTHONIC

FORMATS: Mapping[str, Callable[[CallTokens, Collection[str]], Format]] = {
    "hermes": lambda tokens, names: HERMES,
    "json": lambda tokens, names: JSON,
    "llama3_json": lambda tokens, names: LLAMA3_JSON,
    "pythonic": lambda tokens, names: PYTHONIC,
    "mistral": lambda tokens, names: MISTRAL,
    "lazyllm": lazyllm,
}
"""By ``tools.parser``: the format for a template's tokens and a request's tool names, which only ``lazyllm`` needs."""
