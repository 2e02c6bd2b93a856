"""Rates in Redis or Valkey, so that several gateways share them. Imported if ``store.url`` is configured.

One script takes from all buckets of a call in one step, with the server's clock. A failed or slow server never delays a
call by more than the configured timeout, and is not asked again for a second. Meanwhile calls are limited by buckets of
this process, or refused: otherwise a client could switch its limit off by making the server slow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError

from gateway.config.snapshot import StoreSpec
from gateway.core.errors import Overloaded
from gateway.policy.admit.rates import MINUTE, Balance, Charge, MemoryRates

LOG = logging.getLogger("gateway.store")

CONNECTIONS = 32
"""The most connections to the server; further calls wait for one, within the timeout."""
PAUSE = 1.0
"""Seconds for which a server that failed is not asked."""
PREFIX = "meta-gateway:rate:"

TAKE = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local force = ARGV[1] == '1'
local contents, fits = {}, true
for i, key in ipairs(KEYS) do
  local full, amount = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local held = redis.call('HMGET', key, 'content', 'at')
  local content = full
  if held[1] then content = math.min(full, tonumber(held[1]) + (now - tonumber(held[2])) * full / 60) end
  contents[i] = content
  if content < amount then fits = false end
end
local balances = {}
for i, key in ipairs(KEYS) do
  local full, amount = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
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
"""


class RedisRates:
    """The buckets in one Redis server."""

    def __init__(
        self,
        spec: StoreSpec,
        observe_failure: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``observe_failure`` is called for each request that failed or was not sent."""
        self._spec = spec
        self._observe_failure = observe_failure
        self._clock = clock
        password = spec.password.get_secret_value() if spec.password is not None else None
        pool = ConnectionPool.from_url(
            spec.url,
            max_connections=CONNECTIONS,
            password=password,
            socket_connect_timeout=spec.timeout,
            socket_timeout=spec.timeout,
        )
        self._redis = Redis.from_pool(pool)
        self._script = self._redis.register_script(TAKE)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        """Calls wait here for a connection: that is load of this process, and no failure of the server."""
        self._local = MemoryRates(clock)
        """The buckets while the server does not answer."""
        self._failed_until = 0.0
        self._failing = False
        self._settling: set[asyncio.Task[None]] = set()

    async def take(self, charges: Sequence[Charge]) -> list[Balance] | None:
        """See ``RateStore``."""
        answer = await self._run(charges, force=False)
        if answer is None:
            if self._spec.on_failure == "refuse":
                raise Overloaded("the store of the rate limits does not answer (store.on_failure: refuse); retry later")
            return self._local.take_now(charges)
        return [
            Balance(float(content), float(missing) * MINUTE / charge.per_minute)
            for (content, missing), charge in zip(answer, charges, strict=True)
        ]

    def settle(self, charges: Sequence[Charge]) -> None:
        """See ``RateStore``."""
        task = asyncio.get_running_loop().create_task(self._settle(charges))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, charges: Sequence[Charge]) -> None:
        if await self._run(charges, force=True) is None:
            self._local.settle(charges)

    async def aclose(self) -> None:
        """Close the connections, after the amounts are settled."""
        await asyncio.gather(*self._settling)
        await self._redis.aclose()

    async def _run(self, charges: Sequence[Charge], *, force: bool) -> Any:
        """The answer of the script; None: the server does not answer."""
        if self._clock() < self._failed_until:
            self._observe_failure()
            return None
        arguments: list[str | float] = ["1" if force else "0"]
        for charge in charges:
            arguments += [charge.per_minute, charge.amount]
        keys = [PREFIX + charge.bucket for charge in charges]
        try:
            async with self._slots, asyncio.timeout(self._spec.timeout):
                answer = await self._script(keys=keys, args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            self._failed(error)
            return None
        if self._failing:
            self._failing = False
            LOG.info("the store of the rate limits answers again")
        return answer

    def _failed(self, error: Exception) -> None:
        self._observe_failure()
        self._failed_until = self._clock() + PAUSE
        if not self._failing:
            self._failing = True
            what = "this process counts alone" if self._spec.on_failure == "allow" else "limited calls are refused"
            reason = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            LOG.error("the store of the rate limits (%s) fails: %s; %s", self._spec.url, reason, what)
