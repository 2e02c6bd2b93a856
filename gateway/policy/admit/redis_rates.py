"""Token buckets in Redis or Valkey, which several gateways share. Imported only if ``store.url`` is configured.

One script takes from all buckets of a call in one step, with the server's clock. While the server fails, the buckets of
this process limit the calls, or calls are refused. So a client cannot avoid its limit by making the server slow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from gateway.backend.redis_server import RedisServer, StoreUnavailable
from gateway.config.snapshot import StoreSpec
from gateway.core.errors import Overloaded
from gateway.policy.admit.rates import MINUTE, Balance, Charge, MemoryRates

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
        """``observe_failure``: called for each request to the Redis server that failed or was not sent."""
        self._on_failure = spec.on_failure
        self._observe_failure = observe_failure
        meanwhile = "each process counts separately" if spec.on_failure == "allow" else "limited calls are refused"
        self._server = RedisServer(spec, "the store of the rate limits", meanwhile, clock)
        self._script = self._server.redis.register_script(TAKE)
        self._local = MemoryRates(clock)
        """The buckets that are used while the server does not answer."""
        self._settling: set[asyncio.Task[None]] = set()

    async def take(self, charges: Sequence[Charge]) -> list[Balance] | None:
        """Take all charges, or none. See ``RateStore.take``."""
        answer = await self._run(charges, force=False)
        if answer is None:
            if self._on_failure == "refuse":
                raise Overloaded("the store of the rate limits does not answer (store.on_failure: refuse); retry later")
            return self._local.take_now(charges)
        return [
            Balance(float(content), float(missing) * MINUTE / charge.per_minute)
            for (content, missing), charge in zip(answer, charges, strict=True)
        ]

    def settle(self, charges: Sequence[Charge]) -> None:
        """Correct the buckets by the given amounts. See ``RateStore.settle``."""
        task = asyncio.get_running_loop().create_task(self._settle(charges))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, charges: Sequence[Charge]) -> None:
        if await self._run(charges, force=True) is None:
            self._local.settle(charges)

    async def aclose(self) -> None:
        """Finish the corrections that are running, and close the connections."""
        await asyncio.gather(*self._settling)
        await self._server.aclose()

    async def _run(self, charges: Sequence[Charge], *, force: bool) -> Any:
        """Run the script and return its answer. None if the server does not answer."""
        arguments: list[str | float] = ["1" if force else "0"]
        for charge in charges:
            arguments += [charge.per_minute, charge.amount]
        keys = [PREFIX + charge.bucket for charge in charges]
        try:
            return await self._server.run(lambda: self._script(keys=keys, args=arguments))
        except StoreUnavailable:
            self._observe_failure()
            return None
