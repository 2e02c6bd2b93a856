"""The manifests are valid, agree with the gateway, and their containers may do little."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.load import load
from gateway.config.snapshot import DeliveryPolicy, ServerSpec
from gateway.edge.about.monitoring import HEALTH_PATHS
from gateway.telemetry.metric_definitions import METRICS
from tests.deploy.kubernetes.environment import PLACE, needed
from tests.deploy.kubernetes.envoy import bootstrap, documented
from tests.deploy.kubernetes.manifests import (
    COMPONENTS,
    FOLDER,
    OVERLAY,
    Manifest,
    Workload,
    built,
    files_of,
    gateway_of,
    named,
)
from tests.deploy.promql import problems
from tests.journeys.process import run
from tests.support.serving import ROOT, write_files

PAGE = ROOT / "docs/kubernetes.md"
CHECK_TYPES = Path(__file__).parent / "environment/check-types.mjs"
OPERATOR_LABELS = {"namespace", "service", "pod", "container", "endpoint", "job", "instance"}
"""The labels that the Prometheus Operator gives to every series of a ServiceMonitor."""
RULE = "components/hpa-in-flight/prometheus-adapter-rule.yaml"
FOLDERS = ["base", *(f"components/{name}" for name in COMPONENTS), "overlays/example"]


def resources(folder: str, tmp_path: Path) -> list[Manifest]:
    """What a folder adds up to: a component with the base."""
    if not folder.startswith("components"):
        return built(FOLDER / folder)
    for name in ("base", "components"):
        (tmp_path / name).symlink_to(FOLDER / name)
    text = {"namespace": "meta-gateway", "resources": ["../base"], "components": [f"../{folder}"]}
    write_files(tmp_path, {"one/kustomization.yaml": yaml.safe_dump(text)})
    return built(tmp_path / "one")


@pytest.fixture(params=FOLDERS)
def every(request: pytest.FixtureRequest, tmp_path: Path) -> list[Manifest]:
    """The resources of the base, of each component with the base, and of the overlay with all."""
    return resources(request.param, tmp_path)


def mistakes(manifests: list[Manifest], folder: Path) -> tuple[list[str], set[str]]:
    """What the strict schemas of Kubernetes find, and the kinds for which there are none."""
    (folder / "manifests.yaml").write_text(yaml.safe_dump_all(manifests), encoding="utf-8")
    command = [needed("bin/kubernetes-validate"), "--strict", "-k", "1.37", str(folder / "manifests.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    found = [line for line in done.stdout.splitlines() if not line.startswith(("INFO", "WARN"))]
    assert done.returncode == bool(found)
    return found, {*re.findall(r"Couldn't find schema for kind (\w+)", done.stdout)}


def type_mistakes(manifests: list[Manifest]) -> list[list[str] | None]:
    """What the published types of custom resources find: a list for each, or None for a kind without types."""
    needed("node_modules/typescript/package.json")
    command = ["node", "--input-type=module", "--eval", CHECK_TYPES.read_text(encoding="utf-8")]
    text = json.dumps(manifests)
    done = subprocess.run(command, cwd=PLACE, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[str] | None] = json.loads(done.stdout)
    return found


def broken(manifests: list[Manifest], kind: str, path: str, value: object) -> list[Manifest]:
    """The resource of a kind with another value at a path."""
    copy: Manifest = json.loads(json.dumps(named(manifests, kind)))
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = copy
    for part in above:
        place = place[part]
    place[last] = value
    return [copy]


def test_the_schemas_of_kubernetes_find_nothing(every: list[Manifest], tmp_path: Path) -> None:
    found, unknown = mistakes(every, tmp_path)
    assert found == []
    assert unknown <= {"HTTPRoute", "ServiceMonitor"}, "their types are checked below"


def test_the_schemas_of_kubernetes_see_a_mistake(tmp_path: Path) -> None:
    wrong = broken(built(OVERLAY), "Service", "spec.prots", [])
    wrong += broken(built(FOLDER / "base"), "Deployment", "spec.template.spec.containers.0.livenessProbe.timeout", 1)
    found, _ = mistakes(wrong, tmp_path)
    assert [re.findall(r"'(\w+)' was unexpected", line) for line in found] == [["prots"], ["timeout"]]


def test_the_published_types_of_custom_resources_find_nothing_and_see_mistakes(tmp_path: Path) -> None:
    _, unknown = mistakes(built(OVERLAY), tmp_path)
    custom = [one for one in built(OVERLAY) if one["kind"] in unknown]
    custom.append(yaml.safe_load(prometheus_rule()))
    wrong = [
        *broken(custom, "HTTPRoute", "spec.rules.0.backendRefs.0.prt", 1),
        *broken(custom, "HTTPRoute", "spec.rules.0.timeouts.request", "1 minute"),
        *broken(custom, "ServiceMonitor", "spec.endpoints.0.relabelings.0.action", "drop it"),
    ]
    found = type_mistakes([*custom, *wrong, {"apiVersion": "example.org/v1", "kind": "Unknown"}])
    print(
        "kinds without a published type:",
        [one["kind"] for one, said in zip(custom, found, strict=False) if said is None],
    )
    assert found[: len(custom)] == [[]] * len(custom)
    assert [len(one or []) for one in found[len(custom) : -1]] == [1, 1, 2]
    assert found[-1] is None


def prometheus_rule() -> str:
    """What the page's command sends to ``kubectl apply``."""
    [command] = re.findall(r"^\$ (\(printf .*\)) \| kubectl apply ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_page_lists_the_files_that_no_schema_checks() -> None:
    files = {
        path: yaml.safe_load(path.read_text(encoding="utf-8").partition("\n---")[0]) for path in FOLDER.rglob("*.yaml")
    }
    ours = {
        path.parent / name
        for path, content in files.items()
        for generator in content.get("configMapGenerator", [])
        for name in generator["files"]
    }
    unchecked = [path.name for path, content in files.items() if "kind" not in content and path not in ours]
    print("files without a schema:", unchecked)
    text = PAGE.read_text(encoding="utf-8").partition("## What is not checked\n")[2].partition("\n## ")[0]
    assert re.findall(r"^- `(.*?)`", text, re.MULTILINE) == unchecked


def test_the_secrets_are_valid_and_refused_as_they_stand(tmp_path: Path) -> None:
    secrets = [*yaml.safe_load_all((FOLDER / "secrets.example.yaml").read_text(encoding="utf-8"))]
    assert mistakes(secrets, tmp_path) == ([], set())
    pod = gateway_of(built(OVERLAY)).pod
    mounted = pod["volumes"][0]["projected"]["sources"][1]["secret"]["name"]
    [environment] = gateway_of(built(OVERLAY)).container["envFrom"]
    assert [one["metadata"]["name"] for one in secrets] == [mounted, environment["secretRef"]["name"]]
    variables = secrets[1]["stringData"]
    write_config(tmp_path, built(OVERLAY), secrets[0]["stringData"]["keys.yaml"])
    target = '{speaks: chat, url: "https://api.openai.com/v1", model: gpt, key: "env:OPENAI_API_KEY"}'
    with (tmp_path / "gateway.yaml").open("a", encoding="utf-8") as file:
        file.write(f"  gpt: {{targets: [{target}]}}\n")
    done = run(tmp_path, "check", **variables)
    assert done.returncode != 0
    assert b"keys.yaml:1 team.sha256" in done.stdout + done.stderr
    for name in variables:
        assert f"the environment variable {name} is empty".encode() in done.stdout + done.stderr


def replaced(text: str, values: dict[str, str]) -> str:
    """Replace each name by its value."""
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text)


