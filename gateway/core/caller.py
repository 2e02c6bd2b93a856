"""The client that makes a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metatemplate.values.frozen import EMPTY_MAPPING


@dataclass(frozen=True, slots=True)
class Caller:
    """The client that makes a call: the name and the rights of its key; session, run and trace of the request."""

    key: str = ""
    """The name of the client's key. Empty if no keys are configured, and before the key is known to be valid."""
    models: frozenset[str] | None = None
    """The configured models that the client may use. None: all models."""
    record: bool = True
    """True: the calls may be recorded. False overrides the policy of the model."""
    allow_markers: bool = False
    """True: texts may contain markers of the model's template."""
    allow_media_files: bool = True
    """True: messages may name media files. The policy of the model decides which files are accepted."""
    session: str = ""
    """The value of the header ``x-session-id``; empty if the client did not send the header."""
    run: str = ""
    """The client's name for the run to which the call belongs, for recordings. Empty: the call belongs to no run."""
    row: str = ""
    """The id of the row in the run. Empty: the call is no row of a run."""
    trace: Mapping[str, str] = field(default=EMPTY_MAPPING, hash=False)
    """The headers ``traceparent`` and ``tracestate`` of each upstream request. Empty: the call belongs to no trace."""

    def may_use(self, model: str) -> bool:
        """Return whether the client may use a configured model."""
        return self.models is None or model in self.models


ANONYMOUS = Caller()
"""The caller of a gateway without client keys."""
