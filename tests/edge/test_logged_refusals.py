"""Every refused request leaves a log line and a count, with the model if it is known."""

from __future__ import annotations

import hashlib
import logging
import re

import pytest

from tests.edge.raw import exchange
from tests.support.serving import Gateway, eventually
from tests.support.world import gateway_fixture

CONFIG = """
models:
  open: {template: chat, targets: [{speaks: scripted, script: says.yaml}]}
  closed: {template: chat, targets: [{speaks: scripted, script: says.yaml}]}
  text: {template: sft-demo, targets: [{speaks: scripted, script: says.yaml}]}
keys: {file: keys.yaml}
"""
PICTURE = """
prompt_template:
  messages: [{role: user, content: [{type: image_url, image_url: {url: "https://example.com/a.png"}}]}]
"""
KEY = "gw-test-key"


FILES = {
    "prompts/picture.yaml": PICTURE,
    "says.yaml": "[hi, {finish: stop}]",
    "keys.yaml": f"k: {{sha256: {hashlib.sha256(KEY.encode()).hexdigest()}, models: [open, text]}}\n"
    f"last-year: {{sha256: {hashlib.sha256(b'gone').hexdigest()}, expires: 2020-01-01}}\n",
}
served = gateway_fixture(CONFIG, FILES)


def post(path: str, body: str, *fields: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, f"authorization: Bearer {KEY}", *fields, "", body]).encode()


CHAT = "/v1/chat/completions"
LONG = "/" + "x" * 400

REFUSALS = {  # the request: endpoint, model, outcome, and the end of the line as an expression
    "an unknown path": (
        post("/v1/chat", "{}"), "other", "unknown", "route_not_found", r'path=/v1/chat error="unknown path',
    ),
    "a long path": (post(LONG, "{}"), "other", "unknown", "route_not_found", rf'path={LONG[:240]} error="'),
    "a wrong method": (
        b"GET /v1/completions HTTP/1.1\r\nhost: localhost\r\n\r\n", "other", "unknown", "method_not_allowed",
        r'path=/v1/completions error="this path accepts only POST',
    ),
    "a foreign host": (
        b"GET /v1/models HTTP/1.1\r\nhost: evil.example\r\n\r\n", "other", "unknown", "bad_host",
        r'path=/v1/models error="the Host header names \\"evil.example\\", which is not allowed',
    ),
    "an invalid host": (
        b"GET /v1/models HTTP/1.1\r\nhost: evil\xff example\r\n\r\n", "other", "unknown", "bad_host",
        r'path=/v1/models error="the Host header \\"evilÿ example\\" is not a valid host"$',
    ),
    "no key": (
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n", "other", "unknown", "invalid_api_key",
        r'path=/v1/models error="the request has no valid client key',
    ),
    "an expired key": (
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer gone\r\n\r\n", "other", "unknown",
        "invalid_api_key", r'path=/v1/models error="the client key last-year expired at 20\S+Z; set a later ',
    ),
    "a call with an expired key": (
        post(CHAT, "{}").replace(KEY.encode(), b"gone"), "chat", "unknown", "invalid_api_key",
        r'error="the client key last-year expired at 20\S+Z; set a later ',
    ),
    "no HTTP": (
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "other", "unknown", "invalid_request", r'error="the request is not',
    ),
    "no JSON": (post(CHAT, "{"), "chat", "unknown", "invalid_json", r'key=k error="'),
    "a value of a known model": (
        post(CHAT, '{"model": "open", "messages": 5}'), "chat", "open", "invalid_value", r'key=k error="messages'
    ),
    "a value of a model that the key may not use": (
        post(CHAT, '{"model": "closed", "messages": 5}'), "chat", "unknown", "invalid_value", r'key=k error="messages'
    ),
    "a value of an unknown model": (
        post(CHAT, '{"model": "x", "messages": 5}'), "chat", "unknown", "invalid_value", r'key=k error="messages'
    ),
    "a dataset prompt that the template refuses": (
        post(CHAT, '{"model": "text", "gateway": {"prompt": {"id": "picture"}}}'), "chat", "text",
        "media_not_supported", r'key=k error="the messages of prompt picture: ',
    ),
    "a model in the path": (post(f"/open{CHAT}", "{"), "chat", "open", "invalid_json", r'key=k error="'),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "endpoint", "model", "outcome", "end"), REFUSALS.values(), ids=REFUSALS)
def test_a_refused_request_is_logged_and_counted(
    served: Gateway, caplog: pytest.LogCaptureFixture, sent: bytes, endpoint: str, model: str, outcome: str, end: str
) -> None:
    caplog.set_level(logging.INFO)
    labels = {"endpoint": endpoint, "model": model, "outcome": outcome}
    before = served.counted("gateway_requests_total", **labels)
    reply = exchange(served.port, sent, seconds=30.0)
    assert reply.json()["error"]["code"] == outcome

    def lines() -> list[str]:  # the note about an expired key is written at any time
        return [record.getMessage() for record in caplog.records if record.name != "gateway.runtime"]

    assert eventually(lambda: len(lines()) == 1)
    assert served.counted("gateway_requests_total", **labels) == before + 1
    (line,) = lines()
    start = f"{reply.headers['x-request-id']} {endpoint} model={model} status={reply.status} outcome={outcome} "
    start += r"target=- attempts=0 seconds=(\S+) upstream=0\.0000 overhead=\1 tokens=\?\+\? "
    assert re.match(start + end, line), line
    assert KEY not in line


def test_an_answer_without_an_endpoint_is_not_counted(served: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert exchange(served.port, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", seconds=30.0).status == 200
    assert not caplog.messages
