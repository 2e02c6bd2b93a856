"""Tool-call formats: how models write calls in their text, and the scanner that finds the calls.

- ``scanner``      divides a choice's text into content, calls and failed calls as it arrives
- ``format``       the description of a format, and the pieces
- ``region``       follows one stretch of text that may hold calls
- ``json_calls``   reads JSON as calls
- ``literals``     reads Python's literals
- ``hermes``, ``bare_json``, ``llama3_json``, ``pythonic``, ``mistral``, ``lazyllm``: one format each

To add a format: one file with a ``Format``, and one row of ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.stream.tool_calls.bare_json import BARE_JSON
from gateway.stream.tool_calls.format import Format, ParsedCall, Piece, UnparsedCall
from gateway.stream.tool_calls.hermes import HERMES
from gateway.stream.tool_calls.lazyllm import CallTokens, lazyllm
from gateway.stream.tool_calls.llama3_json import LLAMA3_JSON
from gateway.stream.tool_calls.mistral import MISTRAL
from gateway.stream.tool_calls.pythonic import PYTHONIC
from gateway.stream.tool_calls.scanner import Scanner

__all__ = ["FORMATS", "CallTokens", "Format", "ParsedCall", "Piece", "Scanner", "UnparsedCall"]

FORMATS: Mapping[str, Callable[[CallTokens, Collection[str]], Format]] = {
    "hermes": lambda tokens, names: HERMES,
    "json": lambda tokens, names: BARE_JSON,
    "llama3_json": lambda tokens, names: LLAMA3_JSON,
    "pythonic": lambda tokens, names: PYTHONIC,
    "mistral": lambda tokens, names: MISTRAL,
    "lazyllm": lazyllm,
}
"""By ``tools.parser``: the format for a template's tokens and a request's tool names, which only ``lazyllm`` needs."""
