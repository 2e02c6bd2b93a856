"""One loaded model and the thread that computes all its requests, in steps (continuous batching).

A step advances each running choice by one token, or by one chunk of its prompt; choices join and leave between steps.
The event loop submits requests and receives their output. The thread starts with the first request and ends when there
is nothing to do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gateway.backend.embedded.generation import Generation
from gateway.backend.embedded.llama import Llama
from gateway.backend.embedded.model_config import read_shape
from gateway.backend.embedded.request import EngineRequest
from gateway.backend.embedded.vocabulary import Vocabulary
from gateway.backend.embedded.weights import Weights
from gateway.core.errors import GatewayError, Overloaded, UpstreamError
from gateway.core.events import Event, Finish, Usage

MAX_RUNNING = 32
"""Choices that are computed together."""
MAX_WAITING = 4096
"""Choices that may wait."""
MAX_STEP_TOKENS = 512
"""Tokens of one step, over all choices: bounds the time until a hang-up takes effect."""
IDLE_TIMEOUT = 1.0
"""Seconds that the thread waits for work before it ends."""

_log = logging.getLogger(__name__)

Output = Event | GatewayError | None
"""An event of a request; an error that ends it; or None, its regular end."""

Deliver = Callable[[Sequence[Output]], object]
"""Called in the engine's thread. Raises RuntimeError if the event loop is closed."""


@dataclass(eq=False, slots=True)
class RunningRequest:
    """A request inside the engine."""

    request: EngineRequest
    deliver: Deliver
    unfinished: int
    """Choices that have not finished."""
    cancelled: bool = False
    """Set by any thread, read before each step."""
    completion_tokens: int = 0


@dataclass(eq=False, slots=True)
class _RunningChoice:
    running: RunningRequest
    generation: Generation
    due: float
    """Monotonic time before which it is not advanced."""


