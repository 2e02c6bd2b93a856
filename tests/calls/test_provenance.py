"""The ``x-gateway-*`` headers of a response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.assembly import bare_route
from gateway.calls.endpoints.provenance import provenance
from gateway.calls.endpoints.sink import HeaderFields, header_layout
from gateway.calls.preparation.prepare import Prepared, prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.config.snapshot import ModelSpec, PolicySpec, TargetSpec
from gateway.core.exchange import AttemptLog
from gateway.wire.requests import read_chat, read_completion
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.values.events import Begun

ROUND = (RoleSpec("HUMAN", "Q: ", "\n"), RoleSpec("BOT", "A: ", generate=True))
STRING = TemplateSpec("t", "meta", round=ROUND, digest="0123456789ab")
MESSAGES = TemplateSpec("c", "chat", digest="ba9876543210")
CASES: dict[str, tuple[TemplateSpec, dict[str, Any], str]] = {  # template, fields, template header
    "a text": (STRING, {"messages": [{"role": "user", "content": "1+1=?"}]}, "t@sha256:0123456789ab"),
    "signs of all kinds": (
        STRING,
        {"messages": [{"role": "user", "content": "é 😀 \u2028 \0"}]},
        "t@sha256:0123456789ab",
    ),
    "messages": (MESSAGES, {"messages": [{"role": "user", "content": "1+1=?"}]}, "c@sha256:ba9876543210"),
    "a raw prompt": (STRING, {"prompt": "1+1=?"}, "none"),
    "raw prompts": (STRING, {"prompt": [[1, 2], [3]]}, "none"),
}


def prepared(template: TemplateSpec, fields: dict[str, Any]) -> tuple[Route, Prepared]:
    route = bare_route(ModelSpec("m", template, PolicySpec("p"), (TargetSpec("m/0", "scripted"),)))
    read = read_completion if "prompt" in fields else read_chat
    call = read({"model": "m", "max_tokens": 5, **fields}, request_id="r")
    return route, asyncio.run(prepare(route, call))


def headers_of(fields: HeaderFields) -> dict[str, str]:
    names, values = fields
    block = header_layout(names) % values
    return dict(line.split(": ", 1) for line in block.decode("ascii").split("\r\n")[:-1])


@pytest.mark.parametrize("case", CASES)
def test_the_hash_header_is_the_hash_of_the_prepared_prompt(case: str) -> None:
    template, fields, name = CASES[case]
    route, made = prepared(template, fields)
    assert headers_of(provenance(route, made)) == {
        "x-gateway-model": "m",
        "x-gateway-template": name,
        "x-gateway-policy": "p",
        "x-gateway-prompt-sha256": made.prompt_sha256,
    }


def test_a_running_call_has_target_and_time_headers() -> None:
    now = [100.0]
    timeline = CallTimeline("chat", "r", 100.0, now=lambda: now[0])
    timeline.backend_opening(AttemptLog())
    timeline.attempt_log.begin("m/1")
    timeline.attempt_log.begin("m/0", retry=True)
    timeline.events_received([Begun("m/0", notices=("filled_choices: 1",))])
    now[0] = 100.0104
    timeline.backend_closed()
    now[0] = 100.0126
    template, fields, _ = CASES["a text"]
    rows = headers_of(provenance(*prepared(template, fields), timeline))
    assert list(rows.items())[4:] == [
        ("x-gateway-target", "m/0"),
        ("x-gateway-attempts", "2"),
        ("x-gateway-overhead-ms", "2.200"),
        ("openai-processing-ms", "12"),
        ("x-gateway-notice", "filled_choices: 1"),
    ]
