"""Splitting of one choice's text into reasoning and answer, at any slicing.

All characters but the two markers are kept, as vLLM's parsers do; SGLang strips white space from whole answers, not
from streams. The rules:

- Reasoning begins with the begin marker at the start of the text. White space before it belongs to the reasoning, up to
  ``MAX_BLANK`` characters. A begin marker further on is text.
- With ``open`` the prompt has begun the reasoning; a begin marker that the model repeats is dropped.
- Everything up to the end marker is reasoning, everything behind it (line breaks included) is the answer.
- Reasoning without an end marker is all reasoning, and the answer is empty.
"""

from __future__ import annotations

from gateway.core.answer_markers import Thinking
from gateway.stream.stop_search import StopScanner

MAX_BLANK = 64 * 1024


class Reasoning:
    """Splits the text of one choice."""

    __slots__ = ("_blank", "_end", "_head", "_thinking")

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._blank = ""
        """White space at the start."""
        self._head: str | None = ""
        """Text behind it that may still become the begin marker; None once that is decided."""
        self._end: StopScanner | None = None
        """Finds the end marker; set during the reasoning."""

    def feed(self, text: str) -> tuple[str, str]:
        """More of the reasoning, and more of the answer, as far as they are certain now."""
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
        """The text still held, when the choice has ended."""
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
