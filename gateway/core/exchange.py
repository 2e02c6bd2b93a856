"""What is asked of one backend: the effective request, after template and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Any, Literal, Protocol, get_args

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.events import Event
from gateway.core.frozen import dataclass
from gateway.core.prompt import Bos
from gateway.core.text_splice import TextSplice

Endpoint = Literal["chat", "completions", "embeddings"]
ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)

RawPrompt = str | tuple[int, ...]
"""One prompt of ``/v1/completions``: a string, or token ids that pass untouched."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to one model, in OpenAI's parameter names.

    ``prompts`` is set for text targets, ``messages`` for message targets,
    ``params["input"]`` carries an embeddings request.
    Choices are numbered prompt-major: prompt i, copy j has index ``i * n + j``.
    """

    endpoint: Endpoint
    request_id: str
    prompts: tuple[RawPrompt, ...] = ()
    prompt_is_list: bool = False
    """The client sent a list of prompts, even if it holds one."""
    messages: tuple[Mapping[str, Any], ...] = ()
    params: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Everything else that goes into the body (``temperature``, ``seed``, ``logprobs`` …),
    in OpenAI's names for ``endpoint``; never ``model``, ``messages``, ``prompt``, ``n``, ``stop``,
    ``stream``, ``stream_options``."""
    n: int = 1
    stops: tuple[str, ...] = ()
    """The template's stops first, then the client's own."""
    stop_token_ids: tuple[int, ...] = ()
    stream: bool = False
    """Ask the upstream for a stream; the events are the same either way."""
    stream_options: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The client's, without ``include_usage``: the gateway always asks for counts."""
    bos: Bos = "none"
    bos_text: str = ""
    keep_special: bool = False
    """Special tokens are to stay in the text, because something here reads them."""
    deadline: float | None = None
    """Loop time at which everything must be over; None: the policy's total from when it is opened."""


class Events(Protocol):
    """The events of one answer, in the batches in which they arrive."""

    @property
    def exhausted(self) -> bool:
        """True: nothing more will come, the next ``next_batch()`` would be empty, and to leave takes no time.
        False says nothing: ask.

        Spares whoever looks at it a call for nothing; it changes with ``next_batch()`` only.
        """
        ...

    async def next_batch(self) -> Sequence[Event]:
        """The events that have come together, in order; empty once the answer is over, and ever after.

        Raises a ``GatewayError``, never a foreign exception; what came before a failure is handed out first.
        A batch is only read by whoever gets it: layers may pass on the one they got.
        """
        ...

    async def forward_text(self, passage: TextSplice) -> None:
        """Let text pass without waking the caller, as long as the passage lets it.

        Ends with the first thing that does not pass, which is then there for ``next_batch``; ends at once where
        there is no such short way. Raises only if it is cancelled: whatever went wrong is told by ``next_batch``.
        """
        ...


class Backend(Protocol):
    """A door to a model, or a backend around a backend."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the exchange; leaving by any road releases the upstream at once.

        Raises a ``GatewayError`` on entry, never a foreign exception.
        """
        ...
