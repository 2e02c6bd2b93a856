"""Checks a call against the limits of its key and of its model: rates, and concurrent calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gateway.config.snapshot import KeyLimits, KeySpec, LimitsPolicy, ModelSpec
from gateway.core.caller import Caller
from gateway.core.errors import RateLimitExceeded
from gateway.policy.access.call_queue import SHUTTING_DOWN, CallQueue, refusal
from gateway.policy.access.rates import Charge, RateBalance, RateStore
from gateway.telemetry.metrics import NumberSeries
from gateway.telemetry.record import Record
from metatemplate.values.words import counted

CHARACTERS_PER_TOKEN = 4
"""The number of characters that count as one token when the tokens of a call are estimated."""

Limits = KeyLimits | LimitsPolicy
NO_HEADERS: Mapping[str, str] = {}


class Permit:
    """The slots and charges of one admitted call. ``end`` releases them."""

    __slots__ = ("_key", "_limiter", "charges", "headers", "queue")

    def __init__(self, limiter: Limiter, key: str) -> None:
        """``key``: the name of the client's key if the key limits concurrent calls. Otherwise empty."""
        self._limiter = limiter
        self._key = key
        self.queue: CallQueue | None = None
        """The queue in which the call has a slot. None if the model does not limit concurrent calls."""
        self.charges: list[Charge] = []
        """The charges for the estimated tokens of the call."""
        self.headers = NO_HEADERS
        """The ``x-ratelimit-*`` headers of the response."""

    def end(self, record: Record | None = None) -> None:
        """Release the slots, and correct the estimated tokens. ``record``: None if the call did not run."""
        tokens = 0 if record is None else _used_tokens(record)
        if self.queue is not None:
            self.queue.leave()
        if self._key:
            self._limiter.running[self._key] -= 1
        if self.charges and tokens is not None:
            self._limiter.store.settle([replace(one, amount=tokens - one.amount) for one in self.charges])


class Concurrency:
    """The counts of running calls and the queues of a process. This state survives a reload."""

    def __init__(self, queue_length: Callable[[str, str], NumberSeries]) -> None:
        """``queue_length``: see ``CallQueue``."""
        self.queue_length = queue_length
        self.running: Counter[str] = Counter()
        """Name of a key → the number of its running calls, for keys that limit concurrent calls."""
        self.queues: dict[str, CallQueue] = {}
        """Model → the queue of the model."""
        self.draining = False
        """True: the process ends, and no call may wait for a slot any more."""


class Limiter:
    """Admits calls within the limits of one configuration."""

    def __init__(
        self, models: Mapping[str, ModelSpec], keys: Sequence[KeySpec], store: RateStore, concurrency: Concurrency
    ) -> None:
        self.store = store
        self.running = concurrency.running
        self._concurrency = concurrency
        self._models = frozenset(name for name, model in models.items() if model.policy.limits != LimitsPolicy())
        self._key_limits = {key.name: key.limits for key in keys if key.limits != KeyLimits()}
        self._limited = {
            name: limits for name, model in models.items() if (limits := model.policy.limits).concurrency is not None
        }

    def activate(self) -> None:
        """Apply the limits of concurrent calls. Call when the configuration becomes active."""
        for name, limits in self._limited.items():
            queue = self._concurrency.queues.setdefault(name, CallQueue(name, self._concurrency.queue_length))
            queue.limit(limits.concurrency or 0, limits.queue_wait, limits.queue_size)

    def drain(self) -> None:
        """Refuse the calls that wait for a slot or will wait, also those of older configurations."""
        self._concurrency.draining = True
        for queue in self._concurrency.queues.values():
            queue.drain()

    def is_limited(self, caller: Caller, model: str) -> bool:
        """Return whether the client's key or the model has any limit."""
        return model in self._models or caller.key in self._key_limits

    async def admit(
        self, caller: Caller, model: ModelSpec, characters: int, max_tokens: int, waited: Callable[[float], None]
    ) -> Permit:
        """Admit a call, after waiting for a slot of the model if necessary.

        The tokens of the call are estimated from ``characters``, the length of the prompt, and ``max_tokens``, the
        maximum length of the answer. ``waited``: see ``CallQueue.enter``. Raises ``RateLimitExceeded``, or
        ``Overloaded`` if the queue refuses the call.
        """
        limits, name = model.policy.limits, caller.key
        key_limits = self._key_limits.get(name, KeyLimits())
        concurrency = key_limits.concurrency
        if concurrency is not None and self.running[name] >= concurrency:
            raise RateLimitExceeded(
                f"key {name} already has {concurrency} concurrent calls, the maximum (limits.concurrency in the key "
                "file); retry later",
                retry_after=1.0,
            )
        permit = Permit(self, name if concurrency is not None else "")
        if concurrency is not None:
            self.running[name] += 1
        try:
            estimate = characters / CHARACTERS_PER_TOKEN + max_tokens
            owners = ((f"key/{name}", key_limits), (f"model/{model.name}", limits))
            requests, tokens = _charges(owners, "requests", 1.0), _charges(owners, "tokens", estimate)
            if charges := requests + tokens:
                balances = await self.store.take(charges)
                if balances is not None:
                    permit.headers = _headers(charges, balances)
                    _refuse(charges, balances, permit.headers)
                    permit.charges = tokens
            if self._concurrency.draining:
                raise refusal("draining", SHUTTING_DOWN)
            if model.name in self._limited:
                queue = self._concurrency.queues[model.name]
                await queue.enter(name, waited)
                permit.queue = queue
        except BaseException:
            permit.end()
            raise
        return permit


