"""The headers ``traceparent`` and ``tracestate`` of a request, by the text of W3C Trace Context."""

from __future__ import annotations

import pytest

from gateway.calls.admission.facts import MAX_TRACESTATE, RequestFacts

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{PARENT}-01"


def sent_on(traceparent: str, tracestate: str | None = None) -> tuple[str | None, str | None]:
    """The two headers of upstream requests."""
    headers = {b"traceparent": traceparent.encode()}
    if tracestate is not None:
        headers[b"tracestate"] = tracestate.encode()
    trace = RequestFacts(headers).trace()
    return trace.get("traceparent"), trace.get("tracestate")


SENT_ON = {
    "sampled": (VALID, VALID),
    "not sampled": (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-00"),
    "a random id": (f"00-{TRACE}-{PARENT}-03", f"00-{TRACE}-{PARENT}-03"),
    "flags without a meaning": (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-{PARENT}-03"),
    "a later version": (f"01-{TRACE}-{PARENT}-01", VALID),
    "a later version with more fields": (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", VALID),
    "a later version with an empty field": (f"fe-{TRACE}-{PARENT}-09-", VALID),
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


LONG = [f"v{number}={'x' * 60}" for number in range(20)]
STATES = {
    "one member": ("rojo=00f067aa0ba902b7", "rojo=00f067aa0ba902b7"),
    "two headers, joined": ("rojo=1, congo=t61rcWkgMzE", "rojo=1,congo=t61rcWkgMzE"),
    "empty members": (" ,a=1,\t, b=2 ,", "a=1,b=2"),
    "empty": ("", None),
    "a tenant": ("fw529a3039@dt=FfAAAA/+*:;", "fw529a3039@dt=FfAAAA/+*:;"),
    "a key of a digit": ("1a=2", "1a=2"),
    "spaces inside": ("a= 1 2", "a= 1 2"),
    "32 members": (",".join([f"a{n}=1" for n in range(32)]), ",".join([f"a{n}=1" for n in range(32)])),
    "33 members": (",".join([f"a{n}=1" for n in range(33)]), None),
    "no value": ("a=", None),
    "no key": ("=1", None),
    "no equals sign": ("a=1,b", None),
    "a second equals sign": ("a=1=2", None),
    "upper case": ("A=1", None),
    "the same key twice": ("a=1,b=2,a=3", "a=1,b=2,a=3"),
    "a long key": (f"{'a' * 257}=1", None),
    "a long value": (f"a={'1' * 257}", None),
    "not ASCII": ("a=\u00e4", None),
    "too long: the last members are left out": (",".join(LONG), ",".join(LONG[:8])),
    "too long: a long member is left out first": (
        ",".join([f"a={'x' * 200}", *LONG[:8]]),
        ",".join(LONG[:8]),
    ),
    "too long: three long members": (",".join([f"{name}={'x' * 250}" for name in "abc"]), None),
}


@pytest.mark.parametrize("case", STATES)
def test_a_tracestate_is_sent_on_if_it_is_valid_and_within_the_size(case: str) -> None:
    given, expected = STATES[case]
    assert sent_on(VALID, given) == (VALID, expected)
    assert len(expected or "") <= MAX_TRACESTATE


def test_a_tracestate_of_exactly_the_size_is_sent_on_whole() -> None:
    members = ["a=" + "1" * 126, "b=" + "1" * 126, "c=" + "1" * 126, "d=" + "1" * 123]
    assert len(",".join(members)) == MAX_TRACESTATE
    assert sent_on(VALID, ",".join(members)) == (VALID, ",".join(members))
    assert sent_on(VALID, ",".join([*members, "e=1"])) == (VALID, ",".join(members))


def test_a_request_without_a_trace_sends_none() -> None:
    assert RequestFacts({b"tracestate": b"a=1"}).trace() == {}
