"""The table "Your model → template" has the models that the templates name."""

from __future__ import annotations

from tests.docs.model_table import PAGE, TABLE, table
from tests.support.serving import ROOT


def test_the_table_is_that_of_the_templates() -> None:
    (rows,) = TABLE.findall(PAGE.read_text(encoding="utf-8"))
    assert rows == table(), "python -m tests.docs.model_table"


def test_every_included_template_names_its_models() -> None:
    rows = table()
    assert [path.stem for path in (ROOT / "meta_templates").glob("*.yaml") if f"| `{path.stem}` |" not in rows] == []
