"""The compose file is valid, publishes ports on loopback only, and mounts existing files."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.config.load import load
from metatemplate.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
# The compose specification's own schema, as the check-jsonschema package brings it.
VENDORED = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
SCHEMA = json.loads(VENDORED.read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def test_it_is_valid_by_the_compose_specification() -> None:
    jsonschema.validators.validator_for(SCHEMA)(SCHEMA).validate(COMPOSE)


def test_the_schema_sees_a_mistake() -> None:
    broken = COMPOSE | {"services": {"gateway": {"imagee": "x"}}}
    with pytest.raises(jsonschema.ValidationError, match="imagee"):
        jsonschema.validators.validator_for(SCHEMA)(SCHEMA).validate(broken)


@each_service
def test_ports_are_published_on_loopback_only(service: dict[str, Any]) -> None:
    assert all(re.match(r"127\.0\.0\.1:", port) for port in service.get("ports", []))


@each_service
def test_a_container_can_do_little(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service["user"].startswith(("0", "root"))


@each_service
def test_images_are_pinned(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"])


@each_service
def test_mounts_are_there_and_read_only_or_volumes(service: dict[str, Any]) -> None:
    for mount in service.get("volumes", []):
        source, _, *mode = mount.split(":")
        if source.startswith("."):
            assert (ROOT / source).exists()
            assert mode == ["ro"]
        else:
            assert source in COMPOSE["volumes"]


def test_the_gateways_configuration_serves_in_the_image() -> None:
    snapshot = load(ROOT / "deploy/gateway.yaml", {})
    assert [*snapshot.models] == ["demo", "demo-wrong-template"]
    assert {"localhost", "127.0.0.1"} <= set(snapshot.server.allowed_hosts)
    assert SERVICES["gateway"]["ports"][0].endswith(f":{snapshot.server.port}")


def test_the_containers_grace_is_longer_than_the_drain() -> None:
    grace = int(SERVICES["gateway"]["stop_grace_period"].removesuffix("s"))
    assert grace > load(ROOT / "deploy/gateway.yaml", {}).server.drain + 2


def test_what_the_image_copies_is_there_and_reaches_the_builder() -> None:
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    built = {*wheel["packages"], *wheel["force-include"], *PROJECT["project"]["license-files"], "README.md"}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert "." in copied
    for source in (built | copied | {"pyproject.toml", "requirements-all.lock", "requirements.lock"}) - {"."}:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in sent


def test_the_image_runs_as_the_user_that_compose_names() -> None:
    assert re.findall(r"^USER (.+)$", CONTAINERFILE, re.MULTILINE) == [SERVICES["gateway"]["user"]]


def test_the_image_has_the_health_check_of_compose() -> None:
    ((options, command),) = re.findall(r"^HEALTHCHECK (.+?) CMD \\\n +(.+)$", CONTAINERFILE, re.MULTILINE)
    check = dict(SERVICES["gateway"]["healthcheck"])
    assert ["CMD", *json.loads(command)] == check.pop("test")
    assert sorted(options.split()) == sorted(f"--{name.replace('_', '-')}={value}" for name, value in check.items())


def test_the_image_has_the_version_of_the_package() -> None:
    assert PROJECT["project"]["version"] == VERSION
    assert SERVICES["gateway"]["image"] == f"meta-gateway:{VERSION}"


def test_the_datasource_of_the_dashboard_is_provisioned() -> None:
    folder = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text(encoding="utf-8"))["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards/gateway.yml").read_text(encoding="utf-8"))["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert any(mount.split(":")[1] == provider["options"]["path"] for mount in SERVICES["grafana"]["volumes"])
