"""Writes the table "Your model → template" of docs/templates.md, from the comments ``For:`` of the included templates.

``.venv/bin/python -m tests.docs.model_table`` writes it; tests/docs/test_model_table.py compares it.
"""

from __future__ import annotations

import re

from metatemplate.files.template_models import models_of
from tests.support.serving import ROOT

PAGE = ROOT / "docs/templates.md"
TABLE = re.compile(r"(?<=^\| Your model \| Template \|\n\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)


def table() -> str:
    """Return the rows, ordered by the model."""
    rows = [
        (models, path.stem)
        for path in (ROOT / "meta_templates").glob("*.yaml")
        for models in models_of(path.read_text(encoding="utf-8"))
    ]
    ordered = sorted(rows, key=lambda row: (row[0].lower(), row[1]))
    return "".join([f"| {models.replace('|', chr(92) + '|')} | `{name}` |\n" for models, name in ordered])


def main() -> None:
    """Replace the rows of the page."""
    text, count = TABLE.subn(lambda _: table(), PAGE.read_text(encoding="utf-8"))
    assert count == 1
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
