"""The two tables of backend kinds."""

from __future__ import annotations

from gateway.backend.kinds import BACKEND_FACTORIES
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.schema.json_schema import json_schema
from gateway.config.schema.settings import GATEWAY
from metatemplate.values.json_values import part

TARGET_SETTINGS = part(json_schema(GATEWAY), ("models", "<name>", "targets", 0))["properties"].keys()


def test_every_kind_that_can_be_configured_can_be_constructed() -> None:
    assert list(BACKEND_FACTORIES) == list(BACKEND_KINDS)


def test_kinds_name_settings_that_exist() -> None:
    for kind in BACKEND_KINDS.values():
        assert {*kind.settings, *filter(None, [kind.file_setting])} <= TARGET_SETTINGS


def test_every_setting_of_a_target_is_taken_by_a_kind() -> None:
    taken = {setting for kind in BACKEND_KINDS.values() for setting in kind.settings}
    assert taken == TARGET_SETTINGS - {"speaks", "weight"}, "these two belong to every kind"
