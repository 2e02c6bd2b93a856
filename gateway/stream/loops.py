"""Finds answers that end in a loop: the same block of text again and again, up to the end."""

from __future__ import annotations

LEAST_LENGTH = 200
"""The minimum number of characters of the repeated text at the end."""
LEAST_REPEATS = 4
"""The minimum number of repetitions of the block. The last one may be cut off."""
_TAIL = LEAST_LENGTH // LEAST_REPEATS
ENDED_BY_MODEL = frozenset({"stop", "tool_calls", "function_call"})
"""Finish reasons of answers that the model ended. Such an answer does not loop: its repetition was requested."""


def is_looping(text: str, finish_reason: str) -> bool:
    """Return whether an answer repeats a block of text up to its end, and was not ended by the model."""
    return finish_reason not in ENDED_BY_MODEL and loop_period(text) > 0


def loop_period(text: str) -> int:
    """Return the length of the block that a text repeats at its end, in characters; 0 if the text does not loop.

    The repeated part has at least ``LEAST_LENGTH`` characters and ``LEAST_REPEATS`` times the length of the block. Time
    and memory are linear in the text. A text without a loop usually costs one search.
    """
    if len(text) < LEAST_LENGTH or text.rfind(text[-_TAIL:], 0, -1) < 0:
        return 0  # in a loop, the last characters also stand one block earlier
    # The prefix function of Knuth, Morris and Pratt over the reversed text: borders[i] is the length of the longest
    # proper prefix of reverse[: i + 1] that is also its suffix, so i + 1 - borders[i] is the shortest period.
    reverse = text[::-1]
    borders, border = [0] * len(reverse), 0
    for length, character in enumerate(reverse[1:], 2):
        while border and character != reverse[border]:
            border = borders[border - 1]
        if character == reverse[border]:
            border += 1
        borders[length - 1] = border
        if length >= LEAST_LENGTH and length >= LEAST_REPEATS * (length - border):
            return length - border
    return 0
