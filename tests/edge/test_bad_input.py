"""Rows A01–A22 of the fault matrix: invalid requests are refused and do not reach the upstream."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.edge.raw import HEAD, Reply, exchange, read_all
from tests.support import world as common
from tests.support.serving import ROOT, WAIT_SECONDS, gateway
from tests.support.world import world_fixture

CANARY = "k4n4ry"
"""Part of request bodies; must never be part of a response."""

JSON = {"content-type": "application/json"}
CHAT = "/v1/chat/completions"

CONFIG = """
models:
  text: {{template: sft-demo, targets: [{{speaks: completions, url: "{url}"}}]}}
  talk: {{template: chat, targets: [{{speaks: chat, url: "{url}"}}]}}
  strict: {{template: chat, policy: strict, targets: [{{speaks: chat, url: "{url}"}}]}}
"""


class World(common.World):
    def post(self, body: bytes | dict[str, Any], path: str = CHAT, **headers: str) -> Reply:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.served.http.post(path, content=content, headers={**JSON, **named})
        return Reply(answer.status_code, dict(answer.headers), answer.content, closed=False)

    def raw(self, *parts: bytes) -> Reply:
        return exchange(self.served.port, *parts)


FILES = {"policies/strict.yaml": "params: {unknown: reject}\n"}
shared = world_fixture(lambda up: CONFIG.format(url=up.url("ok")), FILES, World)


@pytest.fixture
def world(shared: World, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    """After each row: the gateway is alive, no call is in flight, and the log has no traceback."""
    caplog.set_level(logging.INFO)
    yield shared
    assert shared.served.wait_until_idle()
    assert shared.served.http.get("/health/live").status_code == 200
    assert not [record for record in caplog.records if record.exc_info]
    assert CANARY not in caplog.text


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "text", "messages": [{"role": "user", "content": CANARY}], **fields}


def said(*content: Any) -> dict[str, Any]:
    return chat(model="talk", messages=[{"role": "user", "content": list(content)}])


def raw_chat(more: str) -> bytes:
    """A chat body whose last fields are the given JSON text."""
    return json.dumps(chat()).encode()[:-1] + b", " + more.encode() + b"}"


@dataclass(frozen=True)
class Case:
    """A body or request, and the expected error."""

    body: bytes | dict[str, Any]
    code: str
    status: int = 400
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    path: str = CHAT


def refused(reply: Reply, case: Case) -> None:
    assert reply.status == case.status, reply.body
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    error = reply.json()["error"]
    kind = "authentication_error" if case.status == 401 else "invalid_request_error"
    assert (error["code"], error["type"], error["param"]) == (case.code, kind, case.param)
    assert CANARY not in reply.body.decode()
    assert len(reply.body) < 1024


MESSAGE = {"role": "user", "content": CANARY}

# fmt: off
CASES = {
    # --- A01 … A03
    "A01 an open brace": Case(b"{", "invalid_json"),
    "A01 words": Case(CANARY.encode(), "invalid_json"),
    "A01 two objects": Case(b"{}{}", "invalid_json"),
    "A02 a list": Case(b"[]", "invalid_body"),
    "A02 null": Case(b"null", "invalid_body"),
    "A02 a string": Case(f'"{CANARY}"'.encode(), "invalid_body"),
    "A02 a number": Case(b"1", "invalid_body"),
    "A02 a boolean": Case(b"true", "invalid_body"),
    "A03 nothing": Case(b"", "invalid_json"),
    "A03 blanks": Case(b" \n ", "invalid_json"),
    # --- A04: depth
    "A04 64 lists in the object": Case(b'{"x":' + b"[" * 64 + b"]" * 64 + b"}", "json_too_deep"),
    "A04 100 000 lists": Case(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "json_too_deep"),
    "A04 100 000 objects": Case(b'{"x":' * 100_000 + b"1" + b"}" * 100_000, "json_too_deep"),
    "A04 2 000 000 lists": Case(b'{"x":' + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}", "json_too_deep"),
    "A04 never closed": Case(b"[" * 100_000, "json_too_deep"),
    # --- A05, A06: numbers
    "A05 NaN": Case(raw_chat('"temperature": NaN'), "invalid_json"),
    "A05 Infinity": Case(raw_chat('"temperature": Infinity'), "invalid_json"),
    "A05 1e999": Case(raw_chat('"temperature": 1e999'), "invalid_json"),
    "A05 5000 digits": Case(raw_chat('"seed": ' + "9" * 5000), "invalid_json"),
    "A06 seed of 2^63": Case(chat(seed=2**63), "invalid_value", param="seed"),
    "A06 seed of 2^64": Case(chat(seed=2**64), "invalid_value", param="seed"),
    "A06 seed of 10^20": Case(chat(seed=10**20), "invalid_value", param="seed"),
    "A06 max_tokens of 2^64": Case(chat(max_tokens=2**64), "invalid_value", param="max_tokens"),
    "A06 an unknown field": Case(chat(top_k=2**64), "invalid_value", param="top_k"),
    "A06 deep in an unknown field": Case(chat(x={"y": [1, 2**64]}), "invalid_value", param="x.y[1]"),
    "A06 inside a message": Case(
        chat(messages=[{**MESSAGE, "z": 2**64}]), "invalid_value", param="messages[0].z"
    ),
    # --- A08, A09: encodings
    "A08 a lone byte": Case(b'{"model": "\xff"}', "invalid_json"),
    "A08 an encoded surrogate": Case(b'{"model": "\xed\xa0\x80"}', "invalid_json"),
    "A08 an overlong slash": Case(b'{"model": "\xc0\xaf"}', "invalid_json"),
    "A08 UTF-16": Case(json.dumps(chat()).encode("utf-16"), "invalid_json"),
    "A08 UTF-16 without a mark": Case(json.dumps(chat()).encode("utf-16-le"), "invalid_json"),
    "A08 UTF-32": Case(json.dumps(chat()).encode("utf-32"), "invalid_json"),
    "A08 a byte order mark": Case(b"\xef\xbb\xbf" + json.dumps(chat()).encode(), "invalid_json"),
    "A09 a high surrogate": Case(b'{"model": "\\ud800"}', "invalid_unicode"),
    "A09 a low surrogate": Case(b'{"model": "\\udc00 x"}', "invalid_unicode"),
    # --- A10, A11: declarations
    **{
        f"A10 {kind}": Case(chat(), "unsupported_media_type", 415, headers={"content_type": kind})
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/json; charset=latin-1",
            "application/json; x=y; charset=latin-1",
            "application/jsonl",
            "",
        )
    },
    **{
        f"A11 {coding}": Case(chat(), "unsupported_encoding", 415, headers={"content_encoding": coding})
        for coding in ("gzip", "br", "zstd", "deflate", "GZIP", "gzip, identity")
    },
    # --- A14: models
    "A14 unknown": Case(chat(model="nobody"), "model_not_found", 404, "model"),
    "A14 10 KiB": Case(chat(model="x" * 9000 + CANARY), "model_not_found", 404, "model"),
    "A14 a path": Case(chat(model="../../etc/passwd"), "model_not_found", 404, "model"),
    "A14 line ends": Case(chat(model="text\r\nx-evil: 1"), "model_not_found", 404, "model"),
    "A14 NUL": Case(chat(model="text\0"), "model_not_found", 404, "model"),
    "A14 right to left": Case(chat(model="\u202etxet"), "model_not_found", 404, "model"),
    "A14 empty": Case(chat(model=""), "invalid_value", 400, "model"),
    "A14 a number": Case(chat(model=5), "invalid_value", 400, "model"),
    "A14 missing": Case({"messages": [MESSAGE]}, "invalid_value", 400, "model"),
    # --- A15: messages
    "A15 empty": Case(chat(messages=[]), "invalid_value", param="messages"),
    "A15 missing": Case({"model": "text"}, "invalid_value", param="messages"),
    "A15 null": Case(chat(messages=None), "invalid_value", param="messages"),
    "A15 a string": Case(chat(messages=CANARY), "invalid_value", param="messages"),
    "A15 10 000 entries": Case(chat(messages=[{"role": "user", "content": ""}] * 10_000), "invalid_value",
                               param="messages"),
    "A15 100 000 entries": Case(chat(messages=[{"role": "user", "content": ""}] * 100_000), "invalid_body"),
    "A15 100 000 numbers": Case(chat(messages=[5] * 100_000), "invalid_value", param="messages[0]"),
    "A15 a prompt in place of messages": Case(
        {"model": "demo", "prompt": "x"}, "invalid_value", param="prompt"
    ),
    "A15 no object": Case(chat(messages=[MESSAGE, 5]), "invalid_value", param="messages[1]"),
    "A15 no role": Case(chat(messages=[{"content": CANARY}]), "invalid_value", param="messages[0].role"),
    "A15 empty role": Case(chat(messages=[{**MESSAGE, "role": ""}]), "invalid_value", param="messages[0].role"),
    "A15 role is a list": Case(chat(messages=[{**MESSAGE, "role": []}]), "invalid_value", param="messages[0].role"),
    "A15 content is a number": Case(
        chat(messages=[MESSAGE, MESSAGE, MESSAGE, {"role": "user", "content": 5}]), "invalid_value",
        param="messages[3].content",
    ),
    "A15 content is missing": Case(chat(messages=[{"role": "user"}]), "invalid_value", param="messages[0].content"),
    "A15 content is null": Case(
        chat(messages=[{"role": "user", "content": None}]), "invalid_value", param="messages[0].content"
    ),
    "A15 a part without type": Case(said({"text": CANARY}), "invalid_value", param="messages[0].content[0].type"),
    "A15 a part without text": Case(said({"type": "text"}), "invalid_value", param="messages[0].content[0].text"),
    "A15 a part with a number": Case(
        said({"type": "text", "text": 5}), "invalid_value", param="messages[0].content[0].text"
    ),
    "A15 no part": Case(said(5), "invalid_value", param="messages[0].content[0]"),
    "A15 5000 parts": Case(said(*[{"type": "text", "text": ""}] * 5000), "invalid_value", param="messages[0].content"),
    # --- A16: roles
    "A16 tool": Case(
        chat(messages=[MESSAGE, {"role": "tool", "content": CANARY}]), "role_not_supported", param="messages[1].role"
    ),
    "A16 a made-up role": Case(
        chat(messages=[{"role": "Emperor", "content": CANARY}]), "role_not_supported", param="messages[0].role"
    ),
    "A16 a role with line ends": Case(
        chat(messages=[{"role": "a\r\nb", "content": CANARY}]), "role_not_supported", param="messages[0].role"
    ),
    # --- A17: ranges
    **{
        f"A17 {name}={value!r:.30}": Case(chat(**{name: value}), "invalid_value", param=name)
        for name, value in (
            ("temperature", 9), ("temperature", -0.1), ("temperature", "1"), ("temperature", True),
            ("top_p", 1.5), ("top_p", -1), ("n", 0), ("n", 10**6), ("n", 1.5), ("n", True),
            ("max_tokens", -1), ("max_tokens", 0), ("max_tokens", 1.5), ("max_completion_tokens", 0),
            ("stop", list("abcde")), ("stop", ""), ("stop", ["a", ""]), ("stop", "x" * 2**20), ("stop", 5),
            ("seed", 1.5), ("presence_penalty", 3), ("frequency_penalty", -3), ("top_logprobs", 21),
            ("top_logprobs", -1), ("logprobs", 5), ("stream", "yes"), ("user", "x" * 10_000),
            ("logit_bias", {str(i): 1 for i in range(50_000)}), ("tools", [{}] * 1000), ("tools", "x"),
            ("stream_options", {"include_usage": True}), ("response_format", "json"), ("tool_choice", 5),
        )
    },
    "A17 one bias": Case(chat(logit_bias={"5": 101}), "invalid_value", param="logit_bias.5"),
    "A17 a bias with a long name": Case(
        chat(logit_bias={"é" * 5000: 101}), "invalid_value", param="logit_bias." + "?" * 64
    ),
    "A17 a part of stop": Case(chat(stop=["a", 5]), "invalid_value", param="stop[1]"),
    "A17 top_logprobs alone": Case(chat(top_logprobs=2), "invalid_value", param="top_logprobs"),
    "A17 two limits": Case(
        chat(max_tokens=1, max_completion_tokens=2), "invalid_value", param="max_completion_tokens"
    ),
    # --- A17 for raw completions
    **{
        f"A17 prompt={value!r:.30}": Case(
            {"model": "text", "prompt": value}, "invalid_value", param=param, path="/v1/completions"
        )
        for value, param in (
            (None, "prompt"), ([], "prompt"), (5, "prompt"), ([[]], "prompt"), (["a", 1], "prompt"),
            ([-1], "prompt"), ([2**31], "prompt"), ([[1], [-1]], "prompt[1]"), ({"a": 1}, "prompt"),
            ([True], "prompt"), ([1.5], "prompt"), (["x"] * 1025, "prompt"),
        )
    },
    "A17 65 stops": Case(
        {"model": "text", "prompt": "a", "stop": [str(i) for i in range(65)]}, "invalid_value", param="stop",
        path="/v1/completions",
    ),
    "A17 no prompt": Case({"model": "text"}, "invalid_value", param="prompt", path="/v1/completions"),
    "A17 no input": Case({"model": "text"}, "invalid_value", param="input", path="/v1/embeddings"),
    # --- A18: fields
    **{
        f"A18 {name}": Case(chat(**{name: value}), "forbidden_parameter", param=name)
        for name, value in (
            ("api_base", CANARY), ("base_url", CANARY), ("api_key", CANARY), ("custom_llm_provider", CANARY),
            ("extra_headers", {"a": CANARY}), ("extra_body", {"a": CANARY}), ("chat_template", CANARY),
            ("chat_template_kwargs", {"a": CANARY}), ("mock_response", CANARY),
            ("fallbacks", [CANARY]), ("timeout", 1), ("num_retries", 3), ("headers", {}), ("model_list", []),
        )
    },
    "A18 null is still there": Case(chat(api_base=None), "forbidden_parameter", param="api_base"),
    "A18 in a completion": Case(
        {"model": "text", "prompt": CANARY, "api_base": CANARY}, "forbidden_parameter", param="api_base",
        path="/v1/completions",
    ),
    "A18 in an embedding": Case(
        {"model": "text", "input": CANARY, "api_base": CANARY}, "forbidden_parameter", param="api_base",
        path="/v1/embeddings",
    ),
    "A18 unknown, refused by policy": Case(
        chat(model="strict", best_guess=CANARY), "unsupported_parameter", param="best_guess"
    ),
    "A18 an unknown key of ours": Case(chat(gateway={"exlpain": True}), "invalid_value", param="gateway.exlpain"),
    # --- A19: media
    **{
        f"A19 {url.strip()[:40]}": Case(
            said({"type": "image_url", "image_url": {"url": url}}), "media_not_allowed",
            param="messages[0].content[0].image_url",
        )
        for url in (
            "http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "https://127.0.0.1/a.png",
            "http:/127.0.0.1",
            "file:///etc/passwd", "//127.0.0.1/a.png", "data:text/html;base64,AAAA", "data:image/svg+xml;base64,AAAA",
            " http://127.0.0.1/", " " * 257 + "http://127.0.0.1/", "", "gs://bucket/a.png", "/etc/passwd",
        )
    },
    "A19 an image as a plain string": Case(
        said({"type": "image_url", "image_url": "http://127.0.0.1/"}), "media_not_allowed",
        param="messages[0].content[0].image_url",
    ),
    "A19 no image at all": Case(
        said({"type": "image_url"}), "media_not_allowed", param="messages[0].content[0].image_url"
    ),
    "A19 a video": Case(
        said({"type": "video_url", "video_url": {"url": "http://127.0.0.1/"}}), "media_not_allowed",
        param="messages[0].content[0].video_url",
    ),
    "A19 a type of another API": Case(
        said({"type": "input_image", "image_url": "http://127.0.0.1/"}), "media_not_allowed",
        param="messages[0].content[0].image_url",
    ),
    "A19 a type we do not know": Case(
        said({"type": "made-up", "image": "//127.0.0.1/"}), "media_not_allowed", param="messages[0].content[0]",
    ),
    "A19 a file by address": Case(
        said({"type": "file", "file": {"file_id": "ht\ntps://127.0.0.1/"}}), "media_not_allowed",
        param="messages[0].content[0].file",
    ),
    "A19 an address beside the content": Case(
        chat(model="talk", messages=[{"role": "user", "content": "a", "images": ["http://127.0.0.1/"]}]),
        "media_not_allowed", param="messages[0].images",
    ),
    "A19 an address for a text model": Case(
        chat(messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}
        ]}]), "media_not_supported", param="messages[0].content[0]",
    ),
    "A19 an image for a text model": Case(
        chat(messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        ]}]), "media_not_supported", param="messages[0].content[0]",
    ),
    "A19 30 MiB of data": Case(b'{"x": "data:image/png;base64,' + b"A" * 30 * 2**20 + b'"}', "body_too_large", 413),
    # --- A21: length
    "A21 3 MiB for a template": Case(
        chat(messages=[{"role": "user", "content": "x" * 3 * 2**20}]), "context_length_exceeded", param="messages"
    ),
    "A21 3 MiB in many messages": Case(
        chat(messages=[{"role": "user", "content": "x" * 3 * 2**10}] * 2**10), "context_length_exceeded",
        param="messages",
    ),
    "A21 3 MiB as messages": Case(
        chat(model="talk", messages=[{"role": "user", "content": "x" * 3 * 2**20}]), "context_length_exceeded",
        param="messages",
    ),
    "A21 3 MiB raw": Case(
        {"model": "text", "prompt": "x" * 3 * 2**20}, "context_length_exceeded", param="prompt", path="/v1/completions"
    ),
    "A21 2 000 001 token ids": Case(
        b'{"model":"text","prompt":[' + b"1," * 2_000_000 + b"1]}", "context_length_exceeded", path="/v1/completions"
    ),
}
# fmt: on


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_input_is_refused_before_an_upstream_request(world: World, case: Case) -> None:
    before = world.up.request_count
    refused(world.post(case.body, case.path, **case.headers), case)
    assert world.up.request_count == before


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_stream_has_an_error_status(world: World, stream: bool) -> None:
    refused(world.post(chat(temperature=9, stream=stream)), Case(b"", "invalid_value", param="temperature"))


@pytest.mark.parametrize("body", [b'{"x":' + b"[" * 2_000_000, b'{"x":' + b'{"x":' * 400_000], ids=["lists", "objects"])
def test_a04_deep_json_is_refused_fast(world: World, body: bytes) -> None:
    # The bound is loose for slow machines; quadratic work on 2 MB would take minutes.
    replies: list[Reply] = []
    asking = threading.Thread(target=lambda: replies.append(world.post(body)), daemon=True)
    asking.start()
    asking.join(WAIT_SECONDS)
    refused(replies[0], Case(b"", "json_too_deep"))


# ---------------------------------------------------------------- what passes, and what the upstream then hears


def forward(world: World, body: bytes | dict[str, Any], path: str = CHAT, **headers: str) -> Any:
    before = world.up.request_count
    reply = world.post(body, path, **headers)
    assert reply.status == 200, reply.body
    assert world.up.request_count == before + 1
    return world.up.requests[-1]


def test_a04_63_levels_below_the_body_are_accepted(world: World) -> None:
    nested: Any = 1
    for _ in range(63):
        nested = [nested]
    assert forward(world, chat(x=nested)).body["x"] == nested


def test_a07_only_the_last_of_a_repeated_key_is_forwarded(world: World) -> None:
    body = b'{"model": "talk", "model": "text", ' + raw_chat('"seed": 1, "seed": 2')[1:].replace(
        b'"model": "text", ', b"", 1
    )
    forwarded = forward(world, body).body
    assert forwarded["seed"] == 2
    assert "prompt" in forwarded  # the text model was called, not the first one in the body


@pytest.mark.parametrize(
    ("model", "find"),
    [
        ("text", lambda body: body["prompt"]),
        ("talk", lambda body: body["messages"][0]["content"]),
    ],
)
def test_a09_nul_is_forwarded(world: World, model: str, find: Any) -> None:
    assert "a\0b" in find(forward(world, chat(model=model, messages=[{"role": "user", "content": "a\0b"}])).body)


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "APPLICATION/JSON",
        "application/json; charset=utf-8; x=y",
        "application/json; x=y; Charset = UTF8",
        "application/json;",
        "application/json; charset=utf-8;",
    ],
)
def test_a10_a_charset_of_utf8_is_accepted(world: World, kind: str) -> None:
    forward(world, chat(), content_type=kind)


def test_a11_content_encoding_identity_is_accepted(world: World) -> None:
    forward(world, chat(), content_encoding="identity")


def test_a16_the_role_is_named_and_escaped(world: World) -> None:
    message = world.post(CASES["A16 a role with line ends"].body).json()["error"]["message"]
    assert "a\\r\\nb" in message
    assert "\n" not in message


def test_a18_an_unknown_field_is_forwarded_by_the_default_policy(world: World) -> None:
    assert forward(world, chat(top_k=5)).body["top_k"] == 5


def test_a19_a_data_uri_reaches_a_model_that_takes_messages(world: World) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert forward(world, said(part)).body["messages"][0]["content"] == [part]


def test_a19_text_may_contain_a_url(world: World) -> None:
    part = {"type": "text", "text": "http://127.0.0.1/ is home"}
    assert forward(world, said(part)).body["messages"][0]["content"] == [part]


PLACEHOLDERS = (
    "{question}",
    "{api_key}",
    "{{7*7}}",
    "{% for x in y %}",
    "{0.__class__}",
    "{}",
    "%s",
    "%(a)s",
    "$x",
    "${x}",
    "\\n",
    "\\1",
    "</E>",
    "<|im_end|>",
    "{" * 40,
    "\u202e\u2028\ufeff",
    "\U0001f600",
    "e\u0301",
)


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a22_content_is_delivered_byte_for_byte(world: World, text: str) -> None:
    talk = forward(world, chat(model="talk", messages=[{"role": "user", "content": text}]))
    assert talk.body["messages"] == [{"role": "user", "content": text}]
    templated = forward(world, chat(messages=[{"role": "user", "content": text}]))
    assert templated.body["prompt"] == f"<HUMAN>: {text}<eoh>\n<BOT>: "
    raw = forward(world, {"model": "text", "prompt": text}, "/v1/completions")
    assert raw.body["prompt"] == text


# ---------------------------------------------------------------- A14: names leave no trace


def test_a14_unknown_models_add_no_series_and_no_line_breaks(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.post(chat(model="nobody"))
    world.served.wait_until_idle()
    before = _series(world)
    for name in ("other", "x" * 5000, "a\r\nb", "\u202egnp.exe", 'a"b\\c', "../text"):
        message = world.post(chat(model=name)).json()["error"]["message"]
        assert message.isprintable()
        assert message.isprintable()
        assert len(message) < 200
        assert "x" * 65 not in message
    assert world.served.wait_until_idle()
    assert _series(world) == before
    assert world.served.metric("gateway_requests_total", endpoint="chat", model="unknown", outcome="model_not_found")
    assert all("\n" not in record.getMessage() for record in caplog.records)


def _series(world: World) -> set[str]:
    text = world.served.http.get("/metrics").text
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


# ---------------------------------------------------------------- bytes that no client would send

BODY = json.dumps(chat()).encode()
LIMIT = 4 * 2**20


def head(first: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join([first + b" HTTP/1.1", HEAD.rstrip(), *lines]) + b"\r\n\r\n"


POST = b"POST /v1/chat/completions"
LONG = b"Content-Length: %d" % (LIMIT + 1)
CHUNKED = b"Transfer-Encoding: chunked"
CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"

EMPTY = {
    "A03 no length": head(POST),
    "A03 length 0": head(POST, b"Content-Length: 0"),
    "A03 no chunks": head(POST, CHUNKED) + b"0\r\n\r\n",
}


@pytest.mark.parametrize("sent", EMPTY.values(), ids=EMPTY)
def test_a03_an_empty_body_is_invalid_json(world: World, sent: bytes) -> None:
    reply = world.raw(sent)
    refused(reply, Case(b"", "invalid_json"))
    assert not reply.closed


def test_a_chunked_body_is_accepted(world: World) -> None:
    half = len(BODY) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:half], BODY[half:], b""))
    assert world.raw(head(POST, CHUNKED) + chunks).status == 200


TOO_LARGE = {
    "A12 said in the head, nothing sent": [head(POST, LONG)],
    "A12 said in the head, and sent": [head(POST, LONG), b"x" * (LIMIT + 1)],
    "A12 64 MiB": [head(POST, b"Content-Length: 67108864"), *[b"x" * 65536] * 1024],
    "A13 in chunks": [head(POST, CHUNKED), *[CHUNK] * 65],
    "A13 in endless chunks": [head(POST, CHUNKED), *[CHUNK] * 1024],
}


@pytest.mark.parametrize("sent", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a12_a13_a_body_over_the_limit_closes_the_connection(world: World, sent: list[bytes]) -> None:
    before = world.up.request_count
    reply = world.raw(*sent)
    refused(reply, Case(b"", "body_too_large", 413))
    assert reply.headers["connection"] == "close"
    assert reply.closed
    assert world.up.request_count == before


def test_a13_a_body_of_exactly_the_limit_is_accepted(world: World) -> None:
    body = BODY + b" " * (LIMIT - len(BODY))
    assert world.raw(head(POST, b"Content-Length: %d" % LIMIT), body).status == 200


NO_HTTP = {
    "both a length and chunks": head(POST, b"Content-Length: 5", CHUNKED) + b"0\r\n\r\n",
    "a negative length": head(POST, b"Content-Length: -5"),
    "two lengths": head(POST, b"Content-Length: 5", b"Content-Length: 6") + b"hello",
    "an absurd length": head(POST, b"Content-Length: " + b"9" * 30),
    "a chunk that is none": head(POST, CHUNKED) + b"zz\r\n\r\n",
    "a byte in the path": head(b"GET /\xff"),
    "a byte in the path behind an offer": head(b"GET /\xff", b"Connection: Upgrade", b"Upgrade: h2c"),
    "CONNECT": head(b"CONNECT elsewhere:80"),
    "no method": head(b"GARBAGE /"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a folded header": b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n x: y\r\nA:\r\n b\r\n\r\n",
}


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP)
def test_invalid_http_gets_an_error_object_and_a_closed_connection(world: World, sent: bytes) -> None:
    before = world.up.request_count
    reply = world.raw(sent)
    assert reply.status == 400
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert reply.closed
    assert world.up.request_count == before


UNSUPPORTED = {
    "CONNECT": (NO_HTTP["CONNECT"], "the gateway is not a proxy, so it does not support CONNECT"),
    "gzip": (head(POST, b"Transfer-Encoding: gzip, chunked"), "the only supported transfer-encoding is chunked"),
    "HTTP/0.9": (b"GET /health HTTP/0.9\r\n\r\n", "HTTP/0.9 is not supported; use HTTP/1.1"),
    "no method": (NO_HTTP["no method"], "the request is not valid HTTP/1.1"),
}


@pytest.mark.parametrize(("sent", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_an_unsupported_part_of_http_is_named(world: World, sent: bytes, message: str) -> None:
    reply = world.raw(sent)
    assert (reply.status, reply.json()["error"]["message"]) == (400, message)
    assert reply.closed


LENGTH = b"Content-Length: %d" % len(BODY)

PATHS = {
    "A20 two slashes": (b"POST //v1//chat/completions", 404, "route_not_found"),
    "A20 two slashes, short": (b"GET //v1//chat", 404, "route_not_found"),
    "A20 dots": (b"POST /v1/../v1/chat/completions", 404, "model_not_found"),
    "A20 quoted dots": (b"POST /v1/%2e%2e/v1/chat/completions", 404, "model_not_found"),
    "A20 quoted dots behind a model": (b"GET /text/v1/%2e%2e/models", 404, "route_not_found"),
    "A20 quoted slashes": (b"POST /v1%2fchat%2fcompletions", 404, "route_not_found"),
    "A20 a quoted letter": (b"POST /%761/chat/completions", 404, "route_not_found"),
    "A20 a trailing slash": (b"POST /v1/chat/completions/", 404, "route_not_found"),
    "A20 upper case": (b"POST /V1/CHAT/COMPLETIONS", 404, "route_not_found"),
    "A20 OPTIONS *": (b"OPTIONS *", 404, "route_not_found"),
    "A20 another route of the platform": (b"GET /docs", 404, "route_not_found"),
    "A20 an unknown model in the path": (b"POST /nobody/v1/chat/completions", 404, "model_not_found"),
    "A20 a model that climbs": (b"GET /v1/models/..%2f..%2fetc", 404, "model_not_found"),
    "A20 GET": (b"GET /v1/chat/completions", 405, "method_not_allowed"),
    "A20 PUT": (b"PUT /v1/chat/completions", 405, "method_not_allowed"),
    "A20 DELETE": (b"DELETE /v1/models/text", 405, "method_not_allowed"),
    "A20 OPTIONS": (b"OPTIONS /v1/chat/completions", 405, "method_not_allowed"),
    "A20 TRACE": (b"TRACE /v1/chat/completions", 405, "method_not_allowed"),
    "A20 POST to a list": (b"POST /v1/models", 405, "method_not_allowed"),
}


@pytest.mark.parametrize(("first", "status", "code"), PATHS.values(), ids=PATHS)
def test_a20_a_wrong_path_or_method_is_a_json_error(world: World, first: bytes, status: int, code: str) -> None:
    before = world.up.request_count
    reply = world.raw(head(first, LENGTH) + BODY)
    refused(reply, Case(b"", code, status, "model" if code == "model_not_found" else None))
    assert "location" not in reply.headers
    assert ("allow" in reply.headers) == (status == 405)
    assert world.up.request_count == before


def test_a20_head_has_no_body(world: World) -> None:
    wrong = world.served.http.head(CHAT)
    assert (wrong.status_code, wrong.content, wrong.headers["content-type"]) == (405, b"", "application/json")
    right = world.served.http.head("/v1/models")
    assert (right.status_code, right.content) == (200, b"")


WEBSOCKET = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: AAAA", b"Sec-WebSocket-Version: 13")


def test_a20_a_websocket_upgrade_is_refused(world: World) -> None:
    reply = world.raw(head(b"GET /v1/chat/completions", *WEBSOCKET))
    refused(reply, Case(b"", "method_not_allowed", 405))


H2C = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__")


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_request_with_an_h2c_upgrade_is_answered_over_http_1(world: World, pieces: int) -> None:
    """Java's HTTP client sends an h2c upgrade with every request over plain TCP."""
    sent = head(POST, *H2C, LENGTH) + BODY
    step = len(sent) // pieces + 1
    reply = world.raw(*[sent[i : i + step] for i in range(0, len(sent), step)])
    assert reply.status == 200
    assert not reply.closed


