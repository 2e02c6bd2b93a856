"""The request to one backend, after template and policy, and the protocols ``Backend`` and ``Events``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Any, Literal, Protocol, get_args

from gateway.core.caller import ANONYMOUS, Caller
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Begun, Delta, Document, Event, Finish
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Bos, Prompt

EndpointName = Literal["chat", "completions", "embeddings"]
ENDPOINT_NAMES: tuple[EndpointName, ...] = get_args(EndpointName)

RawPrompt = str | tuple[int, ...]
"""One prompt of ``/v1/completions``: a string, or token ids, which are sent unchanged."""


class RetryAllowance(Protocol):
    """Limits the retries of a model to a share of its calls."""

    def take(self) -> bool:
        """Count a retry if it is allowed. Returns False if the call must fail without a retry."""


@dataclass(eq=False, slots=True)
class AttemptLog:
    """The upstream attempts of one call, including retries, attempts at other targets and parts of a split call."""

    count: int = 0
    retries: int = 0
    """The number of attempts that repeated a failed attempt, also at a fallback model."""
    stale: int = 0
    """The number of attempts that repeated a request on a stale connection. ``delivery.retry.attempts`` does not limit
    these attempts."""
    retry_budget: RetryAllowance | None = None
    """The retry budget of the first model that was tried. Retries at fallback models use this budget too."""
    target: str = ""
    """The label of the target of the latest attempt; empty before the first attempt."""
    open: int = 0
    """The number of attempts that have neither failed nor begun to answer."""
    cache: str = ""
    """``hit`` if the cache had every answer of the call, else ``miss``, ``bypass`` or ``error``.

    Empty: the policy has no cache."""
    cache_age: float = 0.0
    """The age of the oldest answer that came from the cache, in seconds."""
    recorded: list[RecordedExchange] | None = None
    """The exchanges of the call with their events; None if the call is not recorded."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """The target's label and the error code of each failed attempt."""

    def begin(self, target: str, *, retry: bool = False) -> None:
        """Count an attempt. Call this before the target is opened."""
        self.count += 1
        self.open += 1
        self.retries += retry
        self.target = target

    def answered(self) -> None:
        """Note that the answer of an attempt has begun."""
        self.open -= 1

    def failed(self, target: str, code: str) -> None:
        """Note that an attempt has failed before its answer began."""
        self.open -= 1
        self.failures.append((target, code))

    def looked_up(self, result: str, age: float) -> None:
        """Note the result of a look-up in the cache. ``age``: the age of a found answer in seconds."""
        if self.cache in ("", "hit"):
            self.cache = result
        self.cache_age = max(self.cache_age, age)

    def failed_attempts(self) -> list[str]:
        """Return a text ``target=code`` for each attempt that failed before its answer began, in order."""
        return [f"{target}={code}" for target, code in self.failures]


