"""Prometheus' own ``promtool`` computes the dashboard's queries and the alerts from pages of ``/metrics``.

``tests/deploy/install-tools`` installs it on Debian and Ubuntu; without it, the tests are skipped.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.telemetry.metric_definitions import METRICS
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record
from tests.deploy.test_queries import DEPLOY, DRAWN
from tests.support.serving import gateway, write_files

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool; tests/deploy/install-tools installs it"
)

GAUGES = tuple(row.name for row in METRICS if row.kind == "gauge")
FIRING = 'count by (alertname, model) (ALERTS{alertstate="firing"})'


def evaluate(folder: Path, page: str, expected: dict[str, list[dict[str, Any]]]) -> None:
    """Compute expressions over 20 minutes in which the counters of a page grow by their values every minute.

    ``expected``: expression → its samples after the 20 minutes.
    """
    lines = [line.rpartition(" ") for line in page.splitlines() if line.startswith("gateway_")]
    series = [
        {"series": name, "values": f"{value}+0x20" if name.startswith(GAUGES) else f"0+{value}x20"}
        for name, _, value in lines
    ]
    queries = [{"expr": query, "eval_time": "20m", "exp_samples": samples} for query, samples in expected.items()]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": queries}
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(DEPLOY / "alerts.yml")], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


SLOW = Record("req_1", "chat", "m", "ok", 200, False, duration=5.0, target="m/0", upstream=1.0, overhead=4.0)
CALLS: dict[str, tuple[Record, list[dict[str, Any]]]] = {  # where 4 of 5 seconds are spent: (a call, the alerts)
    "the queue": (replace(SLOW, queue_wait=3.99, overhead=0.01), []),
    "the gateway itself": (SLOW, [{"labels": '{alertname="GatewayItselfSlow", model="m"}', "value": 1}]),
}


@pytest.mark.parametrize("slow", CALLS)
def test_the_gateway_itself_is_not_slow_while_only_a_queue_is_full(tmp_path: Path, slow: str) -> None:
    call, alerts = CALLS[slow]
    metrics = Metrics()
    metrics.record(call)
    metrics.queue_length("m", "").value = 256
    evaluate(tmp_path, metrics.exposition().decode(), {FIRING: alerts})


FILES = {
    "keys.yaml": f"free: {{sha256: {hashlib.sha256(b'free').hexdigest()}}}\n",
    "endless.yaml": "[a, {pause: 600}]\n",
    "policies/patient.yaml": "limits: {concurrency: 1, queue_wait: 600s}\n",
    "policies/impatient.yaml": "limits: {concurrency: 1, queue_wait: 10ms}\n",
}
TARGETS = "targets: [{speaks: scripted, script: endless.yaml}]"
CONFIG = f"""
keys: {{file: keys.yaml}}
models:
  patient: {{template: chat, policy: patient, {TARGETS}}}
  impatient: {{template: chat, policy: impatient, {TARGETS}}}
"""
DATA = {  # panel: (grouping, labels of its data)
    "Queue wait p95 A": ("model, key", '{model="impatient", key="free"}'),
    "Queue length A": ("model, key", '{model="patient", key="free"}'),
    "Requests per second by key A": ("key, model", '{key="free", model="impatient"}'),
}


def test_the_panels_of_a_queue_have_data_by_model_and_key(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    page = ""

    def page_is_read() -> bool:
        nonlocal page
        if served.metric("gateway_queue_length", model="patient", key="free") == 1:
            page = served.runtime.metrics.exposition().decode()
        return bool(page)

    with gateway(tmp_path, CONFIG) as served, ExitStack() as places:
        served.http.headers["authorization"] = "Bearer free"
        messages = [{"role": "user", "content": "hi"}]
        for model in ("patient", "impatient"):  # a stream takes the only place of each
            body = {"model": model, "messages": messages, "stream": True}
            stream = served.http.stream("POST", "/v1/chat/completions", json=body)
            places.enter_context(stream)
        assert served.chat("impatient").status_code == 503
        served.disconnect({"model": "patient", "messages": messages}, when=page_is_read, authorization="Bearer free")
    expected = {}
    for panel, (labels, data) in DATA.items():
        query = DRAWN[panel][0].replace("$__rate_interval", "5m").replace("$model", ".*")
        expected[f"group by ({labels}) ({query} > 0)"] = [{"labels": data, "value": 1}]
    evaluate(tmp_path, page, expected)
