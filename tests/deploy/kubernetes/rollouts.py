"""Rolling restarts of pods behind Envoy, and a killed pod, while clients call them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.deploy.kubernetes.envoy import Envoy, envoy, without_retries
from tests.deploy.kubernetes.kubelet import HOST, SCALE, Pod, addresses, configuration, new_key
from tests.deploy.kubernetes.manifests import FOLDER, Workload, built, files_of, gateway_of, named
from tests.support.serving import WAIT_SECONDS, eventually

WORDS = ["one ", "two ", "three ", "four"]
SCRIPTS = {
    "quick": "[{pause: 0.1}, one , two , three , four, {finish: stop}]",
    "steady": "[one , {pause: 0.1}, two , {pause: 0.1}, three , {pause: 0.1}, four, {finish: stop}]",
    "slow": "[{pause: 0.5}, one , two , {pause: 1.5}, three , four, {finish: stop}]",
}


@dataclass(slots=True)
class Outcome:
    """What clients saw."""

    complete: Counter[str] = field(default_factory=Counter)
    """Model, and whether streamed → number of complete answers."""
    lost: list[str] = field(default_factory=list)
    """Calls that failed before the client had a byte of an answer."""
    cut: list[str] = field(default_factory=list)
    """Streams that ended early after their first byte."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} × {kind}" for kind, number in sorted(self.complete.items()))
        return f"{self.complete.total()} complete ({kinds}), {len(self.lost)} lost, {len(self.cut)} cut"


def call(http: httpx.Client, model: str, stream: bool, key: str, outcome: Outcome) -> None:
    """Make one call, and put its end into ``outcome``."""
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    received, status = b"", 0
    try:
        headers = {"authorization": f"Bearer {key}", "host": HOST}
        with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            status = answer.status_code
            for piece in answer.iter_raw():
                received += piece
    except httpx.TransportError as error:
        said = f"{model} stream={stream}: {error!r} after {received[-300:]!r}"
        (outcome.cut if received else outcome.lost).append(said)
        return
    if status != 200:
        outcome.lost.append(f"{model} stream={stream}: {status} {received[-300:]!r}")
    elif is_complete(received, stream):
        outcome.complete[f"{model} {'streamed' if stream else 'whole'}"] += 1
    else:
        outcome.cut.append(f"{model} stream={stream}: ends with {received[-300:]!r}")


def is_complete(received: bytes, stream: bool) -> bool:
    """Whether an answer has all words, in order, and its end."""
    places = [received.find(word.strip().encode()) for word in WORDS]
    end = b"data: [DONE]\n\n" if stream else b"}"
    return -1 not in places and places == sorted(places) and received.endswith(end) and b'"error"' not in received


@contextmanager
def load(port: int, key: str, clients: int) -> Iterator[Outcome]:
    """Call the gateway with ``clients`` threads until the block ends. Every third thread makes long calls."""
    outcome, stop, begun = Outcome(), threading.Event(), threading.Barrier(clients + 1)

    def client(number: int) -> Outcome:
        own = Outcome()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False, verify=False) as http:
            begun.wait(WAIT_SECONDS)
            turn = number
            while not stop.is_set():
                call(http, [*SCRIPTS][number % len(SCRIPTS)], turn % 2 == 0, key, own)
                turn += 1
        return own

    with ThreadPoolExecutor(clients) as pool:
        ends = [pool.submit(client, number) for number in range(clients)]
        begun.wait(WAIT_SECONDS)
        try:
            yield outcome
        finally:
            stop.set()
            for one in ends:
                own = one.result()
                outcome.complete += own.complete
                outcome.lost += own.lost
                outcome.cut += own.cut


class Cluster:
    """Pods of the base's Deployment and their endpoints in Envoy."""

    def __init__(self, folder: Path, proxy: Envoy, workload: Workload, config: Mapping[str, str], scale: float) -> None:
        self._folder, self.proxy, self.workload, self._config, self._scale = folder, proxy, workload, config, scale
        self._free = addresses()
        self.pods: list[Pod] = []
        self.ended: list[Pod] = []

    def add(self, **env: str) -> Pod:
        """Start a pod; when it is ready it becomes an endpoint."""
        address = self._free.pop(0)
        self._free.append(address)
        folder = self._folder / f"{address}-{len(self.pods) + len(self.ended)}"
        pod = Pod(self.workload, address, folder, self._config, self._scale, **env)
        self.pods.append(pod)
        pod.start()
        self.proxy.write([*self.proxy.endpoints, address])
        return pod

    def remove(self, pod: Pod, end: Callable[[Pod], None]) -> None:
        """Remove the endpoint, and end the pod at the same time: neither waits for the other, as in a cluster.

        Half of preStop's seconds pass before Envoy is told.
        """
        self.pods.remove(pod)
        self.ended.append(pod)
        others = [address for address in self.proxy.endpoints if address != pod.address]
        told = threading.Timer(self.workload.pre_stop * self._scale / 2, self.proxy.write, [others])
        told.start()
        end(pod)
        told.join()

    def kill(self) -> None:
        """End all processes."""
        for pod in (*self.pods, *self.ended):
            pod.kill()


def restart(
    folder: Path,
    restarts: int,
    clients: int = 6,
    scale: float = SCALE,
    end: Callable[[Pod], None] = Pod.end,
) -> tuple[Outcome, list[Pod]]:
    """Replace all pods ``restarts`` times, as the Deployment does; Envoy does not retry. Returns the ended pods too.

    ``maxSurge: 1`` and ``maxUnavailable: 0``: a pod is ended when another one has been ready for ``minReadySeconds``.
    """
    resources = built(FOLDER / "base")
    workload, replicas = gateway_of(resources), named(resources, "HorizontalPodAutoscaler")["spec"]["minReplicas"]
    key, keys = new_key(folder)
    config = {"gateway.yaml": configuration(folder, SCRIPTS, files_of(resources)["gateway.yaml"]), "keys.yaml": keys}
    with ExitStack() as stack:
        proxy = stack.enter_context(envoy(folder, without_retries(), workload.ports["http"]))
        cluster = Cluster(folder, proxy, workload, config, scale)
        stack.callback(cluster.kill)
        ending = stack.enter_context(ThreadPoolExecutor())
        for _ in range(replicas):
            cluster.add()
        assert eventually(lambda: proxy.uses(proxy.endpoints))
        ends: list[Future[None]] = []
        with load(proxy.port, key, clients) as outcome:
            for _ in range(restarts):
                for old in [*cluster.pods]:
                    cluster.add()
                    threading.Event().wait(workload.manifest["spec"]["minReadySeconds"] * scale)
                    assert eventually(lambda: proxy.uses(proxy.endpoints))
                    ends.append(ending.submit(cluster.remove, old, end))
                    assert eventually(lambda old=old: old not in cluster.pods)
            for one in ends:
                one.result()
        return outcome, [*cluster.ended]
