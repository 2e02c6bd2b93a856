"""What does a text say besides its content? Reasoning and tool calls, told apart and put into OpenAI's deltas.

Stands behind the cut, where a template declares tools or thinking, and is not there otherwise. For each choice:

- Text becomes content, reasoning (under every key the template names) or tool calls. A call goes out when all of it
  is there: ``index``, ``id``, ``type`` and the name in one delta, the arguments in the next.
- Where the engine says ``stop`` after a call, ``finish_reason`` is ``tool_calls``. Every other reason stands: with
  ``length`` the calls that were complete are calls, and the one cut off is text.
- With ``one_call`` the answer ends with its first call.
- A text that the prompt has written for the model (a call it is to make) is read first; only calls come of it.
- Log probabilities, fields and extras go out with the delta they came with, or at once where its text is held back:
  they are those of all that the model wrote, markers included.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.events import Delta, Event, Finish
from gateway.core.frozen import dataclass
from gateway.stream.reasoning import Reasoning, Thinking, Thought
from gateway.stream.tool_calls import Format, ParsedCall, Piece, Scanner, UnparsedCall

HEAVY = 16 * 1024
"""Characters; to read so many takes up to some 30 ms, and the way through a thread 0.1 ms."""


def call_id() -> str:
    """An id for a call; clients send it back with the result."""
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the text of one call's answer is to be read."""

    thinking: Thinking | None = None
    calls: Format | None = None
    """None: no tools may be called, and what looks like a call is text."""
    names: frozenset[str] = frozenset()
    """The tools that may be called."""
    one_call: bool = False
    opened: str = ""
    """What the prompt has written of the answer already."""
    foreign_stops: frozenset[str] = frozenset()
    """Stops of the client's own: where one of them ends the answer, it closes no call."""


class OutputParser:
    """Reads the events of one call."""

    def __init__(self, reading: Reading, choices: int = 1, new_id: Callable[[], str] = call_id) -> None:
        """``choices``: how many the call expects, numbered from 0."""
        self._reading = reading
        self._new_id = new_id
        self._choices: dict[int, _Choice] = {}
        self._open = set(range(choices))
        self.failures = 0
        """How often text looked like a call and was none."""

    @property
    def done(self) -> bool:
        """Every expected choice has ended here."""
        return not self._open

    def weighs(self, batch: Sequence[Event]) -> bool:
        """Is there so much to read, in the batch and in what is held, that an event loop should not wait for it?"""
        weight = 0
        for event in batch:
            if type(event) is Delta:
                weight += len(event.text)
        for choice in self._choices.values():
            weight += choice.waiting // 4  # most often it only waits for more, and the way through a thread costs
        return weight > HEAVY

    def read(self, batch: Sequence[Event]) -> list[Event]:
        """The events that may go out now."""
        out: list[Event] = []
        for event in batch:
            if isinstance(event, Delta):
                out += self._choice(event.index).add(event)
            elif isinstance(event, Finish):
                out += self._choice(event.index).end(event)
            else:
                out.append(event)
        self._note()
        return out

    def close(self, last: Sequence[Event] = ()) -> list[Event]:
        """The upstream is at its end: ``last`` and what is still held, choice by choice, without inventing a finish."""
        out = self.read(last)
        out += [event for _, choice in sorted(self._choices.items()) for event in choice.flush()]
        self._note()
        return out

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(index, self._reading, self._new_id)
        return choice

    def _note(self) -> None:
        self.failures = sum(choice.failures for choice in self._choices.values())
        self._open = {index for index in self._open if index not in self._choices or not self._choices[index].ended}


