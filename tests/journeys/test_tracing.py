"""Spans of calls and attempts in a real OTLP receiver: whose children they are, and what they contain."""

from __future__ import annotations

import inspect
import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.calls.tracing import conventions
from gateway.calls.tracing.conventions import SCHEMA_URL
from tests.journeys.process import Process, serving
from tests.support.serving import HttpGateway, eventually
from tests.support.span_receiver import CLIENT, SERVER, ReceivedSpan, SpanReceiver
from tests.support.upstream.server import FaultyUpstream, refused_url

NAME = re.compile(r'"((?:gen_ai|server|http|error|meta_gateway)\.[a-z0-9_.]+)":')
CALLS, ATTEMPTS = (
    set(NAME.findall(inspect.getsource(table))) for table in (conventions.of_call, conventions.of_attempt)
)
"""The names of the attributes of calls and attempts."""
EACH = 20
"""The number of calls of each kind."""
SECRET = "Who killed the canary?"
MESSAGES = [{"role": "user", "content": SECRET}]
CONFIG = """\
server: {{log_format: json}}
keys: {{file: keys.yaml}}
cache: {{path: answers.sqlite}}
tracing: {{otlp: "{otlp}", service: gateway-of-a-test}}
models:
  string: {{template: chatml, targets: [{{speaks: completions, url: "{ok}", model: tiny, engine: vllm}}]}}
  chat: {{template: chat, targets: [{{speaks: chat, url: "{ok}", model: tiny}}]}}
  cached: {{template: chat, policy: cached, targets: [{{speaks: chat, url: "{ok}", model: tiny}}]}}
  broken: {{template: chat, policy: twice, targets: [{{speaks: chat, url: "{down}", model: tiny}}]}}
  cut: {{template: chatml, targets: [{{speaks: completions, url: "{cut}", model: tiny}}]}}
  second: {{template: chat, targets: [{{speaks: chat, url: "{down}"}}, {{speaks: chat, url: "{ok}"}}]}}
  fallback: {{template: chat, policy: fallback, fallback: [string], targets: [{{speaks: chat, url: "{down}"}}]}}
  silent: {{template: chat, targets: [{{speaks: chat, url: "{silent}", model: tiny}}]}}
"""
FILES = {
    "keys.yaml": "k: {sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b}\n",  # of "secret"
    "policies/cached.yaml": "cache: {mode: 'on'}\ndelivery: {breaker: {failures: 1000}}\n",
    "policies/twice.yaml": "delivery: {retry: {attempts: 2, budget: 100%}, breaker: {failures: 1000}}\n",
    "policies/default.yaml": "delivery: {retry: {budget: 100%}, breaker: {failures: 1000}}\n",
    "policies/fallback.yaml": "delivery: {fallback: true, retry: {budget: 100%}, breaker: {failures: 1000}}\n",
}


def config(up: FaultyUpstream, otlp: str) -> str:
    urls = {"ok": "ok", "down": "503", "cut": "drop-midstream", "silent": "hang-headers"}
    return CONFIG.format(otlp=otlp, **{name: up.url(mode) for name, mode in urls.items()})


@dataclass(frozen=True)
class Kind:
    """One kind of call, and what its span says."""

    model: str
    fields: dict[str, Any] = field(default_factory=dict)
    path: str = "chat/completions"
    status: int = 200
    outcome: str = "ok"
    attempts: int = 1
    failed: bool = False
    key: str = "secret"


CHAT = {"messages": MESSAGES}
KINDS = {
    "whole": Kind("string", CHAT),
    "streamed": Kind("chat", {**CHAT, "stream": True}),
    "completion": Kind("string", {"prompt": SECRET}, "completions"),
    "failed": Kind("broken", CHAT, status=503, outcome="upstream_overloaded", attempts=2, failed=True),
    "broken off": Kind("cut", {**CHAT, "stream": True}, outcome="upstream_disconnected", failed=True),
    "failed over": Kind("second", CHAT, attempts=-1),
    "fallback": Kind("fallback", CHAT, attempts=-1),
    "refused": Kind("string", {"messages": []}, status=400, outcome="invalid_value", attempts=0),
    "cached": Kind("cached", CHAT, attempts=-1),
    "client gone": Kind("silent", CHAT, status=499, outcome="client_gone"),
}
"""Name → kind. ``attempts=-1``: it depends on earlier calls."""


