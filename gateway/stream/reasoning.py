"""Where does the model stop thinking? Parts one choice's text in reasoning and answer, across any slicing.

Every byte but the two markers is kept, as vLLM's parsers do; SGLang's trim white space from whole answers, and not
from streams. The rules:

- Thinking begins with the first thing that is said: the begin marker, after nothing but white space, which belongs to
  the reasoning then. A begin marker further on is text.
- An ``open`` template's prompt has begun the thinking already; a model that writes the marker once more is not heard
  doing so.
- All up to the end marker is reasoning, all behind it (its line breaks too) is the answer.
- More than ``MAX_BLANK`` characters of white space are no thinking's begin.
- Thinking that never ends is all reasoning, and the answer is empty.
"""

from __future__ import annotations

from gateway.core.frozen import dataclass
from gateway.stream.stop_search import StopScanner

MAX_BLANK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a model thinks aloud."""

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
    """One choice's text on its way into thoughts and answer."""

    __slots__ = ("_blank", "_blanks", "_end", "_head", "_open", "_thinking")

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._open = thinking.open
        self._blank: list[str] = []
        """The white space before it."""
        self._blanks = 0
        """How many characters these are."""
        self._head: str | None = ""
        """What may still become the begin marker; None: that is decided."""
        self._end: StopScanner | None = None
        """Looks for the end marker, while the model thinks."""

    def feed(self, text: str) -> list[Thought | str]:
        """The parts that are certain now."""
        if self._head is not None:
            return self._begin(text)
        if self._end is not None:
            return self._think(self._end, text)
        return [text] if text else []

    def end(self) -> list[Thought | str]:
        """No more comes: what was held back."""
        if self._head is not None:
            head, self._head = "".join(self._blank) + self._head, None
            return _parts(head, thought=self._open)
        if self._end is not None:
            return _parts(self._end.flush(), thought=True)
        return []

    def _begin(self, text: str) -> list[Thought | str]:
        head = (self._head or "") + text
        lead, marker = head.lstrip(), self._thinking.begin
        self._blank.append(head[: len(head) - len(lead)])
        self._blanks += len(head) - len(lead)
        if not lead.startswith(marker) and marker.startswith(lead) and self._blanks <= MAX_BLANK:
            self._head = lead
            return []
        self._head = None
        blank = "".join(self._blank)
        if not lead.startswith(marker):
            return self._think(self._scanner(), blank + lead) if self._open else [blank + lead]
        return _parts(blank, thought=True) + self._think(self._scanner(), lead[len(marker) :])

    def _scanner(self) -> StopScanner:
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
