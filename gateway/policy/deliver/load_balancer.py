"""Load balancing: the order in which a call tries the targets of its model. One class per strategy."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from gateway.core.exchange import Backend, Exchange
from gateway.policy.deliver.circuit_breaker import CircuitBreaker

LOAD_FACTOR = 1.25
"""A sticky call uses the next target if its own has more than this multiple of the average number of calls."""

PREFIX = 512
"""Characters of a prompt that are compared."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One target of a model."""

    label: str
    """The target's label from the configuration, such as ``my-model/0``."""
    backend: Backend
    breaker: CircuitBreaker
    weight: int = 1


Order = tuple[Replica, ...]


class LoadBalancer(ABC):
    """The replicas of a model, and a strategy."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas: Order = tuple(replicas)

    def order(self, exchange: Exchange) -> Order:
        """The replicas in the order in which one call tries them: replicas that should be avoided come last."""
        if len(self.replicas) == 1:
            return self.replicas
        order = self.choose(exchange)
        avoided = [replica for replica in order if not replica.breaker.is_available]
        if not avoided or len(avoided) == len(order):
            return order
        return (*[replica for replica in order if replica not in avoided], *avoided)

    @abstractmethod
    def choose(self, exchange: Exchange) -> Order:
        """All replicas in the order of the strategy, without regard to their health."""


class RoundRobin(LoadBalancer):
    """Each call starts with the next replica. After a reload the first call starts with the first replica."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        super().__init__(replicas)
        self._orders = cycle([(*replicas[start:], *replicas[:start]) for start in range(len(replicas))])

    def choose(self, exchange: Exchange) -> Order:
        """See ``LoadBalancer``."""
        return next(self._orders)


class LeastBusy(RoundRobin):
    """Each call starts with the replica that has the fewest running calls of this process."""

    def choose(self, exchange: Exchange) -> Order:
        """See ``LoadBalancer``. Replicas with the same number of calls take turns."""
        return tuple(sorted(super().choose(exchange), key=lambda replica: replica.breaker.in_flight))


class Weighted(LoadBalancer):
    """Each replica is first as often as its weight says, evenly spread (nginx's smooth weighted round robin)."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        super().__init__(replicas)
        self._total = sum(replica.weight for replica in replicas)
        self._credit = [0] * len(replicas)

    def choose(self, exchange: Exchange) -> Order:
        """See ``LoadBalancer``."""
        credit = self._credit = [one + replica.weight for one, replica in zip(self._credit, self.replicas, strict=True)]
        positions = sorted(range(len(credit)), key=lambda position: -credit[position])
        credit[positions[0]] -= self._total
        return tuple([self.replicas[position] for position in positions])


class Sticky(LeastBusy):
    """Calls of the same session, or with the same beginning of the prompt, start with the same replica.

    The replica then has their prefix in its cache. The key of a call is its ``x-session-id``, else its
    ``prompt_cache_key``, else its ``user``, else the first ``PREFIX`` characters of its prompt (in a benchmark these
    characters are the shared few-shot examples). Rendezvous hashing: if a replica is added or removed, only its own
    calls move. A replica with more than its share of the running calls comes later (consistent hashing with bounded
    loads).
    """

    def choose(self, exchange: Exchange) -> Order:
        """See ``LoadBalancer``. A call without a key, such as one with token ids, goes to the least busy replica."""
        key = _sticky_key(exchange)
        if not key:
            return super().choose(exchange)
        order = sorted(self.replicas, key=lambda replica: _score(key, replica.label))
        running = sum(replica.breaker.in_flight for replica in order)
        bound = math.ceil(LOAD_FACTOR * (running + 1) / len(order))
        return tuple(sorted(order, key=lambda replica: replica.breaker.in_flight >= bound))


def _sticky_key(exchange: Exchange) -> str:
    named = exchange.session or exchange.params.get("prompt_cache_key") or exchange.params.get("user")
    if named:
        return f"named {named}"
    if exchange.messages:
        return str([(message.get("role"), message.get("content")) for message in exchange.messages])[:PREFIX]
    first = exchange.prompts[0] if exchange.prompts else exchange.params.get("input")
    return first[:PREFIX] if isinstance(first, str) else ""


def _score(key: str, label: str) -> bytes:
    return hashlib.blake2b(f"{label} {key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


BALANCERS: Mapping[str, type[LoadBalancer]] = {
    "round_robin": RoundRobin,
    "least_busy": LeastBusy,
    "weighted": Weighted,
    "sticky": Sticky,
}
"""The setting ``delivery.balance`` → the strategy."""
