"""Load balancing: the order in which a call tries the targets of its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from gateway.core.exchange import Backend


@dataclass(frozen=True, slots=True)
class Replica:
    """One target of a model."""

    label: str
    """The target's label from the configuration, such as ``my-model/0``."""
    backend: Backend


class RoundRobin:
    """Each call starts with the next replica. After a reload the first call starts with the first replica."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._orders = cycle([(*replicas[start:], *replicas[:start]) for start in range(len(replicas))])

    def order(self) -> tuple[Replica, ...]:
        """The replicas in the order in which one call tries them."""
        return next(self._orders)
