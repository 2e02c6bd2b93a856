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

from gateway.core.frozen import dataclass
from gateway.stream.stop_search import StopScanner

MAX_BLANK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Thinking:
    """The markers of a model's reasoning."""

    begin: str
    end: str
    open: bool = False
    """The answer begins inside the reasoning."""
    fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The message's keys that carry the reasoning."""


@dataclass(frozen=True, slots=True)
class Thought:
    """More of the reasoning; never empty."""

    text: str


class Reasoning:
    """Splits the text of one choice."""

    __slots__ = ("_blank", "_blank_size", "_end", "_head", "_open", "_thinking")

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._open = thinking.open
        self._blank: list[str] = []
        """White space at the start."""
        self._blank_size = 0
        self._head: str | None = ""
        """Text that may still become the begin marker; None once that is decided."""
        self._end: StopScanner | None = None
        """Finds the end marker; set during the reasoning."""

    def feed(self, text: str) -> list[Thought | str]:
        """The parts that are certain now."""
        if self._head is not None:
            return self._begin(text)
        if self._end is not None:
            return self._think(self._end, text)
        return [text] if text else []

    def end(self) -> list[Thought | str]:
        """The text still held, when the choice has ended."""
        if self._head is not None:
            head, self._head = "".join(self._blank) + self._head, None
            return _parts(head, thought=self._open)
        if self._end is not None:
            return _parts(self._end.flush(), thought=True)
        return []

    def _begin(self, text: str) -> list[Thought | str]:
        head = (self._head or "") + text
        stripped, marker = head.lstrip(), self._thinking.begin
        self._blank.append(head[: len(head) - len(stripped)])
        self._blank_size += len(head) - len(stripped)
        if not stripped.startswith(marker) and marker.startswith(stripped) and self._blank_size <= MAX_BLANK:
            self._head = stripped
            return []
        self._head = None
        blank = "".join(self._blank)
        if not stripped.startswith(marker):
            return self._think(self._start_end_search(), blank + stripped) if self._open else [blank + stripped]
        return _parts(blank, thought=True) + self._think(self._start_end_search(), stripped[len(marker) :])

    def _start_end_search(self) -> StopScanner:
        self._end = StopScanner((self._thinking.end,))
        return self._end

    def _think(self, end: StopScanner, text: str) -> list[Thought | str]:
        held = end.held
        out, marker = end.feed(text)
        thoughts = _parts(out, thought=True)
        if marker is None:
            return thoughts
        self._end = None
        return thoughts + _parts(text[len(out) - held + len(marker) :], thought=False)


def _parts(text: str, *, thought: bool) -> list[Thought | str]:
    if not text:
        return []
    return [Thought(text)] if thought else [text]
