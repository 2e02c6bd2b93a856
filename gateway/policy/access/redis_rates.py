"""Token buckets in Redis or Valkey, which several gateways share. Imported only if ``store.url`` is configured.

One script takes from all buckets of all waiting calls in one step, with the server's clock. A call never opens a
connection, and waits for at most two commands.

While the server does not answer, each process has a share of the last known content of a bucket, or calls are refused.
So a client cannot avoid its limit by making the gateway or the server slow.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from gateway.config.snapshot import StoreSpec
from gateway.core.errors import Overloaded
from gateway.policy.access.rates import MINUTE, Charge, MemoryRates, RateBalance
from gateway.storage.redis_server import RedisServer, StoreUnavailable

PREFIX = "meta-gateway:rate:"
PROCESSES = PREFIX + "processes"
"""The key of the processes that use the server: identifier → the server's time of its last command."""
REFRESH = 10.0
"""Seconds between two commands of a process that has no calls."""

TAKE = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 30)
redis.call('EXPIRE', KEYS[1], 60)

local function take(first, force, charges)
  local contents, fits = {}, true
  for i, charge in ipairs(charges) do
    local full, amount = charge[1], charge[2]
    local held = redis.call('HMGET', KEYS[first + i], 'content', 'at')
    local content = full
    if held[1] then content = math.min(full, tonumber(held[1]) + (now - tonumber(held[2])) * full / 60) end
    contents[i] = content
    if content < amount then fits = false end
  end
  local balances = {}
  for i, charge in ipairs(charges) do
    local key, full, amount = KEYS[first + i], charge[1], charge[2]
    local content, missing = contents[i], 0
    if fits or force then
      content = math.min(full, content - amount)
      redis.call('HSET', key, 'content', string.format('%.6f', content), 'at', string.format('%.6f', now))
      redis.call('EXPIRE', key, 60 + math.ceil(60 * math.max(0, full - content) / full))
    else
      missing = math.max(0, amount - content)
    end
    balances[i] = {string.format('%.6f', content), string.format('%.6f', missing)}
  end
  return balances
end

local answers, first = {}, 1
for i, call in ipairs(cjson.decode(ARGV[2])) do
  answers[i] = take(first, call[1], call[2])
  first = first + #call[2]
end
return {redis.call('ZCARD', KEYS[1]), answers}
"""


@dataclass(frozen=True, slots=True)
class PendingTake:
    """The charges of a call or of its settlement, and the future for its balances."""

    charges: Sequence[Charge]
    force: bool
    """Whether the charges are taken even if too little is left."""
    balances: asyncio.Future[list[RateBalance] | None]


class RedisRates:
    """The buckets in one Redis server."""

    def __init__(
        self,
        spec: StoreSpec,
        observe: Callable[[str], None] = lambda result: None,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``observe``: called with the result of each call, or settlement, that was decided without the server.

        ``workers``: the number of processes of this gateway.
        """
        self._on_failure = spec.on_failure
        self._observe = observe
        meanwhile = "each process uses its share" if spec.on_failure == "allow" else "limited calls are refused"
        self._server = RedisServer(spec, "the store of the rate limits", meanwhile, clock)
        self._script = self._server.redis.register_script(TAKE)
        self._name = uuid4().hex
        self._workers = workers
        self._processes = workers
        """The number of processes that use the server, at least those of this gateway."""
        self._local = MemoryRates(clock)
        """This process's share of each bucket. Used while the server does not answer."""
        self._pending: list[PendingTake] = []
        """The calls for the next command. Only one command is sent at a time."""
        self._sender: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()

    async def take(self, charges: Sequence[Charge]) -> list[RateBalance] | None:
        """Take all charges, or none. See ``RateStore.take``."""
        balances = await self._ask(charges, force=False)
        if balances is not None:
            return balances
        if self._on_failure == "refuse":
            self._observe("refused")
            raise Overloaded("the store of the rate limits does not answer (store.on_failure: refuse); retry later")
        balances = self._local.take_now(self._shares(charges))
        self._observe("limited" if any(balance.wait for balance in balances) else "allowed")
        return balances

    def settle(self, charges: Sequence[Charge]) -> None:
        """Correct the buckets by the given amounts. See ``RateStore.settle``."""
        task = asyncio.get_running_loop().create_task(self._settle(charges))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, charges: Sequence[Charge]) -> None:
        if await self._ask(charges, force=True) is None:
            self._observe("settled")
            self._local.settle(self._shares(charges))

    async def keep_open(self) -> None:
        """Open the connection, and keep this process among those that the server counts. Runs until cancelled."""
        while True:
            await self._queue((), force=False)
            await asyncio.sleep(REFRESH)

    async def aclose(self) -> None:
        """Finish the corrections that are running, and close the connections."""
        await asyncio.gather(*self._settling)
        if self._sender is not None:
            await self._sender
        await self._server.aclose()

    def _shares(self, charges: Sequence[Charge]) -> list[Charge]:
        """Return the charges for the buckets of this process. A share is at least 1, so that calls can pass."""
        shares = [max(1, charge.per_minute // self._processes) for charge in charges]
        return [
            replace(charge, per_minute=share, amount=min(charge.amount, share))
            for charge, share in zip(charges, shares, strict=True)
        ]

    async def _ask(self, charges: Sequence[Charge], *, force: bool) -> list[RateBalance] | None:
        """Return the balances after the charges. None if the server does not answer."""
        if not self._server.is_failing:
            return await self._queue(charges, force=force)
        if not self._pending:
            self._queue((), force=False)  # asks whether the server answers again; the call does not wait for it
        return None

    def _queue(self, charges: Sequence[Charge], *, force: bool) -> asyncio.Future[list[RateBalance] | None]:
        loop = asyncio.get_running_loop()
        pending = PendingTake(charges, force, loop.create_future())
        self._pending.append(pending)
        if self._sender is None or self._sender.done():
            self._sender = loop.create_task(self._send())
        return pending.balances

    async def _send(self) -> None:
        """Send commands until no call waits."""
        while self._pending:
            batch, self._pending = self._pending, []
            answers: list[list[RateBalance] | None] = [None] * len(batch)
            try:
                answers = await self._run(batch)
            except StoreUnavailable:
                pass
            finally:
                for one, balances in zip(batch, answers, strict=True):
                    if not one.balances.done():  # it is done if the client has left
                        one.balances.set_result(balances)

    async def _run(self, batch: Sequence[PendingTake]) -> list[list[RateBalance] | None]:
        """Run the script for the calls of ``batch``, and return their balances. Raises ``StoreUnavailable``."""
        keys = [PROCESSES, *[PREFIX + charge.bucket for one in batch for charge in one.charges]]
        calls = [[one.force, [[charge.per_minute, charge.amount] for charge in one.charges]] for one in batch]
        arguments = [self._name, json.dumps(calls)]
        processes, answers = await self._server.run(lambda: self._script(keys=keys, args=arguments))
        self._processes = max(processes, self._workers)
        return [self._balances(one.charges, answer) for one, answer in zip(batch, answers, strict=True)]

    def _balances(self, charges: Sequence[Charge], answer: Any) -> list[RateBalance]:
        balances = []
        for charge, share, (content, missing) in zip(charges, self._shares(charges), answer, strict=True):
            balance = RateBalance(float(content), float(missing) * MINUTE / charge.per_minute)
            self._local.lower(share, balance.remaining / self._processes)
            balances.append(balance)
        return balances
