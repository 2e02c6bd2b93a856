"""The rows are the one truth about settings."""

from __future__ import annotations

import dataclasses

import pytest

from gateway.config.schema.settings import GATEWAY, POLICY, ROWS, Row
from gateway.config.snapshot import DeliveryPolicy, ParamsPolicy, ServerSpec


def identifier(row: Row) -> str:
    return f"{row.file}:{row.name}"


@pytest.mark.parametrize("row", ROWS, ids=identifier)
def test_a_row_has_a_sentence_a_kind_and_a_default_that_its_kind_accepts(row: Row) -> None:
    assert row.description.endswith(".")
    assert row.description.count(". ") == 0
    assert row.kind.name
    if not row.required:
        assert row.default is None or row.default_value is not None


def test_no_row_appears_twice() -> None:
    names = [(row.file, row.name) for row in ROWS]
    assert len(set(names)) == len(names)


DEFAULTS = [
    (GATEWAY, "server.", ServerSpec(), {}),
    (POLICY, "params.", ParamsPolicy(), {}),
    (POLICY, "delivery.", DeliveryPolicy(), {"attempts": "retry.attempts"}),
    (POLICY, "delivery.timeout.", DeliveryPolicy(), {}),
]


@pytest.mark.parametrize(("file", "prefix", "spec", "spelled"), DEFAULTS, ids=lambda value: str(value)[:20])
def test_the_rows_defaults_are_those_of_the_snapshot(
    file: str,
    prefix: str,
    spec: ServerSpec | ParamsPolicy | DeliveryPolicy,
    spelled: dict[str, str],
) -> None:
    rows = {row.name.removeprefix(prefix): row for row in ROWS if row.file == file and row.name.startswith(prefix)}
    compared = 0
    for field in dataclasses.fields(spec):
        row = rows.get(spelled.get(field.name, field.name))
        if row is not None:
            assert row.default_value == getattr(spec, field.name), field.name
            compared += 1
    assert compared