NO_ATTEMPTS = AttemptLog()
"""The log of a call before its first exchange. It is never changed."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The JSON that an answer must be, if the client requested structured output or forces a tool call."""

    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer. None: any JSON object (``json_object``)."""
    name: str = ""
    """The client's name for the schema. Empty for ``json_object``."""
    param: str = "response_format"
    """The client's field that contains the schema: ``response_format``, ``text.format`` or ``tools``."""
    reasoning: Thinking | None = None
    """The markers of the reasoning that the model writes before its answer. None: the answer begins at once."""
    call_key: str = ""
    """The key of the arguments, if the answer is one tool call as JSON. Empty: the answer is content."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to one model, in OpenAI's parameter names.

    ``prompts`` is set for text targets, ``messages`` for message targets, ``params["input"]`` for embeddings.
    Copy j of prompt i has the choice index ``i * n + j``.
    """

    endpoint: EndpointName
    request_id: str
    prompts: tuple[RawPrompt, ...] = ()
    prompt_is_list: bool = False
    """True: the client sent a list of prompts, even if the list has only one prompt."""
    messages: tuple[Mapping[str, Any], ...] = ()
    params: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """All other fields of the body (``temperature``, ``seed``, ``logprobs`` …) in OpenAI's names for ``endpoint``;
    never ``model``, ``messages``, ``prompt``, ``n``, ``stop``, ``stream``, ``stream_options``."""
    n: int = 1
    stops: tuple[str, ...] = ()
    """Stop strings: first the template's, then the client's."""
    stop_token_ids: tuple[int, ...] = ()
    answer_format: AnswerFormat | None = None
    """The format to which a text target must constrain its answer, made from ``params["response_format"]`` or from the
    tools of a forced call. None: any text. Message targets get the client's fields themselves."""
    checked_format: AnswerFormat | None = None
    """The format in which the gateway only checks the answer. No backend sends it: it is here for the cache key, so
    that a stored answer is in this format."""
    stream: bool = False
    """True: the target is asked for a stream. The events are the same with and without a stream."""
    stream_options: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The client's options without ``include_usage``, because the gateway always requests token counts."""
    bos: Bos = "none"
    bos_text: str = ""
    keep_special: bool = False
    """True: the engine must leave special tokens in the text, because the output parser needs these tokens."""
    caller: Caller = ANONYMOUS
    """Calls of one session use the same target under ``balance: sticky``. Each key has cached answers of its own."""
    repeat: int = 0
    """The client's ``gateway.repeat``; the cache has one answer for each value."""
    rendered: Prompt | None = field(default=None, compare=False, repr=False)
    """The template's prompt, whose segments are recorded. None: no template has rendered the prompt."""
    deadline: float | None = None
    """The event loop time at which the call must end. None: the policy's total timeout starts at ``Backend.open``."""
    total: float | None = None
    """The total timeout in seconds from which ``deadline`` was computed. None: that of the model's policy."""
    max_attempts: int | None = None
    """The maximum number of attempts at this model, for a call that has fallback models. None: that of the policy."""
    attempts: AttemptLog = field(default_factory=AttemptLog, compare=False, repr=False)
    """The attempts of the call. Copies of this exchange made by ``dataclasses.replace`` share the same log."""


def text_of_ids(exchange: Exchange) -> str | None:
    """Return the rendered text of a prompt that is sent as token ids. None: no such prompt is sent."""
    rendered, prompts = exchange.rendered, exchange.prompts
    return None if rendered is None or not prompts or isinstance(prompts[0], str) else rendered.text


def stops_to_cut(exchange: Exchange) -> tuple[str, ...]:
    """Return the stop strings at which the gateway cuts the text of an exchange.

    Empty with ``echo``: the echoed prompt may contain a stop, and not every engine shows where the prompt ends.
    """
    return () if exchange.params.get("echo") else exchange.stops


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """One exchange of a recorded call, with its events."""

    exchange: Exchange
    time: float
    """The time at which the exchange was opened, in seconds since the epoch."""
    moments: list[tuple[float, Event]]
    """The events so far, each with the seconds since the exchange was opened."""
    delivered: list[Event] = field(default_factory=list)
    """The events of the answer as the client receives them: cut at stops, with tools and reasoning parsed."""


def is_answer(events: Sequence[Event], exchange: Exchange) -> bool:
    """Return whether the events are a complete answer to the request, and name the target that made it."""
    if not any(isinstance(event, Begun) and event.target for event in events):
        return False
    ended = {event.index for event in events if isinstance(event, Finish)}
    begun = {event.index for event in events if isinstance(event, Delta)}
    documents = sum([isinstance(event, Document) for event in events])
    if exchange.endpoint == "embeddings":
        return documents == 1 and not ended and not begun
    choices = (len(exchange.prompts) or 1) * exchange.n
    return not documents and ended == set(range(choices)) and begun <= ended


class Events(Protocol):
    """The events of one answer, in batches as they arrive. See also ``core.text_splice.text_source``."""

    @property
    def exhausted(self) -> bool:
        """True: ``next_batch()`` would return no further events, and closing takes no time. False: not known.

        If True, the caller need not call ``next_batch()`` again. Only ``next_batch()`` changes the value.
        """

    async def next_batch(self) -> Sequence[Event]:
        """Wait for the next events and return them in order. Empty at the end of the answer, and on every later call.

        Raises only ``GatewayError``. Events that arrived before a failure are returned before the error is raised.
        Callers must not change the batch, because several layers may pass on the same object.
        """


class Backend(Protocol):
    """A model's server, or a delivery layer around another backend."""

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Start the exchange. Leaving the context releases the upstream connection at once.

        Entering the context raises only ``GatewayError``, never a foreign exception.
        """
