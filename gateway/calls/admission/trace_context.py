"""The trace to which a request belongs (W3C Trace Context)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from metatemplate.values.frozen import EMPTY_MAPPING

_PARENT = re.compile(rb"(?!ff|00.{54})[\da-f]{2}(-(?!0{32})[\da-f]{32}-(?!0{16})[\da-f]{16}-[\da-f]{2})(?:-.*)?")
"""Matches a valid ``traceparent``: one of version 00 ends after its flags, one of a later version may be longer."""
_STATE = re.compile(rb"(?! )[ -~]{1,512}(?<! )")
"""Matches a ``tracestate`` that is sent on: printable ASCII."""


def trace_of(headers: Mapping[bytes, bytes]) -> Mapping[str, str]:
    """Return the headers with which upstream requests continue the client's trace.

    Empty without a valid ``traceparent``, of which a later version is changed to 00.
    """
    parent = _PARENT.fullmatch(headers.get(b"traceparent", b""))
    if parent is None:
        return EMPTY_MAPPING
    trace, state = {"traceparent": f"00{parent[1].decode()}"}, headers.get(b"tracestate", b"")
    return trace | {"tracestate": state.decode()} if _STATE.fullmatch(state) else trace
