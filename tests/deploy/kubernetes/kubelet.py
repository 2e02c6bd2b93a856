"""Carries out what the manifests say about a pod, as a kubelet does, with a real process on a loopback address.

Volumes, command, environment, ports, probes, preStop and grace period are those of the workload. The address of a pod
is one of 127.0.0.0/8, so the ports are those of the manifest too. Pauses (periods of probes, ``sleep`` of preStop,
``minReadySeconds``, ``server.drain_notice``) are multiplied by ``scale``; times within which something must happen are
not, because a busy machine needs them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from tests.deploy.kubernetes.manifests import Manifest, Workload
from tests.journeys.process import environment, run
from tests.support.serving import write_files

SCALE = 0.1
"""The factor of all pauses: 5 s of a manifest are 0.5 s here."""
HOST = "meta-gateway.meta-gateway.svc"
"""A name of the Service, which the gateway accepts in Host headers."""


class ProjectedVolume:
    """A folder with the files of ConfigMaps and Secrets, replaced as the kubelet replaces them.

    Its files and folders are links to ``..data/NAME``, and ``..data`` is a link to a folder with one state of all.
    """

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.write(files)
        for name in {path.partition("/")[0] for path in files}:
            (folder / name).symlink_to(f"..data/{name}")

    def write(self, files: Mapping[str, str]) -> None:
        """Replace all files at once."""
        link, state = self.folder / "..data", Path(tempfile.mkdtemp(prefix="..2026_", dir=self.folder))
        state.chmod(0o755)
        write_files(state, files)
        before = link.resolve() if link.is_symlink() else None
        draft = self.folder / "..data_tmp"
        draft.symlink_to(state.name)
        draft.replace(link)
        if before is not None:
            shutil.rmtree(before)


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP probe of a container, with the defaults of Kubernetes."""

    url: str
    period: float
    timeout: float
    failures: int
    successes: int

    @classmethod
    def read(cls, spec: Manifest, address: str, ports: Mapping[str, int]) -> Probe:
        get = spec["httpGet"]
        return cls(
            f"http://{address}:{ports[get['port']]}{get['path']}",
            spec.get("periodSeconds", 10),
            spec.get("timeoutSeconds", 1),
            spec.get("failureThreshold", 3),
            spec.get("successThreshold", 1),
        )

    def succeeds(self) -> bool:
        """Ask once."""
        try:
            answer = httpx.get(self.url, timeout=self.timeout, trust_env=False, verify=False)
        except httpx.TransportError:
            return False
        return 200 <= answer.status_code < 400


class Pod:
    """One pod: a process with its volumes and probes."""

    def __init__(
        self,
        workload: Workload,
        address: str,
        folder: Path,
        config: Mapping[str, str],
        scale: float,
        around: Sequence[str] = (),
        **env: str,
    ) -> None:
        """``config``: the files of the volume ``config``. ``env``: the Secret of ``envFrom``.

        ``around``: a command that runs the container's command, which follows it.
        """
        self.address = address
        self.workload = workload
        self.scale = scale
        self.log_file = folder / "stderr.log"
        self._mounts = {one["mountPath"]: str(folder / one["name"]) for one in workload.container["volumeMounts"]}
        for name in ("data", "tmp"):
            (folder / name).mkdir(parents=True)
        files = {name: self._placed(text) for name, text in config.items()}
        self.config = ProjectedVolume(Path(self._mounts["/etc/gateway"]), files)
        variables = {name: value.replace("0.0.0.0", address) for name, value in workload.environment().items()}
        notice = "GATEWAY_SERVER__DRAIN_NOTICE"
        variables[notice] = f"{float(variables[notice].removesuffix('s')) * scale * 1000:.0f}ms"
        self._command = [*around, sys.executable, "-m", *map(self._placed, workload.container["command"])]
        self._environment = environment(**variables, **env, TMPDIR=str(folder / "tmp"))
        self._probes = {
            name: Probe.read(workload.container[f"{name}Probe"], address, workload.ports)
            for name in ("startup", "readiness", "liveness")
        }
        self.unready = self.hung = 0
        """Readiness and liveness probes that have failed as often as the manifest allows."""
        self._ends = threading.Event()
        self._watch = threading.Thread(target=self._probe_on)

    def _placed(self, text: str) -> str:
        """Replace the paths of mounts by those of this pod's folders."""
        return re.sub("|".join(map(re.escape, self._mounts)), lambda found: self._mounts[found[0]], text)

    @property
    def log(self) -> str:
        """Standard error so far."""
        return self.log_file.read_text(encoding="utf-8")

    def update(self, config: Mapping[str, str]) -> None:
        """Replace the files of the volume ``config``, as after a change of a ConfigMap or Secret."""
        self.config.write({name: self._placed(text) for name, text in config.items()})

    def start(self) -> None:
        """Start the process, and return when the pod is ready."""
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stderr=log)
        startup, readiness = self._probes["startup"], self._probes["readiness"]
        self._wait(startup, startup.period * startup.failures)
        self._wait(readiness, readiness.period * readiness.failures)
        self._watch.start()

    def _wait(self, probe: Probe, seconds: float) -> None:
        end, successes = time.monotonic() + seconds, 0
        while successes < probe.successes:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < end, f"{probe.url} has not answered within {seconds} s\n{self.log}"
            successes = successes + 1 if probe.succeeds() else 0
            time.sleep(probe.period * self.scale * (successes < probe.successes))

    def _probe_on(self) -> None:
        failed = dict.fromkeys(("readiness", "liveness"), 0)
        due = dict.fromkeys(failed, time.monotonic())
        while not self._ends.wait(max(0.0, min(due.values()) - time.monotonic())):
            name = min(due, key=due.__getitem__)
            probe = self._probes[name]
            due[name] = time.monotonic() + probe.period * self.scale
            failed[name] = 0 if probe.succeeds() else failed[name] + 1
            if failed[name] == probe.failures and not self._ends.is_set():
                self.unready += name == "readiness"
                self.hung += name == "liveness"

    def end(self) -> None:
        """End the pod as its manifest says: preStop, SIGTERM, and the exit code 0 within the grace period."""
        self._ends.set()
        time.sleep(self.workload.pre_stop * self.scale)
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(self.workload.grace - self.workload.pre_stop)
        assert code == 0, self.log
        self._watch.join()

    def kill(self) -> None:
        """End the process at once."""
        self._ends.set()
        if hasattr(self, "process"):
            self.process.kill()
            self.process.wait()
        if self._watch.is_alive():
            self._watch.join()


def addresses() -> list[str]:
    """Loopback addresses for pods. Each process of a parallel test run has a network of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return [f"127.88.{worker}.{number}" for number in range(1, 255)]


def new_key(folder: Path) -> tuple[str, str]:
    """A client key and its ``keys.yaml``, made by ``gateway keys new``."""
    done = run(folder, "keys", "new", "team")
    return done.stderr.decode().split()[-1], done.stdout.decode()


def configuration(folder: Path, models: Mapping[str, str], text: str) -> str:
    """``text``, a ``gateway.yaml`` of the manifests, with scripted models in ``folder``, two above the pod's volume."""
    settings = yaml.safe_load(text)
    settings["models"] = {}
    for name, script in models.items():
        (folder / f"{name}.yaml").write_text(script, encoding="utf-8")
        target = {"speaks": "scripted", "script": f"../../{name}.yaml"}
        settings["models"][name] = {"template": "chat", "targets": [target]}
    return str(yaml.safe_dump(settings))
