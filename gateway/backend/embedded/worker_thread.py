"""What does a call bring to the engine, once its parameters are read and its prompts are tokens?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gateway.backend.embedded.params import Ask
from gateway.core.errors import GatewayError
from gateway.core.events import Event


@dataclass(frozen=True, slots=True)
class Reading:
    """One prompt as the model reads it."""

    tokens: tuple[int, ...]
    text: str | None
    """The prompt as the client wrote it; None when it came as token ids."""
    unseen: int = 0
    """How many leading tokens the tokenizer added (BOS); an echo does not show them."""


@dataclass(frozen=True, slots=True)
class Work:
    """One call: every prompt, ``n`` times."""

    ask: Ask
    readings: tuple[Reading, ...]
    n: int = 1
    stops: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    token_delay: float = 0.0
    """Seconds to wait before each token; a demonstration and testing aid."""


News = Event | GatewayError | None
"""An event of the call; an error that ends it; or None, its regular end."""

Deliver = Callable[[Sequence[News]], None]
"""Takes news in the engine's thread. Raises RuntimeError when nobody can receive them any more."""


@dataclass(eq=False, slots=True)
class Call:
    """A call inside the engine; ``gone`` is set from outside and read before each step."""

    work: Work
    deliver: Deliver
    gone: bool = False
    left: int = 0
    """Choices that are not finished yet."""
    completion_tokens: int = field(default=0)
