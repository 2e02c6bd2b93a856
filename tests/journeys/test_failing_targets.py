"""Five failing targets: the log lines and the metrics are those that ``docs/runbook.md`` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.journeys.process import Process, serving
from tests.support.serving import ROOT, eventually
from tests.support.upstream.server import FaultyUpstream, refused_url

PAGE = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8").partition("## Failing targets\n")[2]
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
LOGS, METRICS = BLOCKS[::2], BLOCKS[1::2]
MODELS = [re.findall(r"model=(\S+)", block)[0] for block in LOGS]

KEY = "sk-upstream-secret-abcd1234"
PROMPT = "my secret question about penguins"
MASKS = {  # what differs between two runs → what takes its place
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}": "TIME",
    r"req_[0-9a-f]{32}": "ID",
    r"127\.0\.0\.1:\d+(/(?!v1|chat)[\w-]+)?": "127.0.0.1:PORT",
    r"(seconds|upstream|overhead)=[\d.]+": r"\1=N",
}


def masked(text: str) -> list[str]:
    for pattern, mask in MASKS.items():
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return text.splitlines()


@pytest.fixture(scope="module")
def process(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    urls = {
        "broken": up.url("500-memory"),
        "stopped": refused_url(),
        "silent": up.url("hang-headers"),
        "wrong-path": up.url("404-route").removesuffix("/v1"),
        "wrong-key": up.url("401"),
        "echo": up.url("400-repeat"),
    }
    config = "models:\n"
    for name, url in urls.items():
        policy = "quick" if name == "silent" else "patient"
        key = ', key: "env:ENGINE_KEY"' if name == "wrong-key" else ""
        config += f'  {name}: {{template: chat, policy: {policy}, targets: [{{speaks: chat, url: "{url}"{key}}}]}}\n'
    both = ", ".join([f'{{speaks: chat, url: "{url}"}}' for url in (urls["stopped"], up.url("ok"))])
    config += f"  backup: {{template: chat, policy: patient, targets: [{both}]}}\n"
    files = {
        "gateway.yaml": config,
        "policies/quick.yaml": "delivery: {timeout: {connect: 30s, first_token: 500ms}}\n",
        "policies/patient.yaml": "delivery: {timeout: {connect: 30s}}\n",
    }
    with serving(tmp_path_factory.mktemp("failing"), files, ENGINE_KEY=KEY) as process:
        yield process


def lines_of(process: Process, model: str) -> list[str]:
    """The log lines of a call to the model, which come before the call's answer or shortly after it."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    answer = process.http.post("/v1/chat/completions", json=body)
    request_id = answer.headers["x-request-id"]
    assert eventually(lambda: f"{request_id} chat " in process.log), process.log
    return [line for line in process.log.splitlines() if request_id in line]


@pytest.mark.parametrize("model", MODELS)
def test_the_log_and_the_metrics_of_a_failing_target_are_those_of_the_page(process: Process, model: str) -> None:
    number = MODELS.index(model)
    assert masked("\n".join(lines_of(process, model))) == masked(LOGS[number])
    served = process.http.get("/metrics").text.splitlines()
    for line in METRICS[number].splitlines():
        assert line in served


def test_the_page_has_the_five_cases() -> None:
    assert MODELS == ["broken", "stopped", "silent", "wrong-path", "wrong-key"]
    assert len(METRICS) == 5


def test_a_failover_names_the_targets_that_failed(process: Process) -> None:
    *attempts, call = lines_of(process, "backup")
    assert [re.findall(r"target=(\S+)", line) for line in attempts] == [["backup/0"]]
    assert call.endswith("failed=backup/0=upstream_unreachable")
    assert " status=200 outcome=ok target=backup/1 attempts=2 " in call
    body = {"model": "backup", "gateway": {"explain": True}, "messages": [{"role": "user", "content": "hi"}]}
    for _ in range(2):  # calls begin at the targets in turn
        explanation = process.http.post("/v1/chat/completions", json=body).json()["gateway"]
        failed = [{"target": "backup/0", "code": "upstream_unreachable"}]
        assert explanation["failed_attempts"] == (failed if explanation["attempts"] == 2 else [])


def test_no_key_and_no_content_is_logged(process: Process) -> None:
    said = lines_of(process, "echo") + lines_of(process, "wrong-key")
    assert said[0].endswith('reason="bad prompt: …"')
    assert "penguins" not in process.log
    assert KEY not in process.log
