"""The headers ``traceparent`` and ``tracestate`` of a request, by the text of W3C Trace Context."""

from __future__ import annotations

import pytest

from gateway.calls.admission.trace_context import trace_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{PARENT}-01"


def sent_on(traceparent: str, tracestate: str | None = None) -> tuple[str | None, str | None]:
    """The two headers of upstream requests."""
    headers = {b"traceparent": traceparent.encode()}
    if tracestate is not None:
        headers[b"tracestate"] = tracestate.encode()
    trace = trace_of(headers)
    return trace.get("traceparent"), trace.get("tracestate")


SENT_ON = {
    "sampled": (VALID, VALID),
    "not sampled": (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-00"),
    "a random id": (f"00-{TRACE}-{PARENT}-03", f"00-{TRACE}-{PARENT}-03"),
    "flags without a meaning": (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-{PARENT}-ff"),
    "a later version": (f"01-{TRACE}-{PARENT}-01", VALID),
    "a later version with more fields": (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", VALID),
    "a later version with an empty field": (f"fe-{TRACE}-{PARENT}-09-", f"00-{TRACE}-{PARENT}-09"),
}


@pytest.mark.parametrize("case", SENT_ON)
def test_a_valid_traceparent_is_sent_on_as_version_00(case: str) -> None:
    given, expected = SENT_ON[case]
    assert sent_on(given) == (expected, None)


IGNORED = {
    "empty": "",
    "version ff": f"ff-{TRACE}-{PARENT}-01",
    "a version of letters": f"0x-{TRACE}-{PARENT}-01",
    "a zero trace id": f"00-{'0' * 32}-{PARENT}-01",
    "a zero parent id": f"00-{TRACE}-{'0' * 16}-01",
    "upper case": VALID.upper(),
    "a short trace id": f"00-{TRACE[1:]}-{PARENT}-01",
    "a long trace id": f"00-{TRACE}0-{PARENT}-01",
    "a short parent id": f"00-{TRACE}-{PARENT[1:]}-01",
    "no flags": f"00-{TRACE}-{PARENT}",
    "one flag": f"00-{TRACE}-{PARENT}-1",
    "version 00 with more fields": f"{VALID}-more",
    "version 00 with a last dash": f"{VALID}-",
    "a later version with more in its flags": f"01-{TRACE}-{PARENT}-01more",
    "sent twice": f"{VALID}, {VALID}",
    "a later version sent twice": f"01-{TRACE}-{PARENT}-01, {VALID}",
    "underscores": VALID.replace("-", "_"),
    "not ASCII": f"00-{TRACE}-{PARENT}-0\u0661",
}


@pytest.mark.parametrize("case", IGNORED)
def test_an_invalid_traceparent_is_dropped_with_its_tracestate(case: str) -> None:
    assert sent_on(IGNORED[case], "a=1") == (None, None)


STATES = {
    "one member": ("rojo=00f067aa0ba902b7", True),
    "two headers, joined": ("rojo=1, congo=t61rcWkgMzE", True),
    "members of another form": ("A=1,,b==2, no value", True),
    "exactly the size": ("a=" + "1" * 510, True),
    "too long": ("a=" + "1" * 511, False),
    "empty": ("", False),
    "a space": (" ", False),
    "a space at the end": ("a=1 ", False),
    "a line break": ("a=1\n", False),
    "a control character": ("a=1\x7f", False),
    "not ASCII": ("a=\u00e4", False),
}
"""Name → tracestate, and whether it is sent on."""


@pytest.mark.parametrize("case", STATES)
def test_a_tracestate_is_sent_on_as_it_came_or_left_out(case: str) -> None:
    given, expected = STATES[case]
    assert sent_on(VALID, given) == (VALID, given if expected else None)


def test_a_request_without_a_trace_sends_none() -> None:
    assert trace_of({b"tracestate": b"a=1"}) == {}