def _used_tokens(record: Record) -> int | None:
    """Return the tokens that a finished call has used; None if the number is unknown, so that the estimate stays."""
    if record.prompt_tokens is None and record.completion_tokens is None:
        return None if record.outcome == "ok" or record.upstream_first is not None else 0
    return (record.prompt_tokens or 0) + (record.completion_tokens or 0)


def _charges(owners: Sequence[tuple[str, Limits]], what: str, amount: float) -> list[Charge]:
    """Return the charges of a call: one for the bucket of its key, and one for the bucket of its model, if limited."""
    return [
        Charge(bucket=f"{owner}/{what}", per_minute=limit, amount=min(amount, limit))
        for owner, limits in owners
        if (limit := getattr(limits, f"{what}_per_minute")) is not None
    ]


def _refuse(charges: list[Charge], balances: list[RateBalance], headers: Mapping[str, str]) -> None:
    """Raise ``RateLimitExceeded`` if a bucket has too little left for its charge.

    If this is so for several buckets, the error names the bucket with the longest wait.
    """
    charge, balance = max(zip(charges, balances, strict=True), key=lambda pair: pair[1].wait)
    if not balance.wait:
        return
    owner, _, rest = charge.bucket.partition("/")
    name, _, what = rest.rpartition("/")  # a model's name may have slashes
    where = "the key file" if owner == "key" else "the model's policy"
    rate = counted(charge.per_minute, what.removesuffix("s"))
    error = RateLimitExceeded(
        f"{owner} {name} may use {rate} per minute (limits.{what}_per_minute in {where}); "
        f"retry in {math.ceil(balance.wait)} s",
        retry_after=math.ceil(balance.wait),
    )
    error.headers = headers
    raise error


def _headers(charges: list[Charge], balances: list[RateBalance]) -> Mapping[str, str]:
    """Return OpenAI's rate limit headers.

    If the key and the model both have a limit, the headers show the limit with the smaller remaining share.
    """
    headers: dict[str, str] = {}
    for what in ("requests", "tokens"):
        pairs = [pair for pair in zip(charges, balances, strict=True) if pair[0].bucket.endswith(what)]
        if not pairs:
            continue
        charge, balance = min(pairs, key=lambda pair: pair[1].remaining / pair[0].per_minute)
        reset = (charge.per_minute - balance.remaining) * 60 / charge.per_minute
        headers[f"x-ratelimit-limit-{what}"] = str(charge.per_minute)
        headers[f"x-ratelimit-remaining-{what}"] = str(max(0, math.floor(balance.remaining)))
        headers[f"x-ratelimit-reset-{what}"] = f"{reset:.3f}s"
    return headers
