"""One loaded model and the task that computes all its requests, in steps (continuous batching).

A step advances each running choice by one token, or by one chunk of its prompt, in a thread; choices join and leave
between steps. A choice with a ``token_delay`` takes part in a step only when its delay has passed; the other choices
do not wait for it. The task starts with the first request and ends when there is nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.backend.embedded.generation import Generation
from gateway.backend.embedded.llama import Llama, tensor_shapes
from gateway.backend.embedded.model_folder import read_config, read_weights
from gateway.backend.embedded.request import EngineRequest
from gateway.backend.embedded.vocabulary import Vocabulary
from gateway.core.errors import Overloaded, UpstreamError
from metatemplate.values.events import Event, Finish, Usage

MAX_RUNNING = 32
"""The maximum number of running choices with a ``token_delay``, and of running choices without."""
MAX_WAITING = 4096
"""The maximum number of choices that wait to be computed."""
MAX_STEP_TOKENS = 512
"""The maximum number of tokens in one step, over all choices. A disconnect takes effect only between steps."""


@dataclass(eq=False, slots=True)
class RunningRequest:
    """A request inside the engine."""

    request: EngineRequest
    outputs: asyncio.Queue[list[Event] | UpstreamError]
    """One list of events for each step, or an error that ends the request. The last event of a request is ``Usage``."""
    unfinished: int
    """The number of choices that have not finished."""
    completion_tokens: int = 0
    cancelled: bool = False


class EmbeddedEngine:
    """One loaded model, shared by all targets with its folder."""

    def __init__(self, folder: Path, max_model_len: int | None = None) -> None:
        """Load the model, which blocks. Raises ``ConfigError`` or ``ValueError`` if the model folder cannot be used."""
        self._config = config = read_config(folder, max_model_len)
        self.vocabulary = Vocabulary(folder)
        self._model = Llama(config, read_weights(folder, tensor_shapes(config)))
        self.max_model_len = config.max_position_embeddings
        """The longest sequence, prompt and answer together, in tokens."""
        self.vocabulary_size = config.vocab_size
        """Every token id is smaller than this number."""
        self._waiting: deque[tuple[RunningRequest, int]] = deque()
        """The choices that have not started, each as (request, index of the choice)."""
        self._running: dict[Generation, RunningRequest] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        """Set when a request is submitted or cancelled. Belongs to the event loop of the task."""

    @property
    def active(self) -> int:
        """The number of choices that run or wait."""
        return len(self._running) + len(self._waiting)

    def submit(self, request: EngineRequest) -> RunningRequest:
        """Queue a request. Raises ``Overloaded`` if too many choices wait."""
        choices = len(request.prompts) * request.exchange.n
        if self._waiting and len(self._waiting) + choices > MAX_WAITING:
            raise Overloaded("too many calls wait for the embedded engine; retry later", retry_after=1.0)
        running = RunningRequest(request, asyncio.Queue(), unfinished=choices)
        self._waiting.extend((running, index) for index in range(choices))
        if self._task is None or self._task.done():
            self._changed = asyncio.Event()
            self._task = asyncio.create_task(self._run())
        self._changed.set()
        return running

    def cancel(self, running: RunningRequest) -> None:
        """Drop the choices of a request before the next step. A finished request stays as it is."""
        running.cancelled = True
        self._changed.set()

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        while self._update_running(now()):
            batch = self._next_batch(now())
            if not batch:
                self._changed.clear()
                with suppress(TimeoutError):  # until a choice is due, or a request is submitted or cancelled
                    async with asyncio.timeout_at(min(choice.due for choice in self._running)):
                        await self._changed.wait()
                continue
            requests = [self._running[choice] for choice in batch]
            try:
                outputs = await asyncio.to_thread(self._step, batch)
            except Exception as error:  # after any exception, all requests of the step end with an error
                logging.getLogger(__name__).error("the embedded engine failed", exc_info=error)
                message = f"the embedded engine failed ({type(error).__name__}); the gateway's log has the reason"
                for running in requests:
                    running.cancelled = True
                    running.outputs.put_nowait(UpstreamError(message))
                continue
            events: dict[RunningRequest, list[Event]] = {running: [] for running in requests}
            for choice, running, output in zip(batch, requests, outputs, strict=True):
                events[running] += output
                if choice.generated:  # a step of the prompt chooses no token
                    choice.due = now() + running.request.token_delay
                if output and isinstance(output[-1], Finish):
                    del self._running[choice]
                    running.unfinished -= 1
                    running.completion_tokens += choice.generated
            for running, together in events.items():
                if not running.unfinished:
                    # A prompt counts once for all ``n``, as at OpenAI and vLLM.
                    prompt = sum(len(prompt.tokens) for prompt in running.request.prompts)
                    together.append(Usage(prompt, running.completion_tokens))
                if together:
                    running.outputs.put_nowait(together)

    def _update_running(self, now: float) -> bool:
        """Remove cancelled choices, start waiting choices, and return whether any choice runs."""
        self._running = {choice: running for choice, running in self._running.items() if not running.cancelled}
        places = Counter(running.request.token_delay > 0 for running in self._running.values())
        waiting, self._waiting = self._waiting, deque()
        for running, index in waiting:
            is_delayed = running.request.token_delay > 0
            if running.cancelled:
                continue
            if places[is_delayed] == MAX_RUNNING:
                self._waiting.append((running, index))
                continue
            places[is_delayed] += 1
            choice = Generation(running.request, index, self._config, self.vocabulary)
            choice.due = now + running.request.token_delay
            self._running[choice] = running
        return bool(self._running)

    def _next_batch(self, now: float) -> list[Generation]:
        """Return the choices of the next step, prompts last. Empty if no choice is due."""
        batch, tokens = [], 0
        due = (choice for choice in self._running if choice.due <= now)
        for choice in sorted(due, key=lambda choice: len(choice.next_tokens) > 1):
            tokens += len(choice.next_tokens)
            if tokens > MAX_STEP_TOKENS:
                break
            batch.append(choice)
        return batch

    def _step(self, batch: Sequence[Generation]) -> list[list[Event]]:
        """Compute one step and return the events of each choice. Runs in a thread."""
        states = self._model.step([(choice.next_tokens, choice.cache) for choice in batch])
        wanted = [choice.wanted(rows) for choice, rows in zip(batch, states, strict=True)]
        return [choice.advance(rows) for choice, rows in zip(batch, self._model.logits(wanted), strict=True)]