def test_requests_after_an_h2c_upgrade_are_answered(world: World) -> None:
    before = world.up.request_count
    offer = head(POST, *H2C, LENGTH) + BODY
    plain = head(POST, b"Connection: close", LENGTH) + BODY
    # Read to the end: a disconnect after the first response would cancel the others.
    assert read_all(world.served.port, offer + offer + plain).count(b"HTTP/1.1 200 OK") == 3
    assert world.up.request_count == before + 3


def test_counting_a_long_prompt_does_not_block_other_calls(tmp_path: Path) -> None:  # A21, T15
    """The tokenizer runs in a thread and releases the GIL."""
    target = f"{{speaks: embedded, path: {ROOT / 'demo' / 'model'}}}"
    config = f"models: {{demo: {{template: sft-demo, targets: [{target}]}}}}"
    with gateway(tmp_path, config) as served, ThreadPoolExecutor(1) as pool:
        long = "1+1=? " * 50_000
        for path in ("/v1/chat/completions", "/v1/render"):
            body = {"model": "demo", "messages": [{"role": "user", "content": long}]}
            shares: list[float] = []
            while min(shares, default=1.0) > 0.5 and len(shares) < 5:  # other work on the machine may delay some
                call = pool.submit(served.http.post, path, json=body)
                began, longest = time.monotonic(), 0.0
                while not call.done():
                    started = time.monotonic()
                    assert (
                        httpx.get(f"{served.root}/health/live", trust_env=False, verify=False, timeout=60).status_code
                        == 200
                    )
                    longest = max(longest, time.monotonic() - started)
                shares.append(longest / (time.monotonic() - began))
                assert call.result().status_code in (200, 400)
            assert min(shares) < 0.5, f"{path} kept others waiting for {min(shares):.0%} of its time"
