"""Makes several upstream calls for one request, if an engine accepts no list of prompts or ignores ``n``.

Some engines answer 500 to a list of prompts, and some ignore ``n`` without an error.
In both cases the client receives all choices in order, with a notice. The calls are made in sequence, so the answer
takes the sum of the times of all calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from gateway.core.errors import UpstreamError, UpstreamRejectedRequest, drop_tracebacks
from gateway.core.exchange import Backend, Events, Exchange, stops_to_cut
from gateway.policy.deliver.layer import Layer
from gateway.policy.deliver.shared_limits import with_deadline
from gateway.stream.batches import IteratorEvents
from metatemplate.answers.stops.stop_cutter import StopCutter
from metatemplate.values.events import Begun, Delta, Event, Finish, Usage, total_usage


@dataclass(frozen=True, slots=True)
class UpstreamCapabilities:
    """The input that the targets of a model accept in one call."""

    lists: bool | None
    """Whether the targets accept several prompts. None if unknown; then a list is tried first."""
    choices: bool | None
    """Whether the targets support ``n`` above 1. None if unknown; then missing choices are requested separately."""
    streamed_choices: bool = True
    """Whether the targets support ``n`` above 1 in a stream."""


LIST_REFUSALS = frozenset({UpstreamRejectedRequest.code, UpstreamError.code})
"""The codes of errors with which engines refuse a list: llama_cpp.server answers 500, transformers answers 400."""


class SplitCalls(Layer):
    """A backend that returns every requested choice, and makes as many upstream calls as necessary.

    This layer wraps ``Timeouts``, so the idle time is limited for each call. The total time is limited for all calls
    together.
    """

    def __init__(self, inner: Backend, capabilities: UpstreamCapabilities, total: float) -> None:
        """``total``: the time limit for all calls together, in seconds."""
        super().__init__(inner)
        self._capabilities = capabilities
        self._total = total

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the first call. If the request needs more calls, they are opened while the events are read."""
        if exchange.prompt_is_list and len(exchange.prompts) == 1 and not self._capabilities.lists:
            exchange = replace(exchange, prompt_is_list=False)
        if exchange.n == 1 and len(exchange.prompts) < 2:
            return self._inner.open(exchange)
        return self._open_many(exchange)

    @asynccontextmanager
    async def _open_many(self, exchange: Exchange) -> AsyncIterator[Events]:
        exchange = with_deadline(exchange, self._total)
        async with AsyncExitStack() as first_call:
            events = await self._open_whole(first_call, exchange)
            split = events is None
            if events is None:
                events = await first_call.enter_async_context(self._inner.open(_single(exchange, 0)))
            answer = self._all_choices(exchange, first_call, events, split=split)
            async with aclosing(answer):  # also closes calls that were opened during the iteration
                yield IteratorEvents(answer)

    async def _open_whole(self, stack: AsyncExitStack, exchange: Exchange) -> Events | None:
        """Return the events of one call for all choices, or None if the engine does not accept such a call."""
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
        # In an answer to a list with n, an engine that ignores n numbers the choices by prompt, and other engines
        # number them by choice. So the numbers are useful only if the engine is known to obey n.
        return len(exchange.prompts) < 2 or can.choices is True

    async def _all_choices(
        self, exchange: Exchange, first_call: AsyncExitStack, events: Events, *, split: bool
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the first call, then the events of one more call for each missing choice.

        ``split``: True if the first call requested only the first choice.
        """
        total, usages = max(len(exchange.prompts), 1) * exchange.n, list[Usage | None]()
        seen: set[int] = set()
        async with aclosing(_one_call(events, exchange, usages)) as answer:
            async for event in answer:
                if isinstance(event, Delta | Finish):
                    seen.add(event.index)
                if split and isinstance(event, Begun) and event.target:
                    event = replace(event, notices=(*event.notices, f"split_calls: {total}"))
                yield event
        await first_call.aclose()  # an engine that ignores stops must not delay the other choices
        missing = range(1, total) if split else [index for index in range(total) if index not in seen]
        if missing and not split:
            yield Begun("", notices=(f"filled_choices: {len(missing)}",))
        for index in missing:
            async with (
                self._inner.open(_single(exchange, index)) as events,
                aclosing(_one_call(events, exchange, usages)) as answer,
            ):
                async for event in answer:
                    if isinstance(event, Delta | Finish):
                        yield replace(event, index=index)
        if (usage := usages[0] if len(usages) == 1 else total_usage(usages)) is not None:
            yield usage


async def _one_call(events: Events, exchange: Exchange, usages: list[Usage | None]) -> AsyncGenerator[Event, None]:
    """Yield the events of one call, and stop early if the engine ignores a stop string (row C19).

    The token counts, or None, are appended to ``usages``.
    The events end when all choices seen so far have ended, and at least one of these choices reached a stop string.
    ``SplitCalls`` requests choices that have not appeared. ``ResponseStream`` cuts the text itself later.
    """
    stops, usage = stops_to_cut(exchange) if exchange.stream else (), None
    cutter = StopCutter(stops)
    while not cutter.is_cut_off and (batch := await events.next_batch()):
        for event in batch:
            if isinstance(event, Usage):
                usage = event
            else:
                yield event
        if stops:
            cutter.process(batch)
    usages.append(usage)


def _single(exchange: Exchange, index: int) -> Exchange:
    """Return the exchange for one choice. Each copy of a prompt gets another seed, so that the answers differ."""
    prompt, copy = divmod(index, exchange.n)
    params = exchange.params
    if copy and isinstance(params.get("seed"), int):
        params = {**params, "seed": params["seed"] + copy}
    prompts = exchange.prompts[prompt : prompt + 1]
    return replace(exchange, prompts=prompts, prompt_is_list=False, n=1, params=params)
