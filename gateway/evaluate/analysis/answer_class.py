"""The class of a row's answer: one of ``CLASSES``, the first that matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.evaluate.analysis.rows import AT_LIMIT, RunAnswer, RunRow, RunToolCall
from gateway.evaluate.analysis.tool_check import ToolChecker
from gateway.stream.loops import is_looping
from metatemplate.answers.tool_calls.registry import unread_calls

CheckCall = Callable[[RunToolCall], bool | None]
"""Returns whether a tool call fits the tools of its request: see ``ToolChecker.is_valid``."""


_TESTS: Mapping[str, Callable[[RunAnswer, CheckCall], bool]] = {
    "refused": lambda answer, _: bool(answer.refusal) or answer.finish_reason == "content_filter",
    "empty": lambda answer, _: not (answer.text or answer.tool_calls or answer.reasoning),
    "thinking only": lambda answer, _: not (answer.text or answer.tool_calls),
    "looping": lambda answer, _: is_looping(answer.text, "length" if answer.cut == AT_LIMIT else answer.finish_reason),
    "cut by context": lambda answer, _: answer.finish_reason == "length" and answer.cut == "context",
    "cut by length": lambda answer, _: answer.finish_reason == "length",
    "ended at the limit": lambda answer, _: answer.cut == AT_LIMIT,
    "bad tool call": lambda answer, is_valid: (
        answer.has_unread_call or any(is_valid(call) is False for call in answer.tool_calls)
    ),
}
CLASSES = ("failed", *_TESTS, "whole")
"""All classes, in the order in which they are tested. ``failed``: the row has no answer. ``whole``: no test matched."""


def class_of(row: RunRow, checker: ToolChecker) -> str:
    """Return the class of a row. If a row has several answers, the class of an answer earlier in ``CLASSES`` wins."""
    if row.error:
        return "failed"
    for name, matches in _TESTS.items():
        if any(matches(answer, lambda call: checker.is_valid(call, row.tools)) for answer in row.answers):
            return name
    # The gateway notices such a call only where it reads calls itself, and not for chat targets.
    if row.tools and any(unread_calls(answer.text) for answer in row.answers):
        return "bad tool call"
    return "whole"


def has_unchecked_call(row: RunRow, checker: ToolChecker) -> bool:
    """Return whether a tool call of the row could not be compared with the tools of the request."""
    return any(checker.is_valid(call, row.tools) is None for answer in row.answers for call in answer.tool_calls)
