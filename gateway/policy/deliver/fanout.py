"""How many calls does one request need? One, if the engine takes lists and ``n``; else one for each choice.

Engines differ (``specs/clients.md`` 2.1): some answer 500 to a list of prompts, some ignore ``n``
and say nothing. The client gets all its choices either way, in order, and is told how.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from gateway.core.dialogue import NOTHING
from gateway.core.errors import UpstreamError, UpstreamRejectedRequest
from gateway.core.events import Begun, Delta, Event, Finish, Usage
from gateway.core.exchange import Backend, Exchange


@dataclass(frozen=True, slots=True)
class Habits:
    """What the targets of a model take in one call."""

    lists: bool | None
    """Several prompts; None: try, and fall back."""
    choices: bool | None
    """``n`` above one; None: try, and fill up."""


MAY_MEAN_LIST = frozenset({UpstreamRejectedRequest.code, UpstreamError.code})
"""How engines refuse a list of prompts: llama_cpp.server with a 500, transformers with a 400."""


class FanOut:
    """A backend that gives every choice, whatever the engine takes at once."""

    def __init__(self, inner: Backend, habits: Habits) -> None:
        self._inner = inner
        self._habits = habits

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[AsyncIterator[Event]]:
        """Opens the first call; further calls follow inside the iteration."""
        total = max(len(exchange.prompts), 1) * exchange.n
        if len(exchange.prompts) == 1 and not self._habits.lists:
            exchange = replace(exchange, prompt_is_list=False)
        async with AsyncExitStack() as stack:
            if total == 1:
                yield await stack.enter_async_context(self._inner.open(exchange))
                return
            events = await self._try_whole(stack, exchange)
            if events is not None:
                answer = self._filled(exchange, events, _Told(total))
            else:
                events = await stack.enter_async_context(self._inner.open(_single(exchange, 0)))
                answer = self._one_by_one(exchange, events, total)
            # Further calls are opened inside the iteration; leaving must close those too.
            yield await stack.enter_async_context(aclosing(answer))

    async def _try_whole(self, stack: AsyncExitStack, exchange: Exchange) -> AsyncIterator[Event] | None:
        """The events of one call for everything; None where the engine does not take that."""
        if not self._takes_whole(exchange):
            return None
        try:
            return await stack.enter_async_context(self._inner.open(exchange))
        except (UpstreamRejectedRequest, UpstreamError) as error:
            unsure = len(exchange.prompts) > 1 and self._habits.lists is None
            if unsure and error.code in MAY_MEAN_LIST:
                return None
            raise

    def _takes_whole(self, exchange: Exchange) -> bool:
        lists_fit = len(exchange.prompts) < 2 or self._habits.lists is not False
        choices_fit = exchange.n < 2 or self._habits.choices is not False
        # An engine that takes the list and ignores ``n`` numbers by prompt, one that does not by choice:
        # where its habit is not known, the numbers of such an answer would mean either.
        clear = len(exchange.prompts) < 2 or exchange.n < 2 or self._habits.choices is True
        return lists_fit and choices_fit and clear

    async def _filled(
        self, exchange: Exchange, events: AsyncIterator[Event], told: _Told
    ) -> AsyncGenerator[Event, None]:
        async for event in events:
            told.hear(event)
            if not isinstance(event, Usage):
                yield event
        missing = told.missing()
        if missing and not isinstance(events, _Nothing):
            yield Begun("", notices=(f"filled_choices: {len(missing)}",))
        for index in missing:
            async with self._inner.open(_single(exchange, index)) as more:
                async for event in more:
                    told.hear(event)
                    if isinstance(event, Delta | Finish):
                        yield replace(event, index=index)
        if told.usage is not None:
            yield told.usage

    async def _one_by_one(
        self, exchange: Exchange, events: AsyncIterator[Event], total: int
    ) -> AsyncGenerator[Event, None]:
        told = _Told(total)
        async for event in events:
            told.hear(event)
            if isinstance(event, Begun):
                yield replace(event, notices=(*event.notices, f"split_calls: {total}"))
            elif not isinstance(event, Usage):
                yield event
        async for event in self._filled(exchange, _Nothing(), told):
            yield event


class _Told:
    """Which choices have been heard of, and the sum of all counts."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._seen: set[int] = set()
        self.usage: Usage | None = None

    def hear(self, event: Event) -> None:
        if isinstance(event, Delta | Finish):
            self._seen.add(event.index)
        elif isinstance(event, Usage):
            self.usage = event if self.usage is None else _sum(self.usage, event)

    def missing(self) -> list[int]:
        return [index for index in range(self._total) if index not in self._seen]


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
    return Usage(one.prompt + other.prompt, one.completion + other.completion, source, NOTHING)


class _Nothing:
    """No events: every choice is still to be asked for."""

    def __aiter__(self) -> _Nothing:
        return self

    async def __anext__(self) -> Event:
        raise StopAsyncIteration
