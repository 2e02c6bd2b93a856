"""What remains of a call: one frozen value, from which every metric and log line is made."""

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
    """The HTTP status; 499 when the client left or stalled."""
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
    """From sending the request upstream to its first content."""
    upstream: float | None = None
    """From sending the request upstream to its end."""
    first_token: float | None = None
    """From the request's head to the first content written; streams only."""
    gaps: tuple[float, ...] = ()
    """Between neighbouring content events of a stream."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_source: str = ""
    stop_cuts: tuple[str, ...] = ()
    """Where each stop came from: ``gateway`` or ``engine``."""
    role_rewrites: tuple[str, ...] = ()
    """The template's notices, by rule."""
    bos_anomaly: bool = False
    gone_phase: str = ""
    """With ``client_gone``: ``before_first`` or ``mid_stream``; with ``client_stalled``: ``stalled``."""
    tool_parser: str = ""
    """The format in which tool calls were looked for; empty: in none."""
    tool_parse_failures: int = 0
    """How often text looked like a call and was none."""
