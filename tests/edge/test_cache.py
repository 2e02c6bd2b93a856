"""The cache over HTTP: headers, streams, keys, repeats, metrics (row F19 of ``docs/spec/reliability.md``)."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.support.serving import Gateway
from tests.support.world import gateway_fixture, key_file

FILES = {
    "keys.yaml": key_file({"a": "", "b": ""}),
    "policies/cached.yaml": "cache: {mode: on}\n",
    "policies/together.yaml": "cache: {mode: on, coalesce: true}\n",
    "policies/plain.yaml": "delivery: {fallback: true}\n",
    "answer.yaml": "[hel, lo, {finish: stop}, {usage: [10, 5]}]\n",
}
FILES["bad.yaml"] = "[{error: upstream_disconnected}]\n"
FILES["slow.yaml"] = "[hel, {pause: 2}, lo, {finish: stop}, {usage: [10, 5]}]\n"
FILES["large.yaml"] = f"[hel, {'x' * 4_000_000}, {{finish: stop}}]\n"
CONFIG = """
keys: {file: keys.yaml}
cache: {path: cache.sqlite}
models:
  cached: {template: chat, policy: cached, targets: [{speaks: scripted, script: answer.yaml}]}
  together: {template: chat, policy: together, targets: [{speaks: scripted, script: slow.yaml}]}
  large: {template: chat, policy: together, targets: [{speaks: scripted, script: large.yaml}]}
  plain: {template: chat, policy: plain, targets: [{speaks: scripted, script: answer.yaml}]}
  first: {template: chat, policy: plain, fallback: [cached], targets: [{speaks: scripted, script: bad.yaml}]}
"""


served = gateway_fixture(CONFIG, FILES)


def ask(served: Gateway, text: str, key: str = "a", model: str = "cached", **fields: object) -> httpx.Response:
    return served.chat(model, text, key, **fields)


def test_a_hit_has_the_same_body_its_age_and_no_attempt(served: Gateway) -> None:
    first, second = ask(served, "same"), ask(served, "same", gateway={"explain": True})
    assert first.headers["x-gateway-cache"] == "miss"
    assert second.headers["x-gateway-cache"] in ("hit; age=0", "hit; age=1")
    assert (second.headers["x-gateway-attempts"], second.headers["x-gateway-target"]) == ("0", "cached/0")
    assert {**second.json(), "id": "", "created": 0} | {"gateway": None} == {
        **first.json(),
        "id": "",
        "created": 0,
        "gateway": None,
    }
    assert second.json()["gateway"]["cache"] == "hit"
    assert first.json()["id"] != second.json()["id"]


def test_a_stream_is_replayed_as_events(served: Gateway) -> None:
    streams = [ask(served, "streamed", stream=True, stream_options={"include_usage": True}) for _ in range(2)]
    assert [one.headers["x-gateway-cache"].partition(";")[0] for one in streams] == ["miss", "hit"]
    kinds = [[line.partition(":")[0] for line in one.text.splitlines()] for one in streams]
    assert kinds[0] == kinds[1]
    assert streams[1].text.endswith("data: [DONE]\n\n")


def test_no_key_gets_the_answer_of_another_key(served: Gateway) -> None:
    ask(served, "secret", "a")
    assert ask(served, "secret", "b").headers["x-gateway-cache"] == "miss"
    assert ask(served, "secret", "a").headers["x-gateway-cache"].startswith("hit")


def test_no_key_gets_the_answer_of_another_key_through_a_fallback(served: Gateway) -> None:
    results = [ask(served, "fallback", key, "first").headers["x-gateway-cache"] for key in ("a", "b", "a")]
    assert [one.partition(";")[0] for one in results] == ["miss", "miss", "hit"]


def test_each_repeat_index_has_its_own_answer(served: Gateway) -> None:
    answers = [ask(served, "again", gateway={"repeat": number}) for number in (0, 1, 0, 1)]
    assert [one.headers["x-gateway-cache"].partition(";")[0] for one in answers] == ["miss", "miss", "hit", "hit"]
    assert ask(served, "again").headers["x-gateway-cache"].startswith("hit"), "without an index it is 0"
    refused = ask(served, "again", gateway={"repeat": -1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "gateway.repeat")


def test_equal_requests_at_the_same_time_make_one_call_and_have_a_notice(served: Gateway) -> None:
    streams = [True, False] * 6
    with ThreadPoolExecutor(12) as pool:
        sent = [pool.submit(ask, served, "x", model="together", temperature=0, stream=stream) for stream in streams]
        answers = [one.result() for one in sent]
    assert served.counted("gateway_attempts_total", model="together", target="together/0", outcome="ok") == 2
    assert {one.status_code for one in answers} == {200}
    for stream in (True, False):
        equal = [one for one, is_stream in zip(answers, streams, strict=True) if is_stream == stream]
        (call,) = [one for one in equal if one.headers["x-gateway-cache"] == "miss"]
        noted = [one for one in equal if "x-gateway-notice" in one.headers]  # one that came later has no notice
        assert {one.headers["x-gateway-notice"] for one in noted} == {f"coalesced: {call.headers['x-request-id']}"}
        assert {one.headers["x-gateway-attempts"] for one in noted} == {"0"}
        assert all("lo" in one.text and one.text.endswith("data: [DONE]\n\n") == stream for one in equal)


def test_a_client_that_stops_reading_delays_no_equal_request(served: Gateway) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "model": "large", "temperature": 0, "stream": True}
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((served.http.base_url.host, served.http.base_url.port))
        request = served.http.build_request(
            "POST", "/v1/chat/completions", json=body, headers={"authorization": "Bearer a"}
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        slow.sendall(f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + request.content)
        assert slow.recv(12) == b"HTTP/1.1 200"
        answer = ask(served, "x", model="large", temperature=0, stream=True)
    assert answer.headers["x-gateway-cache"].startswith("hit")
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_policy_without_a_cache_has_no_header(served: Gateway) -> None:
    for _ in range(2):
        assert "x-gateway-cache" not in ask(served, "x", model="plain", gateway={"repeat": 1}).headers


def test_hits_and_their_tokens_are_counted_apart(served: Gateway) -> None:
    def numbers() -> list[float]:
        looked_up = [
            served.metric("gateway_cache_requests_total", model="cached", result=one) for one in ("hit", "miss")
        ]
        tokens = [
            served.metric("gateway_tokens_total", model="cached", direction="completion", source=one)
            for one in ("cache", "upstream")
        ]
        targets = served.metric("gateway_upstream_seconds_count", model="cached", target="cached/0", stream="false")
        return [*looked_up, *tokens, targets]

    before = numbers()
    for _ in range(3):
        ask(served, "counted")
    assert [after - earlier for earlier, after in zip(before, numbers(), strict=True)] == [2, 1, 10, 5, 1]
