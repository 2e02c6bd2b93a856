"""The manifests as ``kubectl kustomize`` builds them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.serving import ROOT

FOLDER = ROOT / "deploy/kubernetes"
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
OVERLAY = FOLDER / "overlays/example"

Manifest = dict[str, Any]


@cache
def _has_kustomize() -> bool:
    """Whether kubectl is installed and knows components; versions before 1.24 do not name their Kustomize."""
    if shutil.which("kubectl") is None:
        return False
    done = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=False)
    return "kustomizeVersion" in done.stdout


@cache
def built(folder: Path) -> list[Manifest]:
    """The resources of a folder with a ``kustomization.yaml``. Skip the test without kubectl."""
    if not _has_kustomize():
        pytest.skip("needs kubectl 1.30 or newer; tests/deploy/install-tools installs it where Debian has one")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def named(resources: list[Manifest], kind: str, name: str = "meta-gateway") -> Manifest:
    """The only resource with this kind and name."""
    [found] = [one for one in resources if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


@dataclass(frozen=True, slots=True)
class Workload:
    """The container of a Deployment or StatefulSet with one container."""

    manifest: Manifest

    @property
    def pod(self) -> Manifest:
        """The specification of its pods."""
        spec: Manifest = self.manifest["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        """The only container."""
        [found] = self.pod["containers"]
        return dict(found)

    @property
    def ports(self) -> dict[str, int]:
        """The container's ports by name."""
        return {one["name"]: one["containerPort"] for one in self.container["ports"]}

    @property
    def pre_stop(self) -> float:
        """Seconds between the request to end a pod and SIGTERM."""
        return float(self.container["lifecycle"]["preStop"]["sleep"]["seconds"])

    @property
    def grace(self) -> float:
        """Seconds between the request to end a pod and SIGKILL."""
        return float(self.pod["terminationGracePeriodSeconds"])

    def environment(self) -> dict[str, str]:
        """The variables with a value. ``$(NAME)`` stands for a variable above, as for the kubelet."""
        known: dict[str, str] = {}
        for one in self.container["env"]:
            reference = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if reference == "metadata.namespace":
                known[one["name"]] = self.manifest["metadata"]["namespace"]
            elif "value" in one:
                known[one["name"]] = expanded(one["value"], known)
        return known


def expanded(text: str, variables: dict[str, str]) -> str:
    """Replace ``$(NAME)``; a variable that is not known stays as it is, as in the kubelet."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)


def gateway_of(resources: list[Manifest]) -> Workload:
    """The workload of the gateway: a Deployment, or with the component ``recordings`` a StatefulSet."""
    kinds = {one["kind"] for one in resources}
    return Workload(named(resources, "StatefulSet" if "StatefulSet" in kinds else "Deployment"))


def files_of(resources: list[Manifest]) -> dict[str, str]:
    """The files of the gateway's volume ``config``, without those of Secrets: path → text."""
    [volume] = [one for one in gateway_of(resources).pod["volumes"] if one["name"] == "config"]
    files: dict[str, str] = {}
    for source in [one["configMap"] for one in volume["projected"]["sources"] if "configMap" in one]:
        data = named(resources, "ConfigMap", source["name"])["data"]
        paths = {one["key"]: one["path"] for one in source.get("items", [])} or {key: key for key in data}
        files |= {path: data[key] for key, path in paths.items()}
    return files
