"""How do events end at a stop? Cuts every choice's text, and its log probabilities with it.

For each choice, whatever way the upstream slices its deltas:

- Text that may still become a stop is held back, and no more than that. The rest goes out at once.
- A complete stop ends the choice: the text before it, then one ``Finish`` with ``source="gateway"``. What the
  upstream says of this choice afterwards is swallowed. Is every choice ``done``, the upstream can be closed.
- The upstream's own finish releases the held text first, as does the end of the stream: no byte is lost.
- Deltas keep their identity and order: one comes out as itself, or later, or in two parts, never merged with another.
  ``fields`` and ``extras`` are never changed or dropped; they go out once all text before their delta is out.
- A token's log probability goes with the token's first character: kept if that lies before the stop, dropped if not.
  So a token that straddles the cut is kept whole. How tokens are placed on the text: ``align.py``.

``Begun``, ``Usage`` and ``Document`` pass at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gateway.core.events import Delta, Event, Finish
from gateway.stream.stop_search import StopScanner, StopSet, stop_set
from gateway.stream.token_alignment import TokenAligner


class Cutter:
    """Enforces the stop set on the events of one call (design 4.2)."""

    def __init__(self, stops: tuple[str, ...], choices: int = 1, *, skip: tuple[int, ...] = ()) -> None:
        """``choices``: how many the call expects, numbered from 0.

        ``skip``: for each choice, how many characters at its start are an echoed prompt, in which no stop may match.
        """
        self.stops = stop_set(stops)
        self._skip = skip
        self._choices: dict[int, Choice] = {}
        self._open = set(range(choices))

    @property
    def done(self) -> bool:
        """Every expected choice has ended; what follows can only be usage."""
        return not self._open

    def cut(self, batch: Sequence[Event]) -> Sequence[Event]:
        """The events that may go out now; the batch itself where no stop touches it."""
        passed = 0
        for event in batch:
            if type(event) is Delta:
                choice = self.choice(event.index)
                if choice.touches(event):
                    break
                choice.received += len(event.text)
            elif isinstance(event, Finish):
                if not self.choice(event.index).ends():
                    break
                self._open.discard(event.index)
            passed += 1
        else:
            return batch
        out = [*batch[:passed]]
        for event in batch[passed:]:
            out += self.feed(event)
        return out

    def feed(self, event: Event) -> list[Event]:
        """The events that may go out now."""
        if isinstance(event, Delta):
            choice = self.choice(event.index)
            events = choice.add(event)
        elif isinstance(event, Finish):
            choice = self.choice(event.index)
            events = choice.end(event)
        else:
            return [event]
        if choice.ended:
            self._open.discard(event.index)
        return events

    def close(self) -> list[Event]:
        """The upstream is at its end: what is still held, choice by choice, without inventing a finish."""
        return [event for _, choice in sorted(self._choices.items()) for event in choice.flush()]

    def choice(self, index: int) -> Choice:
        """The state of one choice."""
        choice = self._choices.get(index)
        if choice is None:
            skip = self._skip[index] if 0 <= index < len(self._skip) else 0
            choice = self._choices[index] = Choice(index, self.stops, skip)
        return choice


class Choice:
    """One choice's text on its way out; positions count its characters from the start."""

    __slots__ = ("_index", "_scanner", "_search", "_skip", "_tokens", "_waiting", "ended", "received")

    def __init__(self, index: int, stops: StopSet, skip: int) -> None:
        self.ended = False
        self._index = index
        self._scanner = StopScanner(stops)
        self._skip = skip
        self._search = stops.first.search
        self._tokens: TokenAligner | None = None
        """Made when the first log probabilities come: most calls have none."""
        self.received = 0
        self._waiting: deque[tuple[int, Delta]] | None = None
        """(position of its first character, delta or what is left of it), in order."""

    @property
    def clear(self) -> bool:
        """Nothing waits, and text that no stop can begin in needs no look."""
        return not (self._waiting or self.ended or self._skip or self._scanner.node or self._tokens is not None)

    def touches(self, delta: Delta) -> bool:
        """False: no stop can begin in this text and nothing waits, so it may go out; then it counts as ``received``."""
        return self._search(delta.text) is not None or delta.logprobs is not None or not self.clear

    def ends(self) -> bool:
        """True: nothing is held, and the choice takes no more. False: nothing happened."""
        if self._waiting or self.ended or self._scanner.held or self._tokens is not None:
            return False
        self.ended = True
        return True

    def add(self, delta: Delta) -> list[Event]:
        if self.ended:
            return []
        start = self.received
        until, stop = self._scan(delta.text)
        tokens = delta.logprobs or ()
        if tokens and self._tokens is None:
            self._tokens = TokenAligner(start)
        if stop is None and until == self.received and not self._waiting:
            # Tokens of reasoning or a tool call spell no text of ours; they go with their fields.
            elsewhere = not delta.text and bool(delta.fields) and (self._tokens is None or self._tokens.idle)
            if elsewhere or self._tokens is None or self._tokens.passes(delta.text, tokens):
                return [delta]
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((start, delta))
        if self._tokens is not None:
            self._tokens.feed(delta.text, tokens)
        events = self._release(until)
        if stop is not None:
            self.ended = True
            events += self._leftover_fields()
            events.append(Finish(self._index, "stop", matched=stop, source="gateway"))
        return events

    def end(self, finish: Finish) -> list[Event]:
        if self.ended:
            return []
        events = self.flush(finish.matched if isinstance(finish.matched, str) else None)
        events.append(finish)
        return events

    def flush(self, engine_stop: str | None = None) -> list[Event]:
        """Everything held back; the choice takes no more."""
        if self.ended:
            return []
        self.ended = True
        self._scanner.flush()
        events = self._release(self.received)
        if self._tokens is not None and (tokens := self._tokens.rest(engine_stop)):
            events.append(Delta(self._index, logprobs=tokens))
        return events

    def _scan(self, text: str) -> tuple[int, str | None]:
        """The position up to which text may go out, and the stop that was found there."""
        self.received += len(text)
        if self._skip:
            skipped = min(self._skip, len(text))
            self._skip -= skipped
            text = text[skipped:]
        start = self.received - len(text) - self._scanner.held
        out, stop = self._scanner.feed(text)
        return start + len(out), stop

    def _release(self, until: int) -> list[Event]:
        """The waiting deltas up to a position; the last one may be cut in two there."""
        events: list[Event] = []
        while self._waiting and self._waiting[0][0] <= until:
            start, delta = self._waiting.popleft()
            end = min(start + len(delta.text), until)
            part = Delta(
                self._index,
                delta.text[: end - start],
                (self._tokens.take(end) or None) if self._tokens is not None else None,
                delta.fields,
                delta.extras,
            )
            if part.text or part.logprobs or part.fields or part.extras:
                events.append(part)
            if len(delta.text) > end - start:
                self._waiting.appendleft((end, Delta(self._index, delta.text[end - start :])))
                break
        return events

    def _leftover_fields(self) -> list[Event]:
        """Fields that came before the stop was complete; the text beside them is part of it, or after it."""
        return [
            Delta(self._index, fields=delta.fields, extras=delta.extras)
            for _, delta in self._waiting or ()
            if delta.fields or delta.extras
        ]
