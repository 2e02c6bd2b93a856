"""Writes the tables of settings of docs/configuration.md, from the classes in ``gateway/config/snapshot.py``.

``.venv/bin/python -m tests.docs.setting_tables`` writes them; tests/docs/test_setting_tables.py compares them.
A table has the settings of the sections that the page's heading names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gateway.config.schema.json_schema import json_schema, settings
from tests.support.serving import ROOT

PAGE = ROOT / "docs/configuration.md"
TABLE = re.compile(
    r"(?P<head>^## (?P<file>\S+\.yaml)(?:: (?P<sections>.*))?\n(?:(?!#).*\n)*?\| Setting \|.*\n\|---.*\n)"
    r"(?P<rows>(?:\|.*\n)*)",
    re.MULTILINE,
)


def row(name: str, setting: Mapping[str, Any]) -> str:
    """Return the line of a setting. ``setting``: its part of the JSON Schema."""
    default = setting.get("default")
    plain = default if isinstance(default, str) and default else json.dumps(default)
    shown = f"`{plain}`" if "default" in setting else "none" if "anyOf" in setting else "required"
    return f"| `{name}` | {setting['title']} | {shown} | {setting['description']} |\n"


def table(file: str, sections: str) -> str:
    """Return the rows of some sections of a kind of file. ``sections``: as in a heading; empty for all sections."""
    named = re.findall(r"\w+", sections)
    rows = settings(json_schema(file))
    return "".join([row(name, one) for name, one in rows if not named or re.split(r"\W", name)[0] in named])


def written(page: str) -> str:
    """Return the page with the tables of the settings."""
    return TABLE.sub(lambda found: found["head"] + table(found["file"], found["sections"] or ""), page)


def main() -> None:
    """Replace the rows of the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
