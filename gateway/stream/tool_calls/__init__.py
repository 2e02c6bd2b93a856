"""Which formats of tool calls are there? One file each, by the name that a template declares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.stream.tool_calls.bare_json import BARE_JSON
from gateway.stream.tool_calls.base import Called, Format, Piece, Unread
from gateway.stream.tool_calls.hermes import HERMES
from gateway.stream.tool_calls.lazyllm import Tokens, lazyllm
from gateway.stream.tool_calls.llama3_json import LLAMA3_JSON
from gateway.stream.tool_calls.mistral import MISTRAL
from gateway.stream.tool_calls.pythonic import PYTHONIC
from gateway.stream.tool_calls.scan import Scanner

__all__ = ["FORMATS", "Called", "Format", "Piece", "Scanner", "Tokens", "Unread"]

FORMATS: Mapping[str, Callable[[Tokens, Collection[str]], Format]] = {
    "hermes": lambda tokens, names: HERMES,
    "json": lambda tokens, names: BARE_JSON,
    "llama3_json": lambda tokens, names: LLAMA3_JSON,
    "pythonic": lambda tokens, names: PYTHONIC,
    "mistral": lambda tokens, names: MISTRAL,
    "lazyllm": lazyllm,
}
"""``tools.parser`` → the format; given the template's own tokens and the tools' names, which only one of them needs."""
