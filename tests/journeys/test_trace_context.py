"""A client's trace (``traceparent``, ``tracestate``) in every upstream request of its call, and in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.server.program import Gateway
from tests.support.serving import SERVERS, HttpGateway, eventually
from tests.support.upstream.server import FaultyUpstream

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01", "tracestate": "rojo=1,congo=t61rcWkgMzE"}
CONFIG = """\
keys: {{file: keys.yaml}}
models:
  string: {{template: chatml, targets: [{{speaks: completions, url: "{ok}"}}]}}
  chat: {{template: chat, targets: [{{speaks: chat, url: "{ok}"}}]}}
  one-prompt: {{template: chatml, targets: [{{speaks: completions, url: "{one}", engine: llamacpp-python}}]}}
  flaky: {{template: chatml, targets: [{{speaks: completions, url: "{flaky}"}}]}}
  second: {{template: chat, targets: [{{speaks: chat, url: "{busy}"}}, {{speaks: chat, url: "{ok}"}}]}}
  fallback: {{template: chat, policy: fallback, fallback: [string], targets: [{{speaks: chat, url: "{busy}"}}]}}
"""
FILES = {
    "keys.yaml": "k: {sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b}\n",  # of "secret"
    "policies/fallback.yaml": "delivery: {fallback: true}\n",
}


def config(up: FaultyUpstream, name: str) -> str:
    """The configuration, whose mode ``flaky`` counts the requests of this gateway alone."""
    flaky = up.url("flaky", fail=1, of=name)
    return CONFIG.format(ok=up.url("ok"), busy=up.url("503"), flaky=flaky, one=up.url("quirk-list-500"))


@pytest.fixture(scope="module", params=SERVERS)
def served(
    up: FaultyUpstream, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpGateway]:
    with SERVERS[request.param](tmp_path_factory.mktemp("traces"), config(up, request.param), files=FILES) as one:
        yield one


def ask(served: HttpGateway, path: str, body: Mapping[str, Any], *headers: tuple[str, str]) -> httpx.Response:
    """Call the gateway with its key."""
    fields = [("authorization", "Bearer secret"), *headers]
    return served.http.post(path, json=body, headers=fields)


@dataclass(frozen=True)
class Case:
    """A call, and the number of upstream requests that it makes."""

    path: str
    model: str
    fields: Mapping[str, Any]
    requests: int = 1


MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
CASES = {
    "a chat with a string model": Case("chat/completions", "string", MESSAGES),
    "a chat with a chat model": Case("chat/completions", "chat", MESSAGES),
    "a stream": Case("chat/completions", "string", {**MESSAGES, "stream": True}),
    "a raw prompt": Case("completions", "string", {"prompt": "hi"}),
    "embeddings": Case("embeddings", "string", {"input": "hi"}),
    "a response": Case("responses", "chat", {"input": "hi"}),
    "a list, one prompt a request": Case("completions", "one-prompt", {"prompt": ["a", "b", "c"]}, 3),
    "several turns": Case("chat/completions", "string", {**MESSAGES, "gateway": {"turns": {"mode": "every"}}}),
    "a retry": Case("chat/completions", "flaky", MESSAGES, 2),
    "another target": Case("chat/completions", "second", MESSAGES, 2),
    "a fallback model": Case("chat/completions", "fallback", MESSAGES, 3),
}


@pytest.mark.parametrize("case", CASES)
def test_every_upstream_request_of_a_call_has_its_trace(served: HttpGateway, up: FaultyUpstream, case: str) -> None:
    call, before = CASES[case], up.request_count
    answer = ask(served, f"/v1/{call.path}", {"model": call.model, **call.fields}, *TRACE.items())
    assert answer.status_code == 200, answer.text
    sent = [{name: one.headers.get(name) for name in TRACE} for one in up.requests[before:]]
    assert sent == [TRACE] * call.requests


def test_the_values_of_several_headers_are_joined(served: HttpGateway, up: FaultyUpstream) -> None:
    headers = ("traceparent", TRACE["traceparent"]), ("tracestate", "rojo=1"), ("tracestate", "congo=t61rcWkgMzE")
    assert ask(served, "/v1/chat/completions", {"model": "chat", **MESSAGES}, *headers).status_code == 200
    assert up.requests[-1].headers["tracestate"].replace(", ", ",") == TRACE["tracestate"]


@pytest.mark.parametrize("traceparent", ["", "00-0-0-00", f"00-{TRACE_ID}-00f067aa0ba902b7-01\xff", "\u00e9"])
def test_an_invalid_trace_costs_no_call_and_is_not_sent_on(
    served: HttpGateway, up: FaultyUpstream, traceparent: str
) -> None:
    headers = {b"authorization": b"Bearer secret", b"traceparent": traceparent.encode(), b"tracestate": b"a=1"}
    answer = served.http.post("/v1/chat/completions", json={"model": "chat", **MESSAGES}, headers=headers)
    assert answer.status_code == 200
    assert not up.requests[-1].headers.keys() & TRACE.keys()


CALLS = {
    "answered": ({"model": "chat", **MESSAGES}, "secret", "ok"),
    "without a valid key": ({"model": "chat", **MESSAGES}, "wrong", "invalid_api_key"),
    "refused": ({"model": "chat"}, "secret", "invalid_value"),
}


@pytest.mark.parametrize("case", CALLS)
def test_the_log_line_of_a_call_has_the_id_of_its_trace(
    served: HttpGateway, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    body, key, outcome = CALLS[case]
    caplog.set_level(logging.INFO, "gateway.calls")
    for headers in (TRACE, {}):
        served.http.post("/v1/chat/completions", json=body, headers={**headers, "authorization": f"Bearer {key}"})

    def logged() -> list[logging.LogRecord]:
        return [one for one in caplog.records if one.name == "gateway.calls"]

    assert eventually(lambda: len(logged()) == 2)
    traced, plain = logged()
    assert f"outcome={outcome} " in traced.getMessage()
    assert f" trace_id={TRACE_ID}" in traced.getMessage()
    assert traced.fields["trace_id"] == TRACE_ID  # type: ignore[attr-defined]
    assert "trace" not in plain.getMessage()
    assert "trace_id" not in plain.fields  # type: ignore[attr-defined]


def test_a_python_program_may_give_a_trace(up: FaultyUpstream, tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(
        f'models: {{chat: {{template: chat, targets: [{{speaks: chat, url: "{up.url("ok")}"}}]}}}}'
    )

    async def call() -> int:
        async with Gateway(tmp_path / "gateway.yaml", {}) as program:
            answer = await program.call("/v1/chat/completions", {"model": "chat", **MESSAGES}, headers=TRACE)
            return answer.status

    assert asyncio.run(call()) == 200
    assert {name: up.requests[-1].headers[name] for name in TRACE} == TRACE
