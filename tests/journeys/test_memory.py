"""The memory of a request is freed when its call ends, for each kind of end, without the cyclic collector."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import socket
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.process import serving
from tests.journeys.without_collector import REPORT, marked
from tests.support.serving import eventually
from tests.support.upstream.server import FaultyUpstream, refused_url

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs SIGUSR1 and /proc")

KEY = "gk_test"

FILES = {
    "keys.yaml": f'tests: {{sha256: "{hashlib.sha256(KEY.encode()).hexdigest()}"}}\n',
    "policies/patient.yaml": "params: {forbid: [seed]}\n",
    "policies/hasty.yaml": "delivery: {timeout: {first_token: 100ms}, retry: {attempts: 2}}\n",
    "policies/idle.yaml": "delivery: {timeout: {idle: 100ms}}\n",
    "policies/short.yaml": "delivery: {timeout: {total: 200ms}}\n",
    "policies/cut.yaml": "delivery: {timeout: {total: 2s}}\n",  # long enough for the first text
    "policies/recorded.yaml": "record: full\n",
    "meta_templates/sft.yaml": (
        'round:\n  - {role: HUMAN, begin: "H: ", end: "\\n"}\n'
        '  - {role: BOT, begin: "B: ", end: "<eob>\\n", generate: true}\n'
    ),
}

MODELS = {
    "ok": ("ok", "patient"),
    "embeds": ("ok", "patient"),
    "recorded": ("ok", "recorded"),
    "error": ("500", "patient"),
    "rejects": ("400", "patient"),
    "limits": ("429", "patient"),
    "flaky": ("flaky", "patient"),
    "no-http": ("garbage", "patient"),
    "closes": ("early-close", "patient"),
    "silent": ("hang-headers", "hasty"),
    "slow": ("hang-headers", "patient"),
    "late": ("hang-headers", "short"),
    "half": ("hang-body", "short"),
    "stalls": ("stall-midstream", "idle"),
    "endless": ("stop-then-endless", "cut"),
    "goes-on": ("stop-then-endless", "patient"),
    "flood": ("flood", "patient"),
    "breaks": ("drop-midstream", "patient"),
    "resets": ("reset-midstream", "patient"),
    "error-event": ("error-midstream", "patient"),
    "unfinished": ("no-finish", "patient"),
    "garbled": ("malformed-sse", "patient"),
    "ignores-n": ("quirk-n-ignored", "patient"),
}
"""Model → (mode of the upstream, policy)."""


def configuration(up: FaultyUpstream, server: str) -> str:
    lines = [
        "server: {max_body: 1MiB}",
        "keys: {file: keys.yaml}",
        "recordings: {path: calls.sqlite}",
        "models:",
        f'  refused: {{template: sft, targets: [{{speaks: completions, url: "{refused_url()}"}}]}}',
    ]
    for name, (mode, policy) in MODELS.items():
        url = up.url(mode, run=server + name)
        lines += [
            f"  {kind}{name}: {{template: {template}, policy: {policy}, targets: "
            f'[{{speaks: {speaks}, url: "{url}", model: m}}, {{speaks: {speaks}, url: "{url}", model: n}}]}}'
            for kind, template, speaks in (("", "sft", "completions"), ("chat-", "chat", "chat"))
        ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Case:
    """One call with a large body, and its expected end."""

    model: str
    outcome: str = "ok"
    fields: dict[str, Any] = field(default_factory=dict)
    path: str = "/v1/chat/completions"
    leaves: str = ""
    """When the client disconnects: ``sent``, ``begun`` or ``half sent``; empty: after the whole answer."""
    key: str = KEY
    raw: str = ""
    """A body instead of the default one; ``TEXT`` in it and in ``fields`` stands for the large text."""

    def body(self, text: str) -> bytes:
        said = {"messages": [{"role": "user", "content": "TEXT"}]} if "chat" in self.path else {}
        body = self.raw or json.dumps({"model": self.model, **said, **self.fields})
        return body.replace("TEXT", text).encode()


STREAM = {"stream": True}
RAW = "/v1/completions"
CASES = {
    "whole": Case("ok"),
    "whole, messages": Case("chat-ok"),
    "streamed": Case("ok", fields=STREAM),
    "recorded": Case("recorded"),
    "recorded, streamed": Case("chat-recorded", fields=STREAM),
    "streamed, messages": Case("chat-ok", fields=STREAM),
    "a completion": Case("ok", path=RAW, fields={"prompt": "TEXT"}),
    "embeddings": Case("ok", path="/v1/embeddings", fields={"input": "TEXT"}),
    "three choices": Case("ignores-n", fields={"n": 3}),
    "three choices, streamed": Case("ignores-n", fields={"n": 3, **STREAM}),
    "two prompts": Case("ok", path=RAW, fields={"prompt": ["TEXT", "TEXT"]}),
    "three choices that break": Case("breaks", "upstream_disconnected", {"n": 3, **STREAM}),
    "no JSON": Case("unknown", "invalid_json", raw='{"model": "TEXT'),
    "not an object": Case("unknown", "invalid_body", raw='["TEXT"]'),
    "a wrong value": Case("unknown", "invalid_value", {"messages": "TEXT"}),
    "a wrong key": Case("unknown", "invalid_api_key", key="wrong"),
    "an unknown model": Case("unknown", "model_not_found"),
    "a forbidden parameter": Case("ok", "forbidden_parameter", {"seed": 1}),
    "too large": Case("unknown", "body_too_large", {"user": "TEXT" * 5}),
    "refused by the engine": Case("rejects", "upstream_rejected_request"),
    "an engine that fails": Case("error", "upstream_error"),
    "an engine that fails, streamed": Case("error", "upstream_error", STREAM),
    "an engine that limits": Case("limits", "upstream_rate_limited"),
    "no server": Case("refused", "upstream_unreachable"),
    "not HTTP": Case("no-http", "upstream_invalid_response"),
    "closed at once": Case("closes", "upstream_disconnected"),
    "tried again": Case("flaky"),
    "no first token": Case("silent", "upstream_timeout", STREAM),
    "no head in time": Case("late", "upstream_timeout"),
    "no end in time": Case("half", "upstream_timeout"),
    "silent in the stream": Case("stalls", "upstream_idle_timeout", STREAM),
    "too long a stream": Case("chat-endless", "deadline_exceeded", STREAM),
    "broken in the stream": Case("breaks", "upstream_disconnected", STREAM),
    "reset in the stream": Case("chat-resets", "upstream_disconnected", STREAM),
    "an error in the stream": Case("error-event", "upstream_error", STREAM),
    "no end of the stream": Case("unfinished", "upstream_incomplete", STREAM),
    "a garbled stream": Case("garbled", "upstream_invalid_stream", STREAM),
    "left before an answer": Case("slow", "client_gone", leaves="sent"),
    "left before a stream": Case("slow", "client_gone", STREAM, leaves="sent"),
    "left in a stream": Case("chat-goes-on", "client_gone", STREAM, leaves="begun"),
    "left without reading": Case("flood", "client_gone", STREAM, leaves="begun"),
    "left in the body": Case("unknown", "client_gone", leaves="half sent"),
}


@dataclass
class Served:
    """The log and the report of a process that has served every case."""

    log: str
    memory: dict[str, dict[str, list[str]]]

    def outcome(self, name: str) -> str:
        """The outcome of a case's call, from its line in the log."""
        found = re.search(rf"{_id(name)} .* outcome=(\S+)", self.log)
        return found[1] if found else "none"