class _Choice:
    """One choice's text on its way out."""

    __slots__ = (
        "_calls",
        "_heard",
        "_index",
        "_made",
        "_new_id",
        "_reading",
        "_reasoning",
        "_scanner",
        "_unsaid",
        "ended",
        "failures",
    )

    def __init__(self, index: int, reading: Reading, new_id: Callable[[], str]) -> None:
        self._index = index
        self._reading = reading
        self._new_id = new_id
        self._reasoning = None if reading.thinking is None else Reasoning(reading.thinking)
        self._scanner = None if reading.calls is None else Scanner(reading.calls, reading.names)
        self._made = 0
        """Calls so far."""
        self._calls: list[Event] = []
        """What the prompt has begun, to go out with the first thing the model says."""
        self.ended = False
        self.failures = 0
        self._heard = False
        """The model has said something: what the prompt has begun, and nobody went on with, is no failure."""
        self._unsaid = 0
        """So many characters of what is held back are the prompt's, not the model's."""
        if reading.opened:
            self._calls = [event for event in self._parts(reading.opened) if "tool_calls" in _fields(event)]
            self._unsaid = 0 if self._scanner is None else self._scanner.held

    @property
    def waiting(self) -> int:
        """How many characters of an open call are held."""
        return 0 if self._scanner is None else self._scanner.waiting

    def add(self, delta: Delta) -> list[Event]:
        if self.ended:
            return []
        self._heard = self._heard or bool(delta.text)
        events, self._calls = [*self._calls, *self._parts(delta.text)], []
        if delta.logprobs is None and not delta.fields and not delta.extras:
            return events
        first = events[0] if events else None
        if isinstance(first, Delta):
            fields = {**first.fields, **delta.fields}
            events[0] = Delta(self._index, first.text, delta.logprobs, fields or EMPTY_MAPPING, delta.extras)
            return events
        return [Delta(self._index, "", delta.logprobs, delta.fields, delta.extras), *events]

    def end(self, finish: Finish) -> list[Event]:
        if self.ended:
            return []
        events = self.flush(stopped=finish.reason == "stop" and self._by_itself(finish.matched))
        if finish.reason == "stop" and self._made:
            finish = Finish(finish.index, "tool_calls", finish.matched, finish.source, finish.extras)
        return events if events and isinstance(events[-1], Finish) else [*events, finish]

    def _by_itself(self, matched: str | int | None) -> bool:
        """Has the model ended its answer, or may a stop of the client's have done so? Few engines tell which it was."""
        foreign = self._reading.foreign_stops
        return not foreign or (matched is not None and matched not in foreign)

    def flush(self, *, stopped: bool = False) -> list[Event]:
        """Everything held back; the choice takes no more. ``stopped``: see ``Scanner.end``."""
        if self.ended:
            return []
        events, self._calls = [*self._calls], []
        if self._reasoning is not None:
            events += self._of(self._reasoning.end())
        if self._scanner is not None and not self.ended:
            events += self._spoken(self._scanner.end(stopped=stopped))
        self.ended = True
        return events

    # ---------------------------------------------------------------- text → deltas

    def _parts(self, text: str) -> list[Event]:
        return self._of([text] if self._reasoning is None else self._reasoning.feed(text))

    def _of(self, parts: Sequence[Thought | str]) -> list[Event]:
        events: list[Event] = []
        for part in parts:
            if isinstance(part, Thought):
                events.append(self._thought(part.text))
            elif self._scanner is not None:
                events += self._spoken(self._scanner.feed(part))
            elif part:
                events.append(Delta(self._index, part))
        return events

    def _spoken(self, pieces: Sequence[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            if self.ended:
                break
            if isinstance(piece, ParsedCall):
                self._unsaid = 0
                events += self._call(piece)
                if self._reading.one_call:
                    self.ended = True
                    events.append(Finish(self._index, "tool_calls", source="gateway"))
                continue
            if isinstance(piece, UnparsedCall):
                self.failures += self._heard
                piece = piece.text
            unsaid = min(self._unsaid, len(piece))
            self._unsaid -= unsaid
            if piece[unsaid:]:
                events.append(Delta(self._index, piece[unsaid:]))
        return events

    def _thought(self, text: str) -> Delta:
        thinking = self._reading.thinking
        assert thinking is not None
        return Delta(self._index, fields=dict.fromkeys(thinking.fields, text))

    def _call(self, called: ParsedCall) -> list[Event]:
        at = self._made
        self._made += 1
        head = {"name": called.name, "arguments": ""}
        return [
            self._tool_call({"index": at, "id": self._new_id(), "type": "function", "function": head}),
            self._tool_call({"index": at, "function": {"arguments": called.arguments}}),
        ]

    def _tool_call(self, fragment: Mapping[str, Any]) -> Delta:
        return Delta(self._index, fields={"tool_calls": [fragment]})


def _fields(event: Event) -> Mapping[str, Any]:
    return event.fields if isinstance(event, Delta) else EMPTY_MAPPING
