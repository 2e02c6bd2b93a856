"""A real Envoy in front of pods: the route of docs/kubernetes.md, and endpoints from a file that may change."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.kubernetes.environment import needed
from tests.support.ports import free_port
from tests.support.serving import ROOT, WAIT_SECONDS, eventually

TYPES = "type.googleapis.com/envoy"
HTTP = "envoy.filters.network.http_connection_manager"


def documented() -> dict[str, Any]:
    """``virtual_hosts`` and ``clusters`` of docs/kubernetes.md, in the only block that begins with ``# envoy.yaml``."""
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    [text] = re.findall(r"^```yaml\n(# envoy\.yaml.*?)^```", page, re.MULTILINE | re.DOTALL)
    parts: dict[str, Any] = yaml.safe_load(text)
    return parts


def without_retries() -> dict[str, Any]:
    """The same without its retries."""
    parts = documented()
    for host in parts["virtual_hosts"]:
        for route in host["routes"]:
            del route["route"]["retry_policy"]
    return parts


def bootstrap(parts: dict[str, Any], port: int, admin: int, endpoints: Path) -> dict[str, Any]:
    """Envoy's configuration."""
    manager = {
        "@type": f"{TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": parts["virtual_hosts"]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{TYPES}.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    listener = {
        "address": _address("127.0.0.1", port),
        "filter_chains": [{"filters": [{"name": HTTP, "typed_config": manager}]}],
    }
    [documented_cluster] = parts["clusters"]
    cluster = {
        **documented_cluster,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": {"path_config_source": {"path": str(endpoints)}}},
    }
    return {
        "node": {"id": "envoy", "cluster": "test"},
        "admin": {"address": _address("127.0.0.1", admin)},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    }


def _address(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


class Envoy:
    """A running Envoy; ``port`` is that of clients."""

    def __init__(self, folder: Path, parts: dict[str, Any], pod_port: int) -> None:
        self.folder, self.port, self._admin, self._pod_port = folder, free_port(), free_port(), pod_port
        self._cluster = parts["clusters"][0]["name"]
        self.endpoints: list[str] = []
        self.write(())
        self.config = folder / "envoy.json"
        self.config.write_text(json.dumps(bootstrap(parts, self.port, self._admin, self._file)), encoding="utf-8")

    @property
    def _file(self) -> Path:
        return self.folder / "endpoints.json"

    def write(self, addresses: Sequence[str]) -> None:
        """Make ``addresses`` the endpoints; Envoy reads the file soon."""
        self.endpoints = [*addresses]
        endpoints = [{"endpoint": {"address": _address(one, self._pod_port)}} for one in addresses]
        resource = {
            "@type": f"{TYPES}.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": self._cluster,
            "endpoints": [{"lb_endpoints": endpoints}],
        }
        draft = self.folder / "endpoints.tmp"
        draft.write_text(json.dumps({"resources": [resource]}), encoding="utf-8")
        draft.replace(self._file)

    def uses(self, addresses: Sequence[str]) -> bool:
        """Whether these are the endpoints that Envoy uses now."""
        return {one.partition(":")[0] for one in self._get("/clusters?format=text", r"::(127\.[\d.:]+)::rq_total")} == {
            *addresses
        }

    def retries(self) -> int:
        """The number of requests that were sent to another endpoint."""
        return sum(map(int, self._get("/stats", r"\.upstream_rq_retry: (\d+)")))

    def _get(self, path: str, pattern: str) -> list[str]:
        answer = httpx.get(f"http://127.0.0.1:{self._admin}{path}", trust_env=False, verify=False, timeout=60)
        return re.findall(pattern, answer.text)

    def is_live(self) -> bool:
        """Whether it has read its configuration."""
        try:
            return self._get("/ready", r"\w+") == ["LIVE"]
        except httpx.TransportError:
            return False


@contextmanager
def envoy(folder: Path, parts: dict[str, Any], pod_port: int) -> Iterator[Envoy]:
    """Run Envoy until the block ends. ``parts``: as those of ``documented``."""
    program = needed("bin/envoy")
    served, log = Envoy(folder, parts, pod_port), folder / "envoy.log"
    command = [program, "-c", str(served.config), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        assert eventually(lambda: process.poll() is not None or served.is_live()), log.read_text()
        assert process.poll() is None, log.read_text()
        yield served
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
