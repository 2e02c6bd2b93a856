"""Are the keys right that several kinds of template files have?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.template.validation.problems import Problems, shown


def token_id(keys: Mapping[str, Any], problems: Problems) -> int | None:
    """``eos_token_id``: a token id, or none."""
    value = keys.get("eos_token_id")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    problems.add(("eos_token_id",), f"must be a token id, a whole number from 0 up, not {shown(value)}")
    return None


def stop_texts(keys: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """``stop``: one text or several."""
    value = keys.get("stop", ())
    listed = [value] if isinstance(value, str) else problems.items(value, ("stop",))
    return tuple(problems.word(entry, ("stop", number)) for number, entry in enumerate(listed))