@dataclass(frozen=True)
class Seen:
    """Everything that was seen of the calls, each by the id of its client's trace."""

    kinds: dict[str, Kind]
    log: dict[str, dict[str, Any]]
    calls: dict[str, list[ReceivedSpan]]
    attempts: dict[str, list[ReceivedSpan]]
    sent: dict[str, list[str]]
    """The ids of the parents in the ``traceparent`` of upstream requests."""
    bodies: list[bytes]


def trace_of(number: int) -> tuple[str, str]:
    """The ids of a client's trace and span."""
    return f"{number + 1:032x}", f"{number + 0xABC:016x}"


def call_lines(served: Process) -> dict[str, dict[str, Any]]:
    """The log lines of calls by their trace."""
    lines = [json.loads(line) for line in served.log.splitlines() if line.startswith("{")]
    return {line["trace_id"]: line for line in lines if line.get("event") == "call" and "trace_id" in line}


def ask(served: Process, up: FaultyUpstream, number: int, kind: Kind) -> None:
    trace, parent = trace_of(number)
    headers = {"authorization": f"Bearer {kind.key}", "traceparent": f"00-{trace}-{parent}-01"}
    body = {"model": kind.model, **kind.fields}
    if kind.status == 499:
        waiting = lambda: any(trace in one.headers.get("traceparent", "") for one in up.requests)  # noqa: E731
        HttpGateway(served.port).disconnect(body, waiting, **headers)
        return
    answer = served.http.post(f"/v1/{kind.path}", json=body, headers=headers)
    assert answer.status_code == kind.status, answer.text


@pytest.fixture(scope="module")
def seen(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """200 mixed calls to a gateway with two workers."""
    kinds = [kind for _ in range(EACH) for kind in KINDS.values()]
    before = up.request_count
    files = {**FILES, "gateway.yaml": ""}
    with SpanReceiver() as receiver:
        files["gateway.yaml"] = config(up, receiver.url)
        with serving(tmp_path_factory.mktemp("traced"), files, GATEWAY_SERVER__WORKERS="2") as served:
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda one: ask(served, up, *one), enumerate(kinds)))
            assert eventually(lambda: len(call_lines(served)) == len(kinds)), len(call_lines(served))
            log = call_lines(served)
            expected = len(kinds) + sum(line["attempts"] for line in log.values())
            assert eventually(lambda: len(receiver.spans) >= expected), (len(receiver.spans), expected)
            served.signal(signal.SIGTERM)
            assert served.process.wait(60) == 0
        traces = [trace_of(number)[0] for number in range(len(kinds))]
        headers = [one.headers for one in up.requests[before:] if one.body.keys() != {"model", "prompt"}]  # /tokenize
        parents = [one["traceparent"].split("-") for one in headers]
        yield Seen(
            dict(zip(traces, kinds, strict=True)),
            log,
            {one: [span for span in receiver.spans if (span.trace_id, span.kind) == (one, SERVER)] for one in traces},
            {one: [span for span in receiver.spans if (span.trace_id, span.kind) == (one, CLIENT)] for one in traces},
            {one: [parent for _, trace, parent, _ in parents if trace == one] for one in traces},
            receiver.bodies,
        )


def test_each_call_has_one_span_below_its_clients_span(seen: Seen) -> None:
    for number, (trace, kind) in enumerate(seen.kinds.items()):
        (span,) = seen.calls[trace]
        assert span.parent_id == trace_of(number)[1]
        assert span.attributes["http.response.status_code"] == kind.status
        assert span.attributes.get("error.type", "ok") == kind.outcome == seen.log[trace]["outcome"]
        assert span.failed == kind.failed
        operation = "text_completion" if kind.path == "completions" else "chat"
        assert span.name == f"{operation} {span.attributes['gen_ai.request.model']}"
        assert span.attributes["gen_ai.operation.name"] == operation


