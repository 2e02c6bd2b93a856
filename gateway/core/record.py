"""The record of a finished call, from which its metrics and log line are made."""

from __future__ import annotations

from gateway.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One finished call. Times are seconds; names come from the configuration, never from the client."""

    request_id: str
    endpoint: str
    model: str
    """A configured name, or ``unknown``."""
    outcome: str
    """``ok``, ``client_gone``, ``client_stalled``, ``cancelled``, or the ``code`` of the error that ended the call."""
    status: int
    """The HTTP status; 499 when the client disconnected or stalled."""
    stream: bool
    """The client asked for a stream."""
    duration: float
    template: str = ""
    kind: str = ""
    target: str = ""
    upstream_stream: bool = False
    """The target was asked for a stream."""
    attempts: int = 0
    failed_attempts: tuple[str, ...] = ()
    """``target=code`` for each attempt that failed before its answer."""
    refusal: str = ""
    """The message of the error, if the gateway itself refused the request."""
    path: str = ""
    """The path of a request that has no endpoint."""
    admission: float | None = None
    """Time from the request's head to the parsed call."""
    render: float | None = None
    upstream_first: float | None = None
    """Time from opening the backend to the first content."""
    upstream: float | None = None
    """Time from opening the backend to the end of the answer."""
    first_token: float | None = None
    """Time from the request's head to the first content written to the client; streams only."""
    gaps: tuple[float, ...] = ()
    """Times between consecutive content events of a stream."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_source: str = ""
    stop_cuts: tuple[str, ...] = ()
    """Who ended each choice that finished with ``stop``: ``gateway`` or ``engine``."""
    answers_cut: tuple[str, ...] = ()
    """For each choice that is empty or cut off: ``thinking``, ``empty``, ``context`` or ``length``."""
    template_notices: tuple[str, ...] = ()
    """The ``rule`` of each notice of the template."""
    markers: tuple[tuple[str, int], ...] = ()
    """(action, number) of the markers that the request's texts contained."""
    bos_anomaly: bool = False
    gone_phase: str = ""
    """``before_first`` or ``mid_stream`` for ``client_gone``; ``stalled`` for ``client_stalled``."""
    tool_parser: str = ""
    """The format of the tool calls that were searched for; empty if none were searched for."""
    tool_parse_failures: int = 0
    """The number of texts that looked like a tool call but were not."""