def _id(name: str) -> str:
    return re.sub(r"\W+", "-", name)


@pytest.fixture(scope="module", params=["own", "asgi"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp(request.param)
    with FaultyUpstream() as up:
        files = {**FILES, "gateway.yaml": configuration(up, request.param)}
        command = ["-m", "tests.journeys.without_collector", *(["asgi"] if request.param == "asgi" else [])]
        with serving(folder, files, command, GATEWAY_CONFIG="gateway.yaml") as process:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda name: call(process.port, name), CASES))
            assert eventually(lambda: process.log.count("outcome=") >= len(CASES)), process.log
            assert eventually(lambda: recorded(folder) == 2), process.log
            assert process.http.get("/health").status_code == 200  # the task of the last call has ended
            process.signal(signal.SIGUSR1)
            assert eventually((folder / REPORT).exists), process.log
            return Served(process.log, json.loads((folder / REPORT).read_text(encoding="utf-8")))


def recorded(folder: Path) -> int:
    """The number of calls in the file of recordings, which waits for further calls before it is written."""
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database:
        found: tuple[int] = database.execute("SELECT count(*) FROM calls").fetchone()
    return found[0]


def call(port: int, name: str) -> None:
    """Send the case's request, and read the answer or disconnect."""
    case = CASES[name]
    body = case.body(marked(name))
    head = (
        f"POST {case.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Authorization: Bearer {case.key}\r\nX-Request-Id: {_id(name)}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(head.encode())
        link.sendall(body[: len(body) // 2])
        if case.leaves == "half sent":
            time.sleep(0.05)
            return
        link.sendall(body[len(body) // 2 :])
        if case.leaves == "sent":
            time.sleep(0.2)
        while case.leaves != "sent" and link.recv(65536) and not case.leaves:
            pass


@pytest.mark.parametrize("name", CASES)
def test_an_ended_call_keeps_no_part_of_its_request_in_memory(served: Served, name: str) -> None:
    assert served.outcome(name) == CASES[name].outcome
    assert name not in served.memory["garbage"], "a reference cycle holds the request"
    assert name not in served.memory["live"]


def test_no_other_large_text_is_in_memory(served: Served) -> None:
    assert "?" not in {**served.memory["garbage"], **served.memory["live"]}


# ---------------------------------------------------------------- a gateway as it is started

MEGABYTES_GROWN = 20

FAILING: dict[str, dict[str, Any]] = {
    "refused": {"model": "refused"},
    "forbidden": {"model": "forbids", "seed": 1},
    "wrong": {"model": "refused", "temperature": "high"},
}


def resident(pid: int) -> float:
    """Megabytes of memory in use."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def test_100_large_failed_calls_do_not_increase_memory(tmp_path: Path) -> None:
    target = f'targets: [{{speaks: completions, url: "{refused_url()}"}}]'
    config = (
        f"models:\n  refused: {{template: sft, {target}}}\n  forbids: {{template: sft, policy: patient, {target}}}\n"
    )
    message = {"role": "user", "content": "many words " * 180_000}
    bodies = [json.dumps({"messages": [message], **fields}) for fields in FAILING.values()]
    with serving(tmp_path, {**FILES, "gateway.yaml": config}) as process:

        def fail(times: int) -> None:
            for number in range(times):
                body, kind = bodies[number % len(bodies)], {"content-type": "application/json"}
                answer = process.http.post("/v1/chat/completions", content=body, headers=kind)
                assert answer.status_code in (400, 502)

        fail(6)
        before = resident(process.process.pid)
        fail(99)
        assert resident(process.process.pid) - before < MEGABYTES_GROWN