def test_each_attempt_of_the_log_has_a_span_below_the_call(seen: Seen) -> None:
    number = 0
    for trace, kind in seen.kinds.items():
        (call,), attempts = seen.calls[trace], seen.attempts[trace]
        assert len(attempts) == seen.log[trace]["attempts"]
        assert kind.attempts in (-1, len(attempts))
        assert [one.parent_id for one in attempts] == [call.span_id] * len(attempts)
        failed = Counter(
            f"{one.attributes['meta_gateway.target']}={one.attributes['error.type']}" for one in attempts if one.failed
        )
        if kind.outcome != "upstream_disconnected":  # that answer had begun
            assert failed == Counter(seen.log[trace]["failed_attempts"])
        number += len(attempts)
    assert number > len(seen.kinds) / 2


def test_the_target_receives_the_span_of_its_attempt(seen: Seen) -> None:
    for trace, attempts in seen.attempts.items():
        assert sorted(seen.sent[trace]) == sorted(one.span_id for one in attempts)


def test_an_attempt_lies_within_its_call(seen: Seen) -> None:
    slack = 20_000_000  # nanoseconds: the call's times come from another clock
    for trace, attempts in seen.attempts.items():
        (call,) = seen.calls[trace]
        for one in attempts:
            assert call.start - slack <= one.start <= one.end <= call.end + slack


def test_a_call_and_its_attempts_have_the_attributes_of_the_tables(seen: Seen) -> None:
    for spans, table in ((seen.calls, CALLS), (seen.attempts, ATTEMPTS)):
        found = {name for of_one in spans.values() for one in of_one for name in one.attributes}
        assert found <= table
        assert table - found <= {"meta_gateway.queue.seconds", "meta_gateway.answers_cut"}
    for of_call in (*seen.calls.values(), *seen.attempts.values()):
        for one in of_call:
            assert one.schema_url == SCHEMA_URL
            assert one.resource["service.name"] == "gateway-of-a-test"


def by_kind(seen: Seen, name: str) -> tuple[ReceivedSpan, list[ReceivedSpan]]:
    """The spans of the last call of a kind."""
    trace = [one for one, kind in seen.kinds.items() if kind == KINDS[name]][-1]
    return seen.calls[trace][0], seen.attempts[trace]


def test_the_spans_of_a_streamed_chat(seen: Seen) -> None:
    call, (attempt,) = by_kind(seen, "streamed")
    assert call.attributes.pop("gen_ai.response.time_to_first_chunk") > 0
    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "chat",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "http.response.status_code": 200,
        "meta_gateway.template": "chat",
    }
    assert attempt.name == "chat tiny"


def test_the_attempt_of_a_string_model_is_a_text_completion(seen: Seen) -> None:
    call, (attempt,) = by_kind(seen, "whole")
    assert (call.name, attempt.name) == ("chat string", "text_completion tiny")
    assert attempt.attributes.pop("server.port") > 0
    assert len(attempt.attributes.pop("meta_gateway.prompt.sha256")) == 64
    assert attempt.attributes == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "tiny",
        "server.address": "127.0.0.1",
        "meta_gateway.target": "string/0",
    }


def test_a_cached_answer_has_no_attempt_and_a_client_that_leaves_cancels_one(seen: Seen) -> None:
    call, attempts = by_kind(seen, "cached")
    assert (call.attributes["meta_gateway.cache"], attempts) == ("hit", [])
    call, (attempt,) = by_kind(seen, "client gone")
    assert (attempt.attributes["error.type"], attempt.failed, call.failed) == ("cancelled", False, False)


def test_no_span_has_a_text_of_a_client_or_a_key(seen: Seen) -> None:
    everything = b"".join(seen.bodies)
    assert b"meta_gateway.template" in everything
    for secret in (SECRET, "canary", "secret", "Bearer"):
        assert secret.encode() not in everything


# ---------------------------------------------------------------- without a receiver, sampling, reload

SMALL = """\
tracing: {{otlp: "{otlp}", sample: {sample}}}
models: {{chat: {{template: chat, targets: [{{speaks: chat, url: "{url}"}}]}}}}
"""
SAMPLED, NOT_SAMPLED = [f"00-{'a' * 32}-{'b' * 16}-{flags}" for flags in ("01", "00")]


