"""The faulty upstream has every mode of the fault matrix, and records requests and early closes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from tests.support.upstream.modes import MODES
from tests.support.upstream.modes_constraint import PROSE
from tests.support.upstream.server import FaultyUpstream

MATRIX = """\
hang-headers early-close reset bad-status-line partial-headers dribble-headers huge-headers many-headers
header-injection cl-and-te cl-too-short redirect redirect-307 html-502 500 503 529 418 503-retry-after 429-retry-after
429-quota 402 401 403 400 400-context 404 200-html 200-empty 200-array 200-no-choices 200-truncated 204 200-error-body
flaky-first-chunk wrong-content-type wrong-mode gzip gzip-corrupt huge-json deep-json odd-numbers flaky interim-flood
http10 drop-midstream reset-midstream flaky-midstream no-done no-finish done-only empty-stream data-after-done
late-close error-midstream error-event malformed-sse comments crlf-sse no-final-blank-line one-byte-writes split-utf8
split-surrogate lone-surrogate invalid-utf8 eos split-stop partial-stop stop-lookalike stop-first stop-then-endless
forged-turn multi-choice slow-ttfb pause-resume stall-midstream keepalive-only empty-deltas never-ends huge-line
dup-finish usage-cumulative usage-bad tool-calls reasoning
quirk-no-done quirk-stop-left-in quirk-no-usage quirk-numeric-code quirk-detail quirk-list-500 quirk-n-ignored
quirk-bos-echo
"""


def test_the_server_has_every_mode_of_the_matrix() -> None:
    assert set(MATRIX.split()) <= set(MODES)


def test_requests_are_recorded() -> None:
    with FaultyUpstream() as up:
        connection = http.client.HTTPConnection("127.0.0.1", up.port)
        path = up.url("ok", k="a b").removeprefix(f"http://127.0.0.1:{up.port}") + "/chat/completions"
        connection.request("POST", path, b'{"model": "x"}')
        assert connection.getresponse().status == 200
        connection.close()
        (request,) = up.requests
        assert (request.mode, request.options, request.endpoint, request.body) == (
            "ok",
            {"k": "a b"},
            "chat",
            {"model": "x"},
        )
        assert (up.request_count, up.closed_early) == (1, [])


def test_an_early_close_by_the_client_is_recorded() -> None:
    with FaultyUpstream() as up:
        connection = http.client.HTTPConnection("127.0.0.1", up.port)
        connection.request("POST", "/hang-headers/v1/completions", b"{}")
        assert up.wait(lambda: up.active == 1)
        connection.close()
        assert up.wait(lambda: up.active == 0)
        assert len(up.closed_early) == 1


SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["x", 1]}}}, "required": ["a"]}
CONSTRAINED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # engine: the engine's field, and another engine's
    "vllm": ({"structured_outputs": {"json": SCHEMA}}, {"json_schema": SCHEMA}),
    "sglang": ({"json_schema": json.dumps(SCHEMA)}, {"structured_outputs": {"json": SCHEMA}}),
    "llamacpp": ({"json_schema": SCHEMA}, {"json_schema": SCHEMA, "grammar": None}),
}


def ask(up: FaultyUpstream, url: str, stream: bool, body: Mapping[str, Any]) -> tuple[str, str]:
    """The text and the finish reason of a completion."""
    connection = http.client.HTTPConnection("127.0.0.1", up.port)
    path = url.removeprefix(f"http://127.0.0.1:{up.port}") + "/completions"
    connection.request("POST", path, json.dumps({"prompt": "p", "stream": stream, **body}))
    answer = connection.getresponse().read().decode()
    connection.close()
    parts = [line[6:] for line in answer.splitlines() if line.startswith("data: {")] if stream else [answer]
    choices = [choice for part in parts for choice in json.loads(part)["choices"]]
    return "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("engine", CONSTRAINED)
def test_an_engine_obeys_its_own_constraint_and_ignores_that_of_another(engine: str, stream: bool) -> None:
    own, other = CONSTRAINED[engine]
    mode = f"constrained-{engine}"
    with FaultyUpstream() as up:
        for seed in range(5):
            text, finish = ask(up, up.url(mode, seed=seed), stream, own)
            jsonschema.validate(json.loads(text), SCHEMA)
            assert finish == "stop"
        assert ask(up, up.url(mode), stream, other) == (PROSE, "stop")
        assert ask(up, up.url(mode, cut=4), stream, own)[1] == "length"
        assert ask(up, up.url("constraint-ignored"), stream, own) == (PROSE, "stop")