def write_config(folder: Path, manifests: list[Manifest], keys: str) -> dict[str, str]:
    """Write the files of a pod's volume; returns the pod's variables."""
    placed = {"/srv/": f"{ROOT}/", "/var/lib/gateway": str(folder)}
    files = {path: replaced(text, placed) for path, text in files_of(manifests).items()}
    write_files(folder, {**files, "keys.yaml": keys})
    return gateway_of(manifests).environment()


@pytest.mark.parametrize("folder", ["base", "overlays/example"])
def test_gateway_check_accepts_the_configuration(folder: str, tmp_path: Path) -> None:
    keys = run(tmp_path, "keys", "new", "team").stdout.decode()
    variables: dict[str, Any] = write_config(tmp_path, built(FOLDER / folder), keys) | {"REDIS_PASSWORD": "secret"}
    done = run(tmp_path, "check", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    snapshot = load(tmp_path / "gateway.yaml", variables)
    workload = gateway_of(built(FOLDER / folder))
    server = snapshot.server
    assert workload.ports == {"http": server.port, "admin": int(str(server.admin).rpartition(":")[2])}
    assert server.workers == 1
    notice, drain = server.drain_notice, server.drain
    assert workload.grace >= workload.pre_stop + notice + drain + 20
    assert drain >= DeliveryPolicy().timeout.total
    volume = next(one for one in workload.pod["volumes"] if one["name"] == "data") if folder == "base" else None
    claims = workload.manifest["spec"].get("volumeClaimTemplates", [])
    size = volume["emptyDir"]["sizeLimit"] if volume else claims[0]["spec"]["resources"]["requests"]["storage"]
    assert snapshot.recordings.max_size * 2 <= int(size.removesuffix("Gi")) << 30, (
        "the file, its WAL, and room to spare"
    )


def test_a_variable_refers_only_to_variables_above_it(every: list[Manifest]) -> None:
    assert "$(" not in "".join(gateway_of(every).environment().values())


def test_every_name_of_the_service_is_allowed(every: list[Manifest]) -> None:
    service, namespace = "meta-gateway", named(every, "Service")["metadata"]["namespace"]
    names = [service, *(f"{service}.{namespace}{end}" for end in ("", ".svc", ".svc.cluster.local")), "localhost"]
    hosts = [name for one in every if one["kind"] == "HTTPRoute" for name in one["spec"]["hostnames"]]
    assert gateway_of(every).environment()["GATEWAY_SERVER__ALLOWED_HOSTS"].split(",") == [*hosts, *names]


def test_names_ports_and_paths_agree(every: list[Manifest]) -> None:
    workload = gateway_of(every)
    labels = workload.manifest["spec"]["template"]["metadata"]["labels"]
    [service, *_] = [one for one in every if one["kind"] == "Service"]
    assert service["spec"]["selector"] == labels == workload.manifest["spec"]["selector"]["matchLabels"]
    assert {one["targetPort"]: one["port"] for one in service["spec"]["ports"]} == workload.ports
    for name in ("startup", "readiness", "liveness"):
        probe = workload.container[f"{name}Probe"]
        assert probe["httpGet"]["path"] in HEALTH_PATHS
        assert probe["httpGet"]["port"] == "admin", "the main listener accepts nothing while it drains"
        assert 1 < probe["timeoutSeconds"] <= probe["periodSeconds"], "a probe ends before the next one begins"
    assert workload.container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    liveness = workload.container["livenessProbe"]
    assert workload.pre_stop < liveness["terminationGracePeriodSeconds"] < workload.grace
    scaled = named(every, "HorizontalPodAutoscaler")["spec"]
    assert scaled["scaleTargetRef"]["kind"] == workload.manifest["kind"]
    assert scaled["minReplicas"] > named(every, "PodDisruptionBudget")["spec"]["maxUnavailable"]
    for policy in [one for one in every if one["kind"] == "NetworkPolicy"]:
        selected = policy["spec"]["podSelector"]["matchLabels"]
        assert selected == labels or selected == {"app.kubernetes.io/name": "valkey"}
        rules = policy["spec"].get("ingress", [])
        assert {port["port"] for rule in rules for port in rule["ports"]} <= {*workload.ports, "redis"}
    for monitor in [one for one in every if one["kind"] == "ServiceMonitor"]:
        [endpoint] = monitor["spec"]["endpoints"]
        assert (workload.ports[endpoint["port"]], endpoint["path"]) == (9464, "/metrics")
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        job = service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
        assert f'job="{job}"' in (ROOT / "deploy/alerts.yml").read_text(encoding="utf-8")
        dropped = {one["regex"] for one in endpoint["relabelings"] if one["action"] == "labeldrop"}
        own = {label for row in METRICS for label in row.labels}
        assert own & (OPERATOR_LABELS - dropped) == set(), "the operator would rename these labels"
    for route in [one for one in every if one["kind"] == "HTTPRoute"]:
        [rule] = route["spec"]["rules"]
        assert rule["backendRefs"] == [{"name": service["metadata"]["name"], "port": workload.ports["http"]}]
        assert int(rule["timeouts"]["backendRequest"].removesuffix("s")) > DeliveryPolicy().timeout.total


def test_pods_of_one_revision_are_spread(every: list[Manifest]) -> None:
    workload = gateway_of(every)
    labels = {"Deployment": "pod-template-hash", "StatefulSet": "controller-revision-hash"}  # set by their controllers
    keys = [one["matchLabelKeys"] for one in workload.pod["topologySpreadConstraints"]]
    assert keys == [[labels[workload.manifest["kind"]]]] * 2


def test_a_container_can_do_little(every: list[Manifest]) -> None:
    for manifest in [one for one in every if one["kind"] in ("Deployment", "StatefulSet")]:
        workload = Workload(manifest)
        pod, container = workload.pod, workload.container
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]


