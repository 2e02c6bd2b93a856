"""The folders of templates and policies that come with the gateway."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

TEMPLATES = "meta_templates"
POLICIES = "policies"
FOLDERS = (TEMPLATES, POLICIES)


@cache
def folder(name: str) -> Path:
    """Return the shipped folder ``meta_templates`` or ``policies``.

    A wheel holds them in ``gateway/data``; a checkout at the root of the repository.
    """
    package = Path(str(resources.files("gateway")))
    packed = package / "data" / name
    return packed if packed.is_dir() else package.parent / name
