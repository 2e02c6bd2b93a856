"""Keys that several kinds of template files have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.template.validation.problems import Problems


def token_id(keys: Mapping[str, Any], problems: Problems) -> int | None:
    """``eos_token_id``: a token id, or none."""
    return problems.number(keys["eos_token_id"], ("eos_token_id",)) if "eos_token_id" in keys else None


def stop_texts(keys: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """``stop``: one text or several."""
    value = keys.get("stop", ())
    listed = [value] if isinstance(value, str) else problems.items(value, ("stop",))
    return tuple(problems.word(entry, ("stop", number)) for number, entry in enumerate(listed))
