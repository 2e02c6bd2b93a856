"""A pod reads its ConfigMap and its Secret from one folder, and follows their changes without a restart."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from tests.deploy.kubernetes.kubelet import HOST, SCALE, Pod, addresses, configuration, new_key
from tests.deploy.kubernetes.manifests import FOLDER, built, files_of, gateway_of
from tests.journeys.process import run
from tests.support.serving import ROOT, bearer, eventually

PAGE = ROOT / "docs/kubernetes.md"
ONE = {"first": "[the first, {finish: stop}]"}
BOTH = {**ONE, "second": "[the second, {finish: stop}]"}


@dataclass(frozen=True, slots=True)
class Mounted:
    """A pod, and what its volume held at its start."""

    pod: Pod
    files: dict[str, str]
    key: str
    folder: Path

    def models(self, key: str) -> list[str]:
        """The models that a client sees; empty if its key is not known."""
        url = f"http://{self.pod.address}:{self.pod.workload.ports['http']}/v1/models"
        answer = httpx.get(url, headers={**bearer(key), "host": HOST}, trust_env=False, verify=False, timeout=60)
        return [card["id"] for card in answer.json().get("data", [])]

    def both(self) -> str:
        """A ``gateway.yaml`` with two models."""
        return configuration(self.folder, BOTH, self.files["gateway.yaml"])


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    resources = built(FOLDER / "base")
    key, keys = new_key(tmp_path)
    files = {"gateway.yaml": configuration(tmp_path, ONE, files_of(resources)["gateway.yaml"]), "keys.yaml": keys}
    pod = Pod(gateway_of(resources), addresses()[0], tmp_path / "pod", files, SCALE)
    try:
        pod.start()
        yield Mounted(pod, files, key, tmp_path)
    finally:
        pod.kill()


def test_changes_of_the_configmap_and_of_the_secret_are_followed(mounted: Mounted) -> None:
    assert mounted.models(mounted.key) == ["first"]
    mounted.pod.update({**mounted.files, "gateway.yaml": mounted.both()})
    assert eventually(lambda: mounted.models(mounted.key) == ["first", "second"]), mounted.pod.log

    key, keys = new_key(mounted.folder)
    mounted.pod.update({"gateway.yaml": mounted.both(), "keys.yaml": keys})
    assert eventually(lambda: mounted.models(key) == ["first", "second"]), mounted.pod.log
    assert mounted.models(mounted.key) == [], "the old key is gone"

    mounted.pod.update({"gateway.yaml": "models: 5\n", "keys.yaml": keys})
    assert eventually(lambda: "the old configuration keeps serving" in mounted.pod.log), mounted.pod.log
    assert mounted.models(key) == ["first", "second"]
    mounted.pod.update({**mounted.files, "keys.yaml": keys})
    assert eventually(lambda: mounted.models(key) == ["first"]), "the next state is followed too"


CONFINED = """\
mount --make-rprivate /
for folder in "$1" "$2"; do mount --bind "$folder" "$folder"; done
cut -d" " -f2 /proc/self/mounts | while read -r place; do
    case $place in "$1" | "$2") ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;; esac
done
if touch "$3/written" 2>/dev/null; then echo "the file system can be written to" >&2; exit 9; fi
shift 3
unset COVERAGE_PROCESS_CONFIG  # coverage would write its data beside the sources
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
"""Runs a command with a read-only file system but for two folders, and without capabilities."""


def test_a_pod_needs_no_capability_and_writes_only_to_its_volumes(tmp_path: Path) -> None:
    if os.geteuid() or not shutil.which("setpriv") or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("needs root, setpriv, and the right to make a mount namespace")
    resources = built(FOLDER / "base")
    key, keys = new_key(tmp_path)
    settings = yaml.safe_load(configuration(tmp_path, ONE, files_of(resources)["gateway.yaml"]))
    settings["models"]["first"]["policy"] = "recorded"
    files = {"gateway.yaml": yaml.safe_dump(settings), "keys.yaml": keys, "policies/recorded.yaml": "record: full\n"}
    folder = tmp_path / "pod"
    volumes = [str(folder / name) for name in ("data", "tmp")]
    around = ["unshare", "-m", "sh", "-ec", CONFINED, "confined", *volumes, str(tmp_path)]
    pod = Pod(gateway_of(resources), addresses()[0], folder, files, SCALE, around)
    try:
        pod.start()
        body = {"model": "first", "messages": [{"role": "user", "content": "hi"}]}
        url = f"http://{pod.address}:{pod.workload.ports['http']}/v1/chat/completions"
        headers = {**bearer(key), "host": HOST}
        answer = httpx.post(url, json=body, headers=headers, trust_env=False, verify=False, timeout=60)
        assert answer.status_code == 200, answer.text
        pod.end()
    finally:
        pod.kill()
    assert "Traceback" not in pod.log
    assert '"level":"WARNING"' not in pod.log
    [copy] = re.findall(r'-- python -c "(.*)"$', PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    subprocess.run([sys.executable, "-c", copy.replace("/var/lib/gateway", volumes[0])], check=True)
    done = run(tmp_path, "recordings", "--file", f"{volumes[0]}/copy.sqlite")
    assert answer.headers["x-request-id"].encode() in done.stdout, (done.stdout, done.stderr)
