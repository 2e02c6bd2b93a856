"""Cutting of events at stop strings: every choice's text, and its log probabilities with it.

For each choice, at any slicing of its deltas:

- Only text that may still become a stop is held; the rest is sent at once.
- A complete stop ends the choice: the text before it, then one ``Finish`` with ``source="gateway"``. Later events of
  the choice are dropped. When every choice is ``done``, the upstream can be closed.
- The upstream's own finish releases the held text first, as does the end of the stream.
- Deltas keep their order; one comes out unchanged, or later, or in two parts, never merged with another. ``fields`` and
  ``extras`` are never changed or dropped; they are sent once all text before their delta is sent.
- A token's log probability follows the token's first character: kept if that lies before the stop, dropped if not.
  ``token_alignment.py`` places tokens on the text.

``Begun``, ``Usage`` and ``Document`` pass at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.events import Delta, Event, Finish
from gateway.stream.stop_search import StopScanner, StopSet, stop_set
from gateway.stream.token_alignment import TokenAligner


class StopCutter:
    """Enforces stop strings on the events of one call."""

    def __init__(self, stops: tuple[str, ...], choices: int = 1) -> None:
        """``choices``: the number expected, with indexes from 0."""
        self.stops = stop_set(stops)
        self._choices: dict[int, ChoiceCutter] = {}
        self._open = set(range(choices))

    @property
    def done(self) -> bool:
        """True: every expected choice has ended; only usage can follow."""
        return not self._open

    def cut(self, batch: Sequence[Event]) -> Sequence[Event]:
        """The events that can be sent now."""
        out: list[Event] = []
        for event in batch:
            if isinstance(event, (Delta, Finish)):
                choice = self.choice(event.index)
                out += choice.add(event) if isinstance(event, Delta) else choice.end(event)
                if choice.ended:
                    self._open.discard(event.index)
            else:
                out.append(event)
        return out

    def close(self) -> list[Event]:
        """The upstream has ended: the text still held, choice by choice, without new finish events."""
        return [event for _, choice in sorted(self._choices.items()) for event in choice.flush()]

    def choice(self, index: int) -> ChoiceCutter:
        """The state of one choice."""
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = ChoiceCutter(index, self.stops)
        return choice


class ChoiceCutter:
    """StopCutter state of one choice; positions count its characters from the start."""

    __slots__ = ("_index", "_scanner", "_search", "_tokens", "_waiting", "ended", "received")

    def __init__(self, index: int, stops: StopSet) -> None:
        self.ended = False
        self._index = index
        self._scanner = StopScanner(stops)
        self._search = stops.first.search
        self._tokens: TokenAligner | None = None
        """Created with the first log probabilities; most calls have none."""
        self.received = 0
        self._waiting: list[tuple[int, Delta]] = []
        """Held deltas in order: (position of its first character, the delta or the rest of it)."""

    @property
    def clear(self) -> bool:
        """True: nothing is held, so text without the first character of any stop can be sent unscanned."""
        return not (self._waiting or self.ended or self._scanner.node or self._tokens is not None)

    def add(self, delta: Delta) -> Sequence[Event]:
        if self.clear and delta.logprobs is None and self._search(delta.text) is None:
            self.received += len(delta.text)
            return (delta,)
        if self.ended:
            return ()
        start, held = self.received, self._scanner.held
        self.received += len(delta.text)
        out, stop = self._scanner.feed(delta.text)
        until = start - held + len(out)
        tokens = delta.logprobs or ()
        if tokens and self._tokens is None:
            self._tokens = TokenAligner(start)
        if stop is None and until == self.received and not self._waiting:
            # Tokens of reasoning or a tool call do not spell text; they go with their fields.
            elsewhere = not delta.text and bool(delta.fields) and (self._tokens is None or self._tokens.idle)
            if elsewhere or self._tokens is None or self._tokens.passes(delta.text, tokens):
                return (delta,)
        self._waiting.append((start, delta))
        if self._tokens is not None:
            self._tokens.feed(delta.text, tokens)
        events = self._release(until)
        if stop is not None:
            self.ended = True
            for _, after in self._waiting:  # their text belongs to the stop or follows it
                if after.fields or after.extras:
                    events.append(Delta(self._index, fields=after.fields, extras=after.extras))
            events.append(Finish(self._index, "stop", matched=stop, source="gateway"))
        return events

    def end(self, finish: Finish) -> Sequence[Event]:
        if self.ended:
            return ()
        return [*self.flush(finish.matched if isinstance(finish.matched, str) else None), finish]

    def flush(self, engine_stop: str | None = None) -> list[Event]:
        """All held text; ends the choice. ``engine_stop``: the stop that the engine reported and removed."""
        if self.ended:
            return []
        self.ended = True
        self._scanner.flush()
        events = self._release(self.received)
        if self._tokens is not None and (tokens := self._tokens.rest(engine_stop)):
            events.append(Delta(self._index, logprobs=tokens))
        return events

    def _release(self, until: int) -> list[Event]:
        """The held deltas up to a position; the last one may be split there."""
        events: list[Event] = []
        taken = 0
        for start, delta in self._waiting:
            if start > until:
                break
            end = min(start + len(delta.text), until)
            tokens = None if self._tokens is None else self._tokens.take(end) or None
            part = Delta(self._index, delta.text[: end - start], tokens, delta.fields, delta.extras)
            if part.text or part.logprobs or part.fields or part.extras:
                events.append(part)
            if len(delta.text) > end - start:
                self._waiting[taken] = (end, Delta(self._index, delta.text[end - start :]))
                break
            taken += 1
        del self._waiting[:taken]
        return events
