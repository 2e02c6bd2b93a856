"""Several upstream calls for one request, where an engine takes no list of prompts or ignores ``n``.

Engines differ: some answer 500 to a list of prompts, some ignore ``n`` without an error.
The client receives all its choices in order either way, with a notice. The calls are made one after another, so the
time of the answer is the sum of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import UpstreamError, UpstreamRejectedRequest, drop_tracebacks
from gateway.core.events import Begun, Delta, Event, Finish, Usage
from gateway.core.exchange import Backend, Events, Exchange
from gateway.policy.deliver.layer import Layer
from gateway.stream.batches import IteratorEvents
from gateway.stream.stop_cutter import StopCutter


@dataclass(frozen=True, slots=True)
class UpstreamCapabilities:
    """The input that the targets of a model accept in one call."""

    lists: bool | None
    """Several prompts; None: unknown, so a list is tried first."""
    choices: bool | None
    """``n`` above one; None: unknown, so ``n`` is tried and missing choices are requested."""
    streamed_choices: bool = True
    """``n`` above one in a stream."""


LIST_REFUSALS = frozenset({UpstreamRejectedRequest.code, UpstreamError.code})
"""Errors with which engines refuse a list of prompts: llama_cpp.server a 500, transformers a 400."""


class SplitCalls(Layer):
    """A backend that returns every choice, however many upstream calls that takes.

    Stands outside ``Timeouts``, so each call has its own idle time; the total time is one for all calls.
    """

    def __init__(self, inner: Backend, capabilities: UpstreamCapabilities, total: float) -> None:
        """``total``: seconds for all calls together."""
        super().__init__(inner)
        self._capabilities = capabilities
        self._total = total

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """One choice is passed on as it is; of several, further calls are opened during the iteration."""
        if len(exchange.prompts) == 1 and exchange.prompt_is_list and not self._capabilities.lists:
            exchange = replace(exchange, prompt_is_list=False)
        if exchange.n == 1 and len(exchange.prompts) < 2:
            return self._inner.open(exchange)
        return self._open_many(exchange)

    @asynccontextmanager
    async def _open_many(self, exchange: Exchange) -> AsyncIterator[Events]:
        exchange = replace(exchange, deadline=asyncio.get_running_loop().time() + self._total)
        async with AsyncExitStack() as first_call:
            events = await self._open_whole(first_call, exchange)
            split = events is None
            if events is None:
                events = await first_call.enter_async_context(self._inner.open(_single(exchange, 0)))
            answer = self._all_choices(exchange, first_call, events, split=split)
            async with aclosing(answer):  # leaving closes calls that were opened during the iteration too
                yield IteratorEvents(answer)

    async def _open_whole(self, stack: AsyncExitStack, exchange: Exchange) -> Events | None:
        """The events of one call for all choices; None where the engine does not accept that."""
        if not self._accepts_whole(exchange):
            return None
        try:
            return await stack.enter_async_context(self._inner.open(exchange))
        except (UpstreamRejectedRequest, UpstreamError) as error:
            unknown = len(exchange.prompts) > 1 and self._capabilities.lists is None
            if unknown and error.code in LIST_REFUSALS:
                drop_tracebacks(error)
                return None
            raise

    def _accepts_whole(self, exchange: Exchange) -> bool:
        can = self._capabilities
        if len(exchange.prompts) > 1 and can.lists is False:
            return False
        if exchange.n == 1:
            return True
        if can.choices is False or (exchange.stream and not can.streamed_choices):
            return False
        # An engine that ignores n numbers its choices by prompt, another by choice: unless its behaviour is known,
        # the numbers in an answer to a list with n are ambiguous.
        return len(exchange.prompts) < 2 or can.choices is True

    async def _all_choices(
        self, exchange: Exchange, first_call: AsyncExitStack, events: Events, *, split: bool
    ) -> AsyncGenerator[Event, None]:
        """The events of the first call, then those of a further call for each choice it did not bring.

        ``split``: the first call was for the first choice only.
        """
        seen = _SeenChoices(max(len(exchange.prompts), 1) * exchange.n)
        async with aclosing(_cut_short(events, exchange)) as answer:
            async for event in answer:
                seen.add(event)
                if split and isinstance(event, Begun):
                    yield replace(event, notices=(*event.notices, f"split_calls: {seen.total}"))
                elif not isinstance(event, Usage):
                    yield event
        seen.end_call()
        await first_call.aclose()  # an engine that runs on past its stops must not delay the other choices
        missing = range(1, seen.total) if split else seen.missing()
        if missing and not split:
            yield Begun("", notices=(f"filled_choices: {len(missing)}",))
        for index in missing:
            async with (
                self._inner.open(_single(exchange, index)) as events,
                aclosing(_cut_short(events, exchange)) as answer,
            ):
                async for event in answer:
                    seen.add(event)
                    if isinstance(event, Delta | Finish):
                        yield replace(event, index=index)
            seen.end_call()
        if seen.complete_usage and seen.usage is not None:
            yield seen.usage


class _SeenChoices:
    """The choices that have appeared, and the sum of the calls' token counts."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.usage: Usage | None = None
        self.complete_usage = True
        """False once a call has ended without counts: the sum of the others would be wrong."""
        self._indexes: set[int] = set()
        self._count: Usage | None = None

    def add(self, event: Event) -> None:
        if isinstance(event, Delta | Finish):
            self._indexes.add(event.index)
        elif isinstance(event, Usage):
            self._count = event

    def end_call(self) -> None:
        if self._count is None:
            self.complete_usage = False
        else:
            self.usage = self._count if self.usage is None else _sum(self.usage, self._count)
        self._count = None

    def missing(self) -> list[int]:
        return [index for index in range(self.total) if index not in self._indexes]


async def _cut_short(events: Events, exchange: Exchange) -> AsyncGenerator[Event, None]:
    """The events of one call, unchanged, until all choices that appeared have ended and one was cut at a stop.

    An engine that runs past a stop would never end (row C19). Choices that have not appeared are requested again.
    ``ResponseStream`` cuts the text itself, in one place, so that no text is lost with a call that fails.
    """
    stops = exchange.stops if exchange.stream and not exchange.params.get("echo") else ()
    cutter = StopCutter(stops) if stops else None
    seen: set[int] = set()
    ended: set[int] = set()
    cut = False
    while batch := await events.next_batch():
        for event in batch:
            yield event
        if cutter is None:
            continue
        seen.update(event.index for event in batch if isinstance(event, Delta | Finish))
        for event in cutter.cut(batch):
            if isinstance(event, Finish):
                ended.add(event.index)
                cut = cut or event.source == "gateway"
        if cut and ended == seen:
            return


def _single(exchange: Exchange, index: int) -> Exchange:
    """The call for one choice; each further copy of a prompt has another seed, as all would be alike."""
    prompt, copy = divmod(index, exchange.n)
    params = exchange.params
    if copy and isinstance(params.get("seed"), int):
        params = {**params, "seed": params["seed"] + copy}
    prompts = exchange.prompts[prompt : prompt + 1]
    return replace(exchange, prompts=prompts, prompt_is_list=False, n=1, params=params)


def _sum(one: Usage, other: Usage) -> Usage:
    source = one.source if one.source == other.source else "estimated"
    # Details of separate calls cannot be added without knowing what they mean.
    return Usage(one.prompt + other.prompt, one.completion + other.completion, source, EMPTY_MAPPING)
