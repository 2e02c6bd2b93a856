"""Finds empty and cut-off answers of a call. Such answers are sent unchanged and are never retried.

The reasons (``docs/http.md``, "Answers that are cut off"):

- ``thinking``  the token limit was reached inside the reasoning, so the answer has no content
- ``empty``     the answer has no content, and neither ``thinking`` nor the engine's ``content_filter`` is the reason
- ``context``   the answer was cut before it had the requested number of tokens, or at the end of the model's context
- ``length``    the answer was cut at the requested number of tokens
- ``at_limit``  the answer has the requested number of tokens and ended with ``stop``, at a stop that is not known;
                some engines say ``stop`` also where they cut an answer
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, get_args

from metatemplate.values.answer_markers import ReasoningField
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Delta, Finish, Usage

REASONING = frozenset(get_args(ReasoningField))
CONTENT = frozenset({"tool_calls", "function_call", "refusal", "audio", "images"})
"""The keys of a chat message that count as content even if the message has no text."""


class CutAnswers:
    """The choices of one call that have no content, and the choices that were cut off."""

    __slots__ = (
        "_choices",
        "_context",
        "_params",
        "_reasoning",
        "_reasons",
        "limit",
        "unknown_stops",
        "without_content",
    )

    def __init__(self) -> None:
        """The call has one choice until ``expect`` sets another number."""
        self._choices = 1
        self._params: Mapping[str, Any] = EMPTY_MAPPING
        self._context: int | None = None
        self._reasoning: set[int] = set()
        self._reasons: dict[int, str] = {}
        self.without_content = {0}
        """The indexes of the choices for which no content has arrived so far."""
        self.unknown_stops: list[int] = []
        """The indexes of the choices that ended with ``stop``, without a stop string or token that is known."""
        self.limit = sys.maxsize
        """The number of tokens at which every choice has reached the requested limit; ``sys.maxsize`` without one."""

    def expect(self, choices: int, params: Mapping[str, Any], context: int | None) -> None:
        """Set the number of choices and the parameters of the call. ``context``: the context length, None if unknown.

        ``params``: the same mapping as ``Exchange.params``.
        """
        self._choices, self._params, self._context = choices, params, context
        limit = params.get("max_tokens") or params.get("max_completion_tokens")
        self.limit = limit * choices if isinstance(limit, int) and limit > 0 else sys.maxsize
        self.unknown_stops.clear()
        if choices > 1:
            self.without_content.update(range(choices))

    @property
    def found(self) -> bool:
        """Return whether a choice that has ended may be empty or cut off. ``reasons`` gives the exact result."""
        return bool(self._reasons)

    def read(self, delta: Delta) -> None:
        """Read a delta. The caller may stop calling ``read`` when ``without_content`` is empty."""
        if delta.text or not CONTENT.isdisjoint(delta.fields):
            self.without_content.discard(delta.index)
        elif not REASONING.isdisjoint(delta.fields):
            self._reasoning.add(delta.index)

    def end(self, finish: Finish) -> None:
        """Read the end of a choice, after all deltas of this choice.

        The caller may leave out a choice that has content and did not end with ``length``.
        """
        if finish.index in self.without_content:
            if finish.reason != "content_filter":
                thinking = finish.reason == "length" and finish.index in self._reasoning
                self._reasons[finish.index] = "thinking" if thinking else "empty"
        elif finish.reason == "length":
            self._reasons[finish.index] = "length"

    def reach_limit(self, usage: Usage) -> None:
        """Read token counts of at least ``limit``, after the ends of all choices."""
        if usage.source == "upstream":
            self._reasons.update({one: "at_limit" for one in self.unknown_stops if one not in self.without_content})

    def reasons(self, usage: Usage | None) -> dict[int, str]:
        """Return the reason for each choice that is empty or cut off. ``usage``: the token counts, if known.

        The result is empty for calls with ``echo`` or ``prompt_logprobs``: their clients need only the prompt's values.
        """
        params = self._params
        if not self._reasons or params.get("echo") or params.get("prompt_logprobs") is not None:
            return {}
        if self._at_context_end(usage):
            return {index: "context" if reason == "length" else reason for index, reason in self._reasons.items()}
        return self._reasons

    def _at_context_end(self, usage: Usage | None) -> bool:
        """Return whether the token counts show that no choice was cut at the requested limit.

        The counts are the sums over all choices. Counts from the gateway's own tokenizer are not exact enough.
        """
        if usage is None or usage.source != "upstream":
            return False
        if self.limit != sys.maxsize and 0 < usage.completion < self.limit // self._choices:
            return True
        return self._choices == 1 and self._context is not None and usage.prompt + usage.completion >= self._context
