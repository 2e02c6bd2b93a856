"""The classes of the snapshot are the one truth about settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.config.schema.json_schema import json_schema, settings
from gateway.config.schema.settings import FILES, GATEWAY, POLICY
from gateway.config.schema.validation import check
from gateway.config.snapshot import GatewaySettings, PolicySpec
from metatemplate.files.yaml import YamlDocument

SETTINGS = {f"{file}:{name}": setting for file in FILES for name, setting in settings(json_schema(file))}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_setting_has_a_kind_and_a_sentence(setting: Mapping[str, Any]) -> None:
    assert setting["title"]
    assert setting["description"].endswith(".")
    assert setting["description"].count(". ") == 0


@pytest.mark.parametrize(("file", "defaults"), [(GATEWAY, GatewaySettings()), (POLICY, PolicySpec(None))])  # type: ignore[arg-type]
def test_an_empty_file_has_the_defaults_of_the_classes(file: str, defaults: object) -> None:
    assert check(YamlDocument(file, []), file) == defaults


@pytest.mark.parametrize(("file", "defaults"), [(GATEWAY, GatewaySettings()), (POLICY, PolicySpec(None))])  # type: ignore[arg-type]
def test_a_default_that_is_written_changes_nothing(file: str, defaults: object) -> None:
    document = YamlDocument(file, [], value={})
    for name, setting in settings(json_schema(file)):
        *steps, last = name.split(".")
        if "default" in setting and "<name>" not in steps:
            section = document.value
            for step in steps:
                section = section.setdefault(step, {})
            section[last] = setting["default"]
    assert check(document, file) == defaults
    assert document.problems == []


def test_a_field_that_the_gateway_sets_is_no_setting() -> None:
    document = YamlDocument(POLICY, [], value={"name": "mine"})
    check(document, POLICY)
    assert [problem.key for problem in document.problems] == ["name"]
    assert document.problems[0].message.startswith("unknown key")
