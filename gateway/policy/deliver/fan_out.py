"""How many calls does one request need? One, if the engine takes lists and ``n``; else one for each choice.

Engines differ (``specs/clients.md`` 2.1): some answer 500 to a list of prompts, some ignore ``n``
and say nothing. The client gets all its choices either way, in order, and is told how.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import reduce

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import UpstreamError, UpstreamRejectedRequest, drop_tracebacks
from gateway.core.events import Begun, Delta, Event, Finish, Usage
from gateway.core.exchange import Backend, Events, Exchange
from gateway.stream.batches import Singles
from gateway.stream.stop_cutter import Cutter


@dataclass(frozen=True, slots=True)
class UpstreamCapabilities:
    """What the targets of a model take in one call."""

    lists: bool | None
    """Several prompts; None: try, and fall back."""
    choices: bool | None
    """``n`` above one; None: try, and fill up."""
    streamed_choices: bool = True
    """``n`` above one in a stream."""


MAY_MEAN_LIST = frozenset({UpstreamRejectedRequest.code, UpstreamError.code})
"""How engines refuse a list of prompts: llama_cpp.server with a 500, transformers with a 400."""


class FanOut:
    """A backend that gives every choice, whatever the engine takes at once.

    Stands outside the clocks, so that each further call has its own silences; the total is one for all of them.
    """

    def __init__(self, inner: Backend, habits: UpstreamCapabilities, total: float) -> None:
        self._inner = inner
        self._habits = habits
        self._total = total

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """One call for one choice is passed on as it is; for more, further calls follow inside the iteration."""
        if len(exchange.prompts) == 1 and exchange.prompt_is_list and not self._habits.lists:
            exchange = replace(exchange, prompt_is_list=False)
        if exchange.n == 1 and len(exchange.prompts) < 2:
            return self._inner.open(exchange)
        return self._open_many(exchange)

    @asynccontextmanager
    async def _open_many(self, exchange: Exchange) -> AsyncIterator[Events]:
        total = max(len(exchange.prompts), 1) * exchange.n
        exchange = replace(exchange, deadline=asyncio.get_running_loop().time() + self._total)
        async with AsyncExitStack() as first_call:
            events = await self._try_whole(first_call, exchange)
            if events is not None:
                answer = self._filled(exchange, first_call, events, _Told(total))
            else:
                events = await first_call.enter_async_context(self._inner.open(_single(exchange, 0)))
                answer = self._one_by_one(exchange, first_call, events, total)
            async with aclosing(answer):  # further calls are opened inside the iteration; leaving closes those too
                yield Singles(answer)

    async def _try_whole(self, stack: AsyncExitStack, exchange: Exchange) -> Events | None:
        """The events of one call for everything; None where the engine does not take that."""
        if not self._takes_whole(exchange):
            return None
        try:
            return await stack.enter_async_context(self._inner.open(exchange))
        except (UpstreamRejectedRequest, UpstreamError) as error:
            unsure = len(exchange.prompts) > 1 and self._habits.lists is None
            if unsure and error.code in MAY_MEAN_LIST:
                drop_tracebacks(error)
                return None
            raise

    def _takes_whole(self, exchange: Exchange) -> bool:
        lists_fit = len(exchange.prompts) < 2 or self._habits.lists is not False
        habits = self._habits
        choices_fit = exchange.n < 2 or (
            habits.choices is not False and (habits.streamed_choices or not exchange.stream)
        )
        # An engine that takes the list and ignores ``n`` numbers by prompt, one that does not by choice:
        # where its habit is not known, the numbers of such an answer would mean either.
        clear = len(exchange.prompts) < 2 or exchange.n < 2 or self._habits.choices is True
        return lists_fit and choices_fit and clear

    async def _filled(
        self, exchange: Exchange, first_call: AsyncExitStack, events: Events, told: _Told
    ) -> AsyncGenerator[Event, None]:
        async with aclosing(_cut_short(events, exchange)) as said:
            async for event in said:
                told.hear(event)
                if not isinstance(event, Usage):
                    yield event
        told.call_ended()
        await first_call.aclose()  # an engine that runs on past its stops must not hold up the other choices
        missing = told.missing()
        if missing:
            yield Begun("", notices=(f"filled_choices: {len(missing)}",))
        for index in missing:
            async for event in self._single_call(exchange, index, told):
                yield event
        if told.usage is not None:
            yield told.usage

    async def _one_by_one(
        self, exchange: Exchange, first_call: AsyncExitStack, events: Events, total: int
    ) -> AsyncGenerator[Event, None]:
        told = _Told(total)
        async with aclosing(_cut_short(events, exchange)) as said:
            async for event in said:
                told.hear(event)
                if isinstance(event, Begun):
                    yield replace(event, notices=(*event.notices, f"split_calls: {total}"))
                elif not isinstance(event, Usage):
                    yield event
        told.call_ended()
        await first_call.aclose()
        for index in range(1, total):
            async for event in self._single_call(exchange, index, told):
                yield event
        if told.usage is not None:
            yield told.usage

    async def _single_call(self, exchange: Exchange, index: int, told: _Told) -> AsyncGenerator[Event, None]:
        async with (
            self._inner.open(_single(exchange, index)) as events,
            aclosing(_cut_short(events, exchange)) as said,
        ):
            async for event in said:
                told.hear(event)
                if isinstance(event, Delta | Finish):
                    yield replace(event, index=index)
        told.call_ended()


class _Told:
    """Which choices have been heard of, and the sum of all counts."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._seen: set[int] = set()
        self._counts: list[Usage | None] = []
        self._count: Usage | None = None

    def hear(self, event: Event) -> None:
        if isinstance(event, Delta | Finish):
            self._seen.add(event.index)
        elif isinstance(event, Usage):
            self._count = event

    def call_ended(self) -> None:
        self._counts.append(self._count)
        self._count = None

    def missing(self) -> list[int]:
        return [index for index in range(self.total) if index not in self._seen]

    @property
    def usage(self) -> Usage | None:
        """The sum; None if a call gave no counts, because a part is no sum."""
        counts = [count for count in self._counts if count is not None]
        return reduce(_sum, counts) if counts and len(counts) == len(self._counts) else None


async def _cut_short(events: Events, exchange: Exchange) -> AsyncGenerator[Event, None]:
    """The events of one call as they come, as long as it has to go on.

    Ends the call as soon as every choice heard of has ended and one of them had to be cut at a stop: an engine that
    runs past a stop would go on for ever (row C19). What it never said is asked for again. Text is cut and held behind
    all this (``Watched``), in one place, so that none is lost with a call that breaks off, however it does.
    """
    stops = exchange.stops if exchange.stream and not exchange.params.get("echo") else ()
    cutter = Cutter(stops) if stops else None
    heard: set[int] = set()
    ended: set[int] = set()
    cut = False
    while batch := await events.next_batch():
        for event in batch:
            yield event
        if cutter is None:
            continue
        heard.update(event.index for event in batch if isinstance(event, Delta | Finish))
        for event in cutter.cut(batch):
            if isinstance(event, Finish):
                ended.add(event.index)
                cut = cut or event.source == "gateway"
        if cut and ended == heard:
            return


def _single(exchange: Exchange, index: int) -> Exchange:
    """The call for one choice; a seed is moved on for each further copy, or all would be alike."""
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
