"""Who computes, and when? One thread per model, in steps over all running choices.

A step takes each choice one token (or one chunk of its prompt) further; choices come and go
between steps, so a long answer holds nobody up. The event loop only hands work in and gets
news back. The thread starts with the first call and ends when there is nothing to do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gateway.backend.embedded.architecture import read_shape
from gateway.backend.embedded.generation import Generation
from gateway.backend.embedded.llama import Llama
from gateway.backend.embedded.text import Vocabulary
from gateway.backend.embedded.weights import Weights
from gateway.backend.embedded.worker_thread import Call, Deliver, News, Work
from gateway.core.errors import Overloaded, UpstreamError
from gateway.core.events import Finish, Usage

SEATS = 32
"""Choices that are computed together."""
QUEUE = 4096
"""Choices that may wait for a seat."""
ROWS = 512
"""Tokens of one step, over all choices: bounds the time until a hang-up is noticed."""
LINGER = 1.0
"""Seconds the thread waits for more work before it ends."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Seat:
    """A choice that is being computed."""

    call: Call
    generation: Generation
    due: float
    """Monotonic time before which it is not taken further."""


class Engine:
    """One loaded model; shared by all targets that name its folder."""

    def __init__(self, folder: Path, max_model_len: int | None = None) -> None:
        """Load the model; blocks. Raises ``ConfigError`` when the folder cannot be served."""
        self._shape = read_shape(folder, max_model_len)
        self._vocabulary = Vocabulary(folder)
        self._model = Llama(self._shape, Weights(folder))
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Call, int]] = deque()
        self._seats: list[_Seat] = []
        self._thread: threading.Thread | None = None

    @property
    def max_model_len(self) -> int:
        """Longest sequence, prompt and answer together, in tokens."""
        return self._shape.context

    @property
    def vocabulary_size(self) -> int:
        """Token ids lie below this."""
        return self._shape.vocabulary

    @property
    def active(self) -> int:
        """Choices being computed, and those waiting to be."""
        with self._changed:
            return len(self._seats) + len(self._waiting)

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text. Raises ``InvalidUnicode``."""
        return list(self.encode(text, add_special_tokens)[0])

    def encode(self, text: str, add_special_tokens: bool) -> tuple[tuple[int, ...], int]:
        """Token ids, and how many leading ones were added by the tokenizer."""
        return self._vocabulary.encode(text, add_special_tokens=add_special_tokens)

    def detokenize(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        return self._vocabulary.decode(ids, skip_special_tokens=skip_special_tokens)

    def submit(self, work: Work, deliver: Deliver) -> Call:
        """Queue a call; news of it go to ``deliver``, in the engine's thread.

        Raises ``Overloaded`` when too many choices wait already.
        """
        choices = len(work.readings) * work.n
        call = Call(work, deliver, left=choices)
        with self._changed:
            if self._waiting and len(self._waiting) + choices > QUEUE:
                raise Overloaded("the embedded engine has too many calls waiting; try again shortly", retry_after=1.0)
            self._waiting.extend((call, index) for index in range(choices))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="embedded-engine", daemon=True)
                self._thread.start()
            self._changed.notify()
        return call

    def cancel(self, call: Call) -> None:
        """Forget a call; its choices are gone before the next step. Harmless when it has ended."""
        with self._changed:
            call.gone = True
            self._changed.notify()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._seat_waiting()
                now = time.monotonic()
                batch = _batch([seat for seat in self._seats if seat.due <= now])
                if not batch and self._rests(now):
                    self._thread = None
                    return
            if batch:
                self._step(batch)

    def _seat_waiting(self) -> None:
        """Let go of calls that are gone, and fill the seats in order of arrival."""
        self._seats = [seat for seat in self._seats if not seat.call.gone]
        while self._waiting and len(self._seats) < SEATS:
            call, index = self._waiting.popleft()
            if not call.gone:
                self._seat(call, index)

    def _seat(self, call: Call, index: int) -> None:
        reading = call.work.readings[index // call.work.n]
        try:
            generation = Generation(call.work, reading, index, self._vocabulary, self._shape)
        except MemoryError as error:
            _fail([call], error)
        else:
            self._seats.append(_Seat(call, generation, time.monotonic() + call.work.token_delay))

    def _rests(self, now: float) -> bool:
        """Wait for a change or for the next due seat; True when there is nothing left to wait for."""
        if self._seats:
            self._changed.wait(min(seat.due for seat in self._seats) - now)
            return False
        # Work may have come in the moment between the time-out and the lock.
        return not self._changed.wait(LINGER) and not self._waiting

    def _step(self, batch: Sequence[_Seat]) -> None:
        try:
            self._advance(batch)
        # Whatever fails here fails for all that sat in the step: they are told, and the log keeps the reason.
        except Exception as error:
            _fail([seat.call for seat in batch], error)

    def _advance(self, batch: Sequence[_Seat]) -> None:
        states = self._model.step([(seat.generation.next_tokens, seat.generation.cache) for seat in batch])
        wanted = [seat.generation.wanted(rows) for seat, rows in zip(batch, states, strict=True)]
        scored = self._model.logits(np.concatenate(wanted))
        logits = np.split(scored, np.cumsum([len(rows) for rows in wanted])[:-1])
        now = time.monotonic()
        news: dict[int, tuple[Call, list[News]]] = {}
        for seat, rows in zip(batch, logits, strict=True):
            seat.due = now + seat.call.work.token_delay
            told = news.setdefault(id(seat.call), (seat.call, []))[1]
            told.extend(seat.generation.advance(rows))
            if told and isinstance(told[-1], Finish):
                self._stand_up(seat, told)
        for call, told in news.values():
            if told:
                _tell(call, told)

    def _stand_up(self, seat: _Seat, told: list[News]) -> None:
        """A choice has ended; with the last one, the call has."""
        with self._changed:
            self._seats.remove(seat)
        call = seat.call
        call.left -= 1
        call.completion_tokens += seat.generation.generated
        if not call.left:
            # A prompt counts once, however many choices grow from it, as OpenAI and vLLM count.
            prompt = sum(len(reading.tokens) for reading in call.work.readings)
            told += [Usage(prompt, call.completion_tokens), None]


def _batch(due: Sequence[_Seat]) -> list[_Seat]:
    """As many due seats as fit into one step; those that have waited longest come first."""
    batch, rows = [], 0
    for seat in sorted(due, key=lambda seat: (len(seat.generation.next_tokens) > 1, seat.due)):
        rows += len(seat.generation.next_tokens)
        if rows > ROWS:
            break
        batch.append(seat)
    return batch


def _fail(calls: Sequence[Call], error: Exception) -> None:
    _log.error("the embedded engine failed", exc_info=error)
    for call in calls:
        if not call.gone:
            _tell(call, [UpstreamError(f"the embedded engine failed ({type(error).__name__}); its log says more")])
            call.gone = True


def _tell(call: Call, news: Sequence[News]) -> None:
    try:
        call.deliver(news)
    except RuntimeError:
        # The event loop is closed: the process is going down, nobody listens.
        call.gone = True
