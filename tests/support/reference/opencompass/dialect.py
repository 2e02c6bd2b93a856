"""The differences of OpenCompass and AISBench (``docs/spec/opencompass.md`` 10), one field each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dialect:
    """The behaviour of one package."""

    name: str
    takes_messages: bool
    """The API parser passes OpenAI messages through and merges a list of them as meta template (5.7)."""
    prompt_required: bool
    """The API parser refuses a role that has neither ``prompt`` nor ``prompt_mm`` (5.4)."""
    takes_parts: bool
    """``prompt_mm``, a list of content parts, may stand in for ``prompt`` (5.4)."""
    quotes_prompts: bool
    """A PromptList as text shows each turn's prompt as a JSON string (1)."""
    chat_meta: Mapping[str, Any]
    """The meta template of the chat wrappers when none is configured (6)."""


_HUMAN = {"role": "HUMAN", "api_role": "HUMAN"}
_BOT = {"role": "BOT", "api_role": "BOT", "generate": True}

OPENCOMPASS = Dialect(
    name="opencompass",
    takes_messages=True,
    prompt_required=False,
    takes_parts=False,
    quotes_prompts=False,
    # SYSTEM stands in the round with the role HUMAN: every user message ends in a line break.
    chat_meta={"round": [_HUMAN, {"role": "SYSTEM", "api_role": "HUMAN"}, _BOT]},
)

AIS_BENCH = Dialect(
    name="ais-bench",
    takes_messages=False,
    prompt_required=True,
    takes_parts=True,
    quotes_prompts=True,
    chat_meta={"round": [_HUMAN, _BOT], "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}]},
)

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (OPENCOMPASS, AIS_BENCH)}
