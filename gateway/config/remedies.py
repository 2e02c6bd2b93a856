"""What to do about an error, from the page ``docs/errors.md`` that comes with the gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from gateway.config.library import shipped_data

ROW = re.compile(r"^\| `(\w+)` \|.*\| (.*?) \|$", re.MULTILINE)
"""A row of a table of errors: its code and its last column."""
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


@cache
def remedies() -> Mapping[str, str]:
    """Return what to do about each error, as plain text, by the error's code."""
    page = (shipped_data() / "docs" / "errors.md").read_text(encoding="utf-8")
    return {code: LINK.sub(r"\1", text).replace("`", "") for code, text in ROW.findall(page)}
