"""Cuts events at stop strings: the text of every choice, and the log probabilities of that text.

The rules for each choice, whose text may arrive in deltas of any length:

- Only text that may still become a stop is held; the rest is sent at once.
- A complete stop ends the choice: the text before the stop is sent, then one ``Finish`` with ``source="gateway"``.
  Later events of the choice are dropped.
- Before a finish of the upstream, and at the end of the stream, the held text is sent.
- Deltas keep their order. A delta may be delayed or split in two, but is never joined with another delta. ``fields``
  and ``extras`` are never changed or dropped; they are sent once all text before their delta is sent.
- The log probability of a token is kept only if the first character of the token is before the stop.
  ``token_alignment.py`` finds the position of each token in the text.

``Begun``, ``Usage`` and ``Document`` are passed on at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from metatemplate.answers.stages import PerChoice
from metatemplate.answers.stops.stop_search import StopScanner, StopSet, stop_set
from metatemplate.answers.stops.token_alignment import TokenAligner
from metatemplate.values.events import Choice, Delta, Event, Finish


class StopCutter(PerChoice["ChoiceCutter"]):
    """Cuts the events of one call at stop strings."""

    __slots__ = ("stops",)

    may_forward = True

    def __init__(self, stops: tuple[str, ...]) -> None:
        super().__init__()
        self.stops = stop_set(stops)

    @property
    def is_cut_off(self) -> bool:
        """True: every choice so far has ended, and at least one at a stop that the engine did not find."""
        choices = self._choices.values()
        return any(choice.cut for choice in choices) and all(choice.ended for choice in choices)

    def passes(self, choice: Choice) -> bool:
        """Return whether no character of the text begins a stop string. See ``Stage.passes``."""
        return self.stops.first.search(choice.text) is None

    @property
    def halts(self) -> re.Pattern[str]:
        """The expression of the characters that begin a stop string. See ``Stage.halts``."""
        return self.stops.first

    def is_clear(self, index: int) -> bool:
        """Return whether no text of a choice is held. See ``Stage.is_clear``."""
        return self._choice(index).clear

    def forwarded(self, index: int, characters: int) -> None:
        """Count the characters that were forwarded. See ``Stage.forwarded``."""
        self._choice(index).received += characters

    def _begin(self, index: int) -> ChoiceCutter:
        return ChoiceCutter(index, self.stops)


class ChoiceCutter:
    """Cuts the text of one choice. A position is the number of characters since the start of the choice."""

    __slots__ = ("_index", "_scanner", "_search", "_tokens", "_waiting", "cut", "ended", "received")

    def __init__(self, index: int, stops: StopSet) -> None:
        self.ended = self.cut = False
        """``cut``: the choice has ended at a stop in its text."""
        self._index = index
        self._scanner = StopScanner(stops)
        self._search = stops.first.search
        self._tokens: TokenAligner | None = None
        """Created when the first log probabilities arrive; most calls have none."""
        self.received = 0
        self._waiting: list[tuple[int, Delta]] = []
        """Held deltas in order, each as (position of the first character, the delta or its unsent part)."""

    @property
    def clear(self) -> bool:
        """True: nothing is held. Then text without the first character of a stop can be sent without a search."""
        return not (self._waiting or self.ended or self._scanner.node or self._tokens is not None)

    def add(self, delta: Delta) -> Sequence[Event]:
        if delta.logprobs is None and self._search(delta.text) is None and self.clear:
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
            # Tokens of reasoning or of a tool call are not part of the text, so they stay with the fields.
            elsewhere = not delta.text and bool(delta.fields) and (self._tokens is None or self._tokens.idle)
            if elsewhere or self._tokens is None or self._tokens.passes(delta.text, tokens):
                return (delta,)
        self._waiting.append((start, delta))
        if self._tokens is not None:
            self._tokens.feed(delta.text, tokens)
        events = self._release(until)
        if stop is not None:
            self.ended = self.cut = True
            for _, after in self._waiting:  # the text of these tokens belongs to the stop or follows the stop
                if after.fields or after.extras:
                    events.append(Delta(self._index, fields=after.fields, extras=after.extras))
            events.append(Finish(self._index, "stop", matched=stop, source="gateway"))
        return events

    def end(self, finish: Finish) -> Sequence[Event]:
        if self.ended:
            return ()
        return [*self.flush(finish.matched if isinstance(finish.matched, str) else None), finish]

    def flush(self, engine_stop: str | None = None) -> list[Event]:
        """Return all held text, and end the choice. ``engine_stop``: the stop that the engine reported and removed."""
        if self.ended:
            return []
        self.ended = True
        events = self._release(self.received) if self._waiting else []
        if self._tokens is not None and (tokens := self._tokens.rest(engine_stop)):
            events.append(Delta(self._index, logprobs=tokens))
        return events

    def _release(self, until: int) -> list[Event]:
        """Remove and return the held deltas up to a position. A delta that crosses the position is split."""
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
