"""Load balancing: chooses the order in which a call tries the targets of its model. Each strategy has one class."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.core.exchange import Backend, Exchange
from gateway.policy.deliver.targets.circuit_breaker import CircuitBreaker

LOAD_FACTOR = 1.25
"""The largest load of a target for sticky calls, as a multiple of the average number of running calls per target."""

PREFIX = 512
"""The number of characters at the beginning of a prompt that decide the target of a sticky call."""


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
    """The replicas of a model, and the strategy that orders them."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas: Order = tuple(replicas)

    def order(self, exchange: Exchange) -> Order:
        """Return the replicas in the order in which one call tries them. Replicas that calls avoid come last."""
        if len(self.replicas) == 1:
            return self.replicas
        available = [replica for replica in self.replicas if replica.breaker.is_available]
        if not available or len(available) == len(self.replicas):
            return self.choose(exchange, self.replicas)
        avoided = [replica for replica in self.replicas if replica not in available]
        return (*self.choose(exchange, available), *avoided)

    @abstractmethod
    def choose(self, exchange: Exchange, replicas: Sequence[Replica]) -> Order:
        """Return the given replicas in the order of the strategy. ``replicas``: all, or those that are not avoided."""


class Weighted(LoadBalancer):
    """Each replica comes first in proportion to its weight, evenly spread (nginx's smooth weighted round robin)."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        super().__init__(replicas)
        self._weights = {replica.label: replica.weight for replica in replicas}
        self._credit = dict.fromkeys(self._weights, 0)
        self._ordered = self.replicas
        """The replicas of the last call. The credits count for these, and begin at 0 with other replicas."""

    def choose(self, exchange: Exchange, replicas: Sequence[Replica]) -> Order:
        """Return the replicas in the order of their credit. See ``LoadBalancer.choose``."""
        given = tuple(replicas)
        if given != self._ordered:
            self._ordered, self._credit = given, dict.fromkeys(self._weights, 0)
        credit, total = self._credit, 0
        for replica in replicas:
            credit[replica.label] += self._weights[replica.label]
            total += self._weights[replica.label]
        order = sorted(replicas, key=lambda replica: -credit[replica.label])
        credit[order[0].label] -= total
        return tuple(order)


class RoundRobin(Weighted):
    """Each call starts with the next replica. After a reload the first call starts with the first replica."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        super().__init__(replicas)
        self._weights = dict.fromkeys(self._weights, 1)


class LeastBusy(RoundRobin):
    """Each call starts with the replica that has the fewest running calls of this process."""

    def choose(self, exchange: Exchange, replicas: Sequence[Replica]) -> Order:
        """Return the replicas, sorted by their number of running calls. Equally busy replicas take turns."""
        return tuple(sorted(super().choose(exchange, replicas), key=lambda replica: replica.breaker.in_flight))


class Sticky(LeastBusy):
    """Calls of the same session, or with the same beginning of the prompt, start with the same replica.

    This replica probably has the beginning of the prompt in its cache. The key of a call is its ``x-session-id``, else
    its ``prompt_cache_key``, else its ``user``, else the first ``PREFIX`` characters of its prompt. If a replica is
    added or removed, only the calls of this replica move (rendezvous hashing). A replica that has more than its share
    of the running calls comes later (consistent hashing with bounded loads).
    """

    def choose(self, exchange: Exchange, replicas: Sequence[Replica]) -> Order:
        """Return the replicas in the order for the call's key.

        A call without a key, such as one with a client's token ids, starts with the least busy replica.
        """
        key = _sticky_key(exchange)
        if not key:
            return super().choose(exchange, replicas)

        def score(replica: Replica) -> bytes:
            text = f"{replica.label} {key}".encode("utf-8", "surrogatepass")
            return hashlib.blake2b(text, digest_size=8).digest()

        order = sorted(replicas, key=score)
        running = sum(replica.breaker.in_flight for replica in order)
        bound = math.ceil(LOAD_FACTOR * (running + 1) / len(order))
        return tuple(sorted(order, key=lambda replica: replica.breaker.in_flight >= bound))


def _sticky_key(exchange: Exchange) -> str:
    named = exchange.caller.session or exchange.params.get("prompt_cache_key") or exchange.params.get("user")
    if named:
        return f"named {named}"
    if exchange.messages:
        return str([(message.get("role"), message.get("content")) for message in exchange.messages])[:PREFIX]
    first = exchange.prompts[0] if exchange.prompts else exchange.params.get("input")
    if not isinstance(first, str) and exchange.rendered is not None:
        first = exchange.rendered.text  # of a prompt that is sent as token ids
    return first[:PREFIX] if isinstance(first, str) else ""


BALANCERS: Mapping[str, type[LoadBalancer]] = {
    "round_robin": RoundRobin,
    "least_busy": LeastBusy,
    "weighted": Weighted,
    "sticky": Sticky,
}
"""Value of the setting ``delivery.balance`` → the strategy."""