def small(up: FaultyUpstream, otlp: str, sample: str = "100%") -> dict[str, str]:
    return {"gateway.yaml": SMALL.format(otlp=otlp, url=up.url("ok"), sample=sample)}


def answered(served: Process, **headers: str) -> None:
    answer = served.http.post("/v1/chat/completions", json={"model": "chat", **CHAT}, headers=headers)
    assert answer.status_code == 200


def test_calls_do_not_notice_a_receiver_that_is_down(up: FaultyUpstream, tmp_path: Path) -> None:
    otlp = refused_url().removesuffix("/v1") + "/v1/traces"
    with serving(tmp_path, small(up, otlp)) as served:
        for _ in range(10):
            answered(served)
        assert eventually(lambda: "Failed to export spans batch" in served.log), served.log
        served.signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
        assert served.log.count("Failed to export spans batch") == 1


def test_calls_and_the_end_do_not_wait_for_a_receiver_that_hangs(up: FaultyUpstream, tmp_path: Path) -> None:
    with SpanReceiver() as receiver:
        receiver.hanging = True
        with serving(tmp_path, small(up, receiver.url)) as served:
            answered(served)
            assert eventually(lambda: receiver.requests == 1)
            for _ in range(10):
                answered(served)
            served.signal(signal.SIGTERM)
            assert served.process.wait(60) == 0
            assert served.log.count("Failed to export spans batch") == 1
        assert receiver.spans == []


def test_the_last_spans_are_sent_when_the_gateway_ends(up: FaultyUpstream, tmp_path: Path) -> None:
    with SpanReceiver() as receiver, serving(tmp_path, small(up, receiver.url)) as served:
        answered(served)
        served.signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
        assert len(receiver.spans) == 2


def test_a_share_of_the_calls_has_spans_and_a_client_decides_for_its_own(up: FaultyUpstream, tmp_path: Path) -> None:
    with SpanReceiver() as receiver, serving(tmp_path, small(up, receiver.url, "0%")) as served:
        answered(served)
        answered(served, traceparent=NOT_SAMPLED)
        sent = [one.headers["traceparent"].split("-") for one in up.requests[-2:]]
        assert [int(flags, 16) & 1 for *_, flags in sent] == [0, 0]
        assert sent[1][1] == "a" * 32
        answered(served, traceparent=SAMPLED)
        served.signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
        assert [one.trace_id for one in receiver.spans] == ["a" * 32] * 2


def test_a_reload_replaces_the_receiver(up: FaultyUpstream, tmp_path: Path) -> None:
    with SpanReceiver() as first, SpanReceiver() as second, serving(tmp_path, small(up, first.url)) as served:
        answered(served)
        served.write("gateway.yaml", small(up, second.url)["gateway.yaml"])
        served.reload("ok")
        answered(served)
        assert eventually(lambda: len(first.spans) == len(second.spans) == 2)


def test_the_settings_win_over_the_variables_of_the_sdk(up: FaultyUpstream, tmp_path: Path) -> None:
    with (
        SpanReceiver() as receiver,
        SpanReceiver() as other,
        serving(
            tmp_path,
            small(up, receiver.url),
            OTEL_EXPORTER_OTLP_ENDPOINT=other.url,
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=other.url,
            OTEL_TRACES_SAMPLER="always_off",
            OTEL_SERVICE_NAME="other",
            OTEL_RESOURCE_ATTRIBUTES="service.name=other,service.instance.id=a",
        ) as served,
    ):
        answered(served)
        assert eventually(lambda: len(receiver.spans) == 2)
        assert other.requests == 0
        for one in receiver.spans:
            assert (one.resource["service.name"], one.resource["service.instance.id"]) == ("meta-gateway", "a")


def test_the_headers_of_the_receiver_come_from_the_standard_variable(up: FaultyUpstream, tmp_path: Path) -> None:
    with (
        SpanReceiver() as receiver,
        serving(tmp_path, small(up, receiver.url), OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20t") as served,
    ):
        answered(served)
        assert eventually(lambda: receiver.spans)
    assert receiver.headers[0]["authorization"] == "Bearer t"
