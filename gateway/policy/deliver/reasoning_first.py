"""Makes two upstream calls if a model reasons before an answer that must be JSON.

An engine applies a constraint from the first token on, so a constrained call would leave no room for the reasoning.
The first call is free and ends at the marker after the reasoning. The second call continues the same text, and only
this call is constrained. A model that begins its answer without reasoning is stopped, and makes the second call with
the original prompt. The answer has the reasoning and the JSON in one text, with a notice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace

from gateway.core.exchange import Backend, Events, Exchange
from gateway.policy.deliver.layer import Layer
from gateway.policy.deliver.shared_limits import with_deadline
from gateway.stream.batches import IteratorEvents
from metatemplate.answers.stops.stop_search import StopScanner
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.events import Begun, Delta, Event, Finish, Usage, total_usage

NOTICE = "two_calls: the reasoning, then the constrained answer"
OF_PROMPT = frozenset({"echo", "prompt_logprobs"})
"""Parameters that ask for facts about the prompt. The second call does not send them."""


class ReasoningFirst(Layer):
    """A backend that lets the model finish its reasoning before its answer is constrained.

    It is outside ``Recording`` and the cache, which handle the two calls separately. The total time is limited for both
    calls together.
    """

    def __init__(self, inner: Backend, total: float) -> None:
        """``total``: the time limit for both calls together, in seconds."""
        super().__init__(inner)
        self._total = total

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the first call. The second call is opened while the events are read."""
        wanted = exchange.answer_format
        if wanted is None or wanted.reasoning is None:
            return self._inner.open(exchange)
        return self._open_both(exchange, wanted.reasoning)

    @asynccontextmanager
    async def _open_both(self, exchange: Exchange, thinking: Thinking) -> AsyncIterator[Events]:
        exchange = with_deadline(exchange, self._total)
        async with AsyncExitStack() as first_call:
            events = await first_call.enter_async_context(self._inner.open(_free(exchange, thinking)))
            async with aclosing(self._answer(exchange, thinking, first_call, events)) as answer:
                yield IteratorEvents(answer)

    async def _answer(
        self, exchange: Exchange, thinking: Thinking, first_call: AsyncExitStack, events: Events
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the first call, then those of the second call."""
        first = _FirstCall(exchange, thinking)
        async with aclosing(first.read(events)) as answer:
            async for event in answer:
                yield event
        await first_call.aclose()
        if first.is_last:
            return
        usage: Usage | None = None
        async with self._inner.open(first.constrained()) as events:
            while batch := await events.next_batch():
                for event in batch:
                    if isinstance(event, Usage):
                        usage = event
                    elif not isinstance(event, Begun):
                        yield event
                    elif event.notices:
                        yield Begun("", notices=event.notices)
        if (total := total_usage([first.usage, usage])) is not None:
            yield total


class _FirstCall:
    """The answer to the first call: the reasoning up to its end marker."""

    def __init__(self, exchange: Exchange, thinking: Thinking) -> None:
        self._exchange = exchange
        self._thinking = thinking
        self._end = StopScanner((thinking.end,))
        self._reasons: bool | None = True if thinking.open else None
        """Whether the answer begins with reasoning. None: not known yet."""
        self._head = ""
        """The text of the answer until ``_reasons`` is known."""
        self._ended = False
        """True: the text contains the end marker, because the engine did not stop there."""
        self._written: list[str] = []
        """The reasoning so far, with its markers."""
        self.is_last = False
        """True: the answer has ended before the JSON, for example at the token limit."""
        self.usage: Usage | None = None

    async def read(self, events: Events) -> AsyncGenerator[Event, None]:
        """Yield the events that the client receives."""
        finish: Finish | None = None
        while not self._is_over and (batch := await events.next_batch()):
            for event in batch:
                if isinstance(event, Delta):
                    text = "" if self._is_over else self._add(event.text)
                    if text:
                        yield replace(event, text=text)
                elif isinstance(event, Finish):
                    finish = event
                elif isinstance(event, Usage):
                    self.usage = event
                else:
                    yield replace(event, notices=(*event.notices, NOTICE)) if isinstance(event, Begun) else event
        if self._ended or not self._reasons:
            return
        if held := self._end.flush():
            yield Delta(0, self._keep(held))
        # Few engines report which stop string they found.
        if finish is None or (finish.reason == "stop" and finish.matched in (None, self._thinking.end)):
            yield Delta(0, self._keep(self._thinking.end))
            return
        self.is_last = True
        yield finish
        if self.usage is not None:
            yield self.usage

    def constrained(self) -> Exchange:
        """Return the second call, which continues the text of the first call."""
        exchange = self._exchange
        assert exchange.answer_format is not None
        (prompt,) = exchange.prompts
        assert isinstance(prompt, str)  # see ``calls/preparation/structured_output.py``
        params = {name: value for name, value in exchange.params.items() if name not in OF_PROMPT}
        if self.usage is not None and self._written and isinstance(limit := params.get("max_tokens"), int):
            params["max_tokens"] = max(limit - self.usage.completion, 1)
        return replace(
            exchange,
            prompts=(prompt + "".join(self._written),),
            params=params,
            answer_format=replace(exchange.answer_format, reasoning=None),
        )

    @property
    def _is_over(self) -> bool:
        """True if the rest of the answer is not needed."""
        return self._ended or self._reasons is False

    def _add(self, text: str) -> str:
        """Add text of the model, and return the text that can be sent now."""
        if self._reasons is None:
            self._head += text
            start, begin = self._head.lstrip(), self._thinking.begin
            if not start.startswith(begin):
                self._reasons = None if begin.startswith(start) else False
                return ""
            self._reasons, text = True, self._head
        certain, end = self._end.feed(text)
        self._ended = end is not None
        return self._keep(certain + (end or ""))

    def _keep(self, text: str) -> str:
        self._written.append(text)
        return text


def _free(exchange: Exchange, thinking: Thinking) -> Exchange:
    """Return the first call, which is not constrained and ends after the reasoning."""
    params = {name: value for name, value in exchange.params.items() if name != "response_format"}
    return replace(exchange, params=params, answer_format=None, stops=(*exchange.stops, thinking.end))