class Engine:
    """One loaded model, shared by all targets with its folder."""

    def __init__(self, folder: Path, max_model_len: int | None = None) -> None:
        """Load the model; blocks. Raises ``ConfigError`` if the folder cannot be served."""
        self._shape = read_shape(folder, max_model_len)
        self._vocabulary = Vocabulary(folder)
        self._model = Llama(self._shape, Weights(folder))
        self._changed = threading.Condition()
        self._waiting: deque[tuple[RunningRequest, int]] = deque()
        self._running: list[_RunningChoice] = []
        self._thread: threading.Thread | None = None

    @property
    def max_model_len(self) -> int:
        """The longest sequence, prompt and answer together, in tokens."""
        return self._shape.context

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below this number."""
        return self._shape.vocabulary

    @property
    def active(self) -> int:
        """Choices that run or wait."""
        with self._changed:
            return len(self._running) + len(self._waiting)

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """See ``Tokenizer``. Raises ``InvalidUnicode``."""
        return list(self.encode(text, add_special_tokens)[0])

    def encode(self, text: str, add_special_tokens: bool) -> tuple[tuple[int, ...], int]:
        """Token ids, and how many leading ones the tokenizer added."""
        return self._vocabulary.encode(text, add_special_tokens=add_special_tokens)

    def detokenize(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """See ``Tokenizer``."""
        return self._vocabulary.decode(ids, skip_special_tokens=skip_special_tokens)

    def submit(self, request: EngineRequest, deliver: Deliver) -> RunningRequest:
        """Queue a request; its output goes to ``deliver``. Raises ``Overloaded`` if too many choices wait."""
        choices = len(request.prompts) * request.n
        running = RunningRequest(request, deliver, unfinished=choices)
        with self._changed:
            if self._waiting and len(self._waiting) + choices > MAX_WAITING:
                raise Overloaded("the embedded engine has too many calls waiting; try again shortly", retry_after=1.0)
            self._waiting.extend((running, index) for index in range(choices))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="embedded-engine", daemon=True)
                self._thread.start()
            self._changed.notify()
        return running

    def cancel(self, running: RunningRequest) -> None:
        """Remove a request before the next step; no effect if it has ended."""
        with self._changed:
            running.cancelled = True
            self._changed.notify()

    # ------------------------------------------------------------ in the engine's thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._admit_waiting()
                now = time.monotonic()
                batch = _next_batch([choice for choice in self._running if choice.due <= now])
                if not batch and self._is_idle(now):
                    self._thread = None
                    return
            if batch:
                self._step(batch)

    def _admit_waiting(self) -> None:
        """Remove cancelled choices and start waiting ones in the order of arrival."""
        self._running = [choice for choice in self._running if not choice.running.cancelled]
        while self._waiting and len(self._running) < MAX_RUNNING:
            running, index = self._waiting.popleft()
            if running.cancelled:
                continue
            request = running.request
            prompt = request.prompts[index // request.n]
            try:
                generation = Generation(request, prompt, index, self._vocabulary, self._shape)
            except MemoryError as error:
                _fail([running], error)
            else:
                self._running.append(_RunningChoice(running, generation, time.monotonic() + request.token_delay))

    def _is_idle(self, now: float) -> bool:
        """Wait for a change or the next due choice; True if there was nothing to do for ``IDLE_TIMEOUT``."""
        if self._running:
            self._changed.wait(min(choice.due for choice in self._running) - now)
            return False
        # Work may have arrived between the time-out and the lock.
        return not self._changed.wait(IDLE_TIMEOUT) and not self._waiting

    def _step(self, batch: Sequence[_RunningChoice]) -> None:
        try:
            self._advance(batch)
        except Exception as error:  # of any kind: all requests of the step end with an error
            _fail([choice.running for choice in batch], error)

    def _advance(self, batch: Sequence[_RunningChoice]) -> None:
        states = self._model.step([(choice.generation.next_tokens, choice.generation.cache) for choice in batch])
        wanted = [choice.generation.wanted(rows) for choice, rows in zip(batch, states, strict=True)]
        scored = self._model.logits(np.concatenate(wanted))
        logits = np.split(scored, np.cumsum([len(rows) for rows in wanted])[:-1])
        now = time.monotonic()
        outputs: dict[int, tuple[RunningRequest, list[Output]]] = {}
        for choice, rows in zip(batch, logits, strict=True):
            running = choice.running
            choice.due = now + running.request.token_delay
            output = outputs.setdefault(id(running), (running, []))[1]
            output.extend(choice.generation.advance(rows))
            if output and isinstance(output[-1], Finish):
                self._finish(choice, output)
        for running, output in outputs.values():
            if output:
                _deliver(running, output)

    def _finish(self, choice: _RunningChoice, output: list[Output]) -> None:
        """Remove a finished choice; the last one ends its request."""
        with self._changed:
            self._running.remove(choice)
        running = choice.running
        running.unfinished -= 1
        running.completion_tokens += choice.generation.generated
        if not running.unfinished:
            # A prompt counts once, whatever ``n`` is, as at OpenAI and vLLM.
            prompt = sum(len(prompt.tokens) for prompt in running.request.prompts)
            output += [Usage(prompt, running.completion_tokens), None]


def _next_batch(due: Sequence[_RunningChoice]) -> list[_RunningChoice]:
    """The due choices that fit into one step; those that have waited longest first, prompts last."""
    batch, tokens = [], 0
    for choice in sorted(due, key=lambda choice: (len(choice.generation.next_tokens) > 1, choice.due)):
        tokens += len(choice.generation.next_tokens)
        if tokens > MAX_STEP_TOKENS:
            break
        batch.append(choice)
    return batch


def _fail(requests: Sequence[RunningRequest], error: Exception) -> None:
    _log.error("the embedded engine failed", exc_info=error)
    for running in requests:
        if not running.cancelled:
            message = f"the embedded engine failed ({type(error).__name__}); the gateway's log has the reason"
            _deliver(running, [UpstreamError(message)])
            running.cancelled = True


def _deliver(running: RunningRequest, output: Sequence[Output]) -> None:
    try:
        running.deliver(output)
    except RuntimeError:  # the event loop is closed: the process ends
        running.cancelled = True
