"""Splits one choice's text into reasoning and answer; the text may arrive in pieces of any length.

All characters except the two markers are kept, as in vLLM. (SGLang removes white space around whole answers, but not
in streams.) The rules:

- The begin marker begins the reasoning only at the start of the text. White space before the marker belongs to the
  reasoning, up to ``MAX_BLANK`` characters. A later begin marker is text.
- With ``open`` the prompt has already begun the reasoning. If the model repeats the begin marker, the gateway drops it.
- All text before the end marker is reasoning. All text after the end marker, including line breaks, is the answer.
- If the reasoning has no end marker, all text is reasoning, and the answer is empty.
"""

from __future__ import annotations

from metatemplate.answers.stops.stop_search import StopScanner
from metatemplate.values.answer_markers import Thinking

MAX_BLANK = 64 * 1024


class Reasoning:
    """Splits the text of one choice into reasoning and answer."""

    __slots__ = ("_blank", "_end", "_head", "_thinking")

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._blank = ""
        """White space at the start of the text."""
        self._head: str | None = ""
        """The start of the text without white space, while this may become the begin marker; otherwise None."""
        self._end: StopScanner | None = None
        """Finds the end marker; set only while the text is reasoning."""

    def feed(self, text: str) -> tuple[str, str]:
        """Add text. Returns the reasoning and the answer text that are certain now."""
        if self._head is not None:
            return self._begin(self._head + text)
        if self._end is None:
            return "", text
        held = self._end.held
        thought, marker = self._end.feed(text)
        if marker is None:
            return thought, ""
        self._end = None
        return thought, text[len(thought) - held + len(marker) :]

    def end(self) -> tuple[str, str]:
        """Return the held text as (reasoning, answer). Call when the choice has ended."""
        if self._head is not None:
            held, self._head = self._blank + self._head, None
            return (held, "") if self._thinking.open else ("", held)
        return ("" if self._end is None else self._end.flush()), ""

    def _begin(self, text: str) -> tuple[str, str]:
        head, marker = text.lstrip(), self._thinking.begin
        begins = head.startswith(marker)
        self._blank += text[: len(text) - len(head)]
        if not begins and marker.startswith(head) and len(self._blank) <= MAX_BLANK:
            self._head = head
            return "", ""
        self._head = None
        if begins or self._thinking.open:
            self._end = StopScanner((self._thinking.end,))
        return self.feed(self._blank + head.removeprefix(marker))
