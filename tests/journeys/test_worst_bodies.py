"""A body of 4 MiB does not delay other calls: ``/health`` is requested while the worst bodies are read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.edge.raw import HEAD, read_reply
from tests.journeys.process import Process, serving
from tests.support.upstream.server import refused_url

SIZE = 4 * 2**20 - 400
CONFIG = """
models:
  text: {{template: sft-demo, targets: [{{speaks: completions, url: "{url}"}}]}}
  talk: {{template: chat, targets: [{{speaks: chat, url: "{url}"}}]}}
  strict: {{template: sft-demo, policy: production, targets: [{{speaks: completions, url: "{url}"}}]}}
"""
LIMIT = 5.0
"""Seconds; more than ten times the longest wait on a machine that does two other things."""


def full(piece: str, size: int = SIZE) -> str:
    return ",".join([piece] * (size // (len(piece) + 1)))


def keys(value: str, count: int, begin: str = "") -> str:
    return ",".join(f'"{begin}{i:x}":{value}' for i in range(count))


def chat(fields: str, model: str = "talk") -> str:
    return f'{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}],{fields}}}'


def said(fields: str) -> str:
    return f'{{"model":"talk","messages":[{{"role":"user",{fields}}}]}}'


def part(items: str) -> str:
    return said(f'"content":[{{"type":"x","y":[{items}]}}]')


def response(items: str, fields: str = '"store":false') -> str:
    return f'{{"model":"talk","input":[{items}],{fields}}}'


def raw(items: str) -> str:
    return f'{{"model":"text","prompt":[{items}]}}'


LISTS = "[" * 55 + "]" * 55
OBJECTS = '{"a":' * 55 + "1" + "}" * 55
FUNCTION_CALL = '{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}'
FEW = 60_000
"""Nodes within the bound."""
ITEMS = 2 * 10**6
"""Bytes of a list of digits whose items are within the bound."""
CHAT, RAW, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"

WORST: dict[str, tuple[str, str]] = {
    "unknown keys": (CHAT, chat(keys("1", 370_000))),
    "fewer unknown keys": (CHAT, chat(keys("1", FEW))),
    "as many unknown keys as may be": (CHAT, chat(keys("1", 500, "k" * 8000))),
    "as many unknown keys, refused by name": (CHAT, chat(keys("1", 500, "k" * 8000), "strict")),
    "empty lists": (CHAT, chat(f'"x":[{full("[]")}]')),
    "as many empty lists as may be": (CHAT, chat(f'"x":[{full("[]", 3 * FEW)}]')),
    "nested lists": (CHAT, chat(f'"x":[{full(LISTS)}]')),
    "as many nested lists as may be": (CHAT, chat(f'"x":[{full(LISTS, 2 * FEW)}]')),
    "nested objects": (CHAT, chat(f'"x":[{full(OBJECTS)}]')),
    "empty strings": (CHAT, chat('"x":[' + full('""') + "]")),
    "numbers": (CHAT, chat(f'"x":[{full("1")}]')),
    "as many fractions as may be": (CHAT, chat(f'"x":[{full("1.5")}]')),
    "nested parts": (CHAT, part(full(LISTS))),
    "as many nested parts as may be": (CHAT, part(full(LISTS, 2 * FEW))),
    "numbers in a part": (CHAT, part(full("1", ITEMS))),
    "keys of a message": (CHAT, said('"content":"a",' + keys("1", FEW))),
    "stops that are none": (CHAT, chat(f'"stop":[{full("1", ITEMS)}]')),
    "modalities that are none": (CHAT, chat(f'"modalities":[{full("1", ITEMS)}]')),
    "tool calls that are none": (CHAT, said(f'"content":"a","tool_calls":[{full("1", ITEMS)}]')),
    "biases that are none": (CHAT, chat('"logit_bias":{' + keys("{}", FEW // 2) + "}")),
    "options that are none": (CHAT, chat('"gateway":{' + keys("1", FEW) + "}")),
    "token ids": (RAW, raw(full("1"))),
    "as many token ids as may be": (RAW, raw(full("123"))),
    "keys of an item": (RESPONSES, response('{"role":"user","content":"a",' + keys("1", FEW) + "}")),
    "labels that are none": (
        RESPONSES,
        response('{"role":"user","content":"a"}', '"metadata":{' + keys("1", FEW) + "}"),
    ),
    "as many calls as may be": (RESPONSES, response(",".join([FUNCTION_CALL] * 4000))),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    # The target is a closed port: a server in this process would delay the measurement by reading the bodies.
    with serving(tmp_path_factory.mktemp("worst"), {"gateway.yaml": CONFIG.format(url=refused_url())}) as process:
        yield process


@pytest.mark.parametrize(("path", "text"), WORST.values(), ids=WORST)
def test_the_worst_bodies_do_not_delay_health(served: Process, path: str, text: str) -> None:
    body = text.encode()
    assert len(body) <= 4 * 2**20
    request = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path.encode(), HEAD, len(body), body)
    answered = threading.Event()
    statuses: list[int] = []

    def post() -> None:
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as link:
            link.sendall(request)
            statuses.append(read_reply(link).status)
        answered.set()

    asking = threading.Thread(target=post)
    asking.start()
    waits: list[float] = []
    while not (waits and answered.is_set()):
        begun = time.perf_counter()
        assert served.http.get("/health/live").status_code == 200
        waits.append(time.perf_counter() - begun)
    asking.join()
    print(f"longest wait {max(waits):.3f} s, status {statuses[0]}")
    assert statuses[0] in (400, 502)
    assert max(waits) < LIMIT