def test_the_image_has_this_version_and_the_user_of_the_containerfile() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    workload = gateway_of(built(FOLDER / "base"))
    assert workload.container["image"] == f"meta-gateway:{version}"
    context = workload.pod["securityContext"]
    user = f"USER {context['runAsUser']}:{context['runAsGroup']}\n"
    assert user in (ROOT / "deploy/Containerfile").read_text(encoding="utf-8")


def test_the_metric_of_the_autoscaler_is_that_of_the_adapters_rule() -> None:
    [rule] = yaml.safe_load((FOLDER / RULE).read_text(encoding="utf-8"))["rules"]
    metric = named(built(OVERLAY), "HorizontalPodAutoscaler")["spec"]["metrics"][-1]["pods"]
    assert metric["metric"]["name"] == rule["name"]["as"]
    assert int(metric["target"]["averageValue"]) <= ServerSpec().max_in_flight / 2
    series = rule["seriesQuery"].partition("{")[0]
    values = {"<<.Series>>": series, "<<.LabelMatchers>>": 'instance="i"', "<<.GroupBy>>": "instance"}
    assert problems(replaced(rule["metricsQuery"], values)) == []


def test_the_store_of_the_overlay_is_the_valkey_of_the_component() -> None:
    manifests = built(OVERLAY)
    service = named(manifests, "Service", "valkey")
    store = yaml.safe_load(files_of(manifests)["gateway.yaml"])["store"]
    port = service["spec"]["ports"][0]["port"]
    assert store["url"] == f"redis://{service['metadata']['name']}:{port}/0"
    workload = Workload(named(manifests, "Deployment", "valkey"))
    assert workload.ports == {"redis": port}
    assert store["password"] == f"env:{workload.container['env'][0]['name']}"


def test_envoy_accepts_the_route_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text('{"resources": []}', encoding="utf-8")
    (tmp_path / "envoy.json").write_text(json.dumps(bootstrap(documented(), 10000, 10001, tmp_path / "endpoints.json")))
    command = [needed("bin/envoy"), "--mode", "validate", "-c", str(tmp_path / "envoy.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [host] = documented()["virtual_hosts"]
    assert host["request_body_buffer_limit"] >= ServerSpec().max_body
    assert int(host["routes"][0]["route"]["timeout"].removesuffix("s")) > DeliveryPolicy().timeout.total
    [[threshold]] = [one["circuit_breakers"]["thresholds"] for one in documented()["clusters"]]
    assert threshold["max_retries"] >= ServerSpec().max_in_flight
