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
    duration: float
    template: str = ""
    kind: str = ""
    target: str = ""
    attempts: int = 0
    admission: float | None = None
    """From the request's head to the parsed call."""
    render: float | None = None
    upstream_first: float | None = None
    """From opening the backend to its first content."""
    upstream: float | None = None
    """From opening the backend to its end."""
    first_token: float | None = None
    """From the request's head to the first content written; streams only."""
    gaps: tuple[float, ...] = ()
    """Between neighbouring content events of a stream."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_source: str = ""
    stop_cuts: tuple[str, ...] = ()
    """Source of each ``stop``: ``gateway`` or ``engine``."""
    role_rewrites: tuple[str, ...] = ()
    """Rules of the template's notices."""
    bos_anomaly: bool = False
    gone_phase: str = ""
    """With ``client_gone``: ``before_first`` or ``mid_stream``; with ``client_stalled``: ``stalled``."""
    tool_parser: str = ""
    """The format in which tool calls were searched; empty: none."""
    tool_parse_failures: int = 0
    """Texts that looked like a tool call and were none."""
