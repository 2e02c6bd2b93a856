"""The record of a call, from which its metrics, its log line and its recording are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metatemplate.values.dialogue import EMPTY_MAPPING


@dataclass(slots=True)
class Record:
    """One call. Times are seconds; names come from the configuration, never from the client.

    ``CallTimeline`` writes the record while the call runs. The record of a finished call is not changed.
    """

    request_id: str
    endpoint: str
    model: str
    """The configured name of the model, or ``unknown``."""
    outcome: str
    """``ok``, ``client_gone``, ``client_stalled``, ``cancelled``, or the ``code`` of the error that ended the call."""
    status: int
    """The HTTP status; 499 when the client disconnected or stalled."""
    stream: bool
    """True: the client requested a stream."""
    duration: float
    template: str = ""
    kind: str = ""
    target: str = ""
    upstream_stream: bool = False
    """True: the gateway requested a stream from the target."""
    attempts: int = 0
    failed_attempts: tuple[str, ...] = ()
    """``target=code`` for each attempt that failed before its answer."""
    refusal: str = ""
    """The message of the error, if the gateway itself refused the request."""
    error: str = ""
    """The message of the error that ended the call, as the client received it. It may contain texts of the client."""
    key: str = ""
    """The name of the client's key; empty without a valid key."""
    cache: str = ""
    """The result of the look-up in the cache, as in ``AttemptLog``; empty if the policy has no cache."""
    misspelled: tuple[str, ...] = ()
    """The notices about request fields that probably have a misspelled name."""
    trace: Mapping[str, str] = EMPTY_MAPPING
    """The headers ``traceparent`` and ``tracestate`` of the call's upstream requests; empty without a trace."""
    path: str = ""
    """The path of a request that no endpoint of ``ENDPOINTS`` serves; otherwise empty."""
    admission: float | None = None
    """Time from the arrival of the request's head to the end of parsing."""
    queue_wait: float | None = None
    """Time in the queue of the model; None if the call did not reach a queue."""
    render: float | None = None
    upstream_first: float | None = None
    """Time from opening the first backend to the first content."""
    upstream: float | None = None
    """Time from opening the first backend to the end of the last one, or in the cache. It includes ``client_wait``.

    Of an answer from the cache, it is the time of the look-up, or the wait for the answer to an equal request.
    """
    client_wait: float = 0.0
    """Time in which a stream waited until the client had read enough."""
    overhead: float = 0.0
    """Time in the gateway itself: ``duration`` without ``queue_wait`` and ``upstream``."""
    first_token: float | None = None
    """Time from the request's head to the first content written to the client; streams only."""
    gaps: tuple[float, ...] = ()
    """Times between consecutive content events of a stream."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_source: str = ""
    stop_cuts: tuple[str, ...] = ()
    """For each choice that finished with ``stop``: ``gateway`` if the gateway cut the text, otherwise ``engine``."""
    answers_cut: tuple[str, ...] = ()
    """The reason for each choice that is empty or cut off, or may be cut off: see ``calls/answer/cut_answers.py``."""
    template_notices: tuple[str, ...] = ()
    """The ``rule`` of each notice of the template."""
    markers: tuple[tuple[str, int], ...] = ()
    """The markers in the request's texts, as (action of the policy, number of markers)."""
    bos_anomaly: bool = False
    gone_phase: str = ""
    """When the client left: ``before_first``, ``mid_stream`` or ``stalled``; empty if the client did not leave."""
    tool_parse_failures: Mapping[str, int] = EMPTY_MAPPING
    """Tool call format → number of texts that began like a call in this format, and were sent as text."""

    @property
    def trace_id(self) -> str:
        """The id of the trace to which the call belongs, 32 hexadecimal digits; empty if it belongs to no trace."""
        return self.trace["traceparent"][3:35] if self.trace else ""
