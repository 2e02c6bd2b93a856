"""Where do the templates and policies lie that come with the gateway?"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

TEMPLATES = "meta_templates"
POLICIES = "policies"
FOLDERS = (TEMPLATES, POLICIES)


@cache
def folder(name: str) -> Path:
    """The shipped folder ``meta_templates`` or ``policies``.

    A wheel carries them inside the package, under ``gateway/data``; in a checkout
    they lie at the root of the repository, beside the package.
    """
    package = Path(str(resources.files("gateway")))
    packed = package / "data" / name
    return packed if packed.is_dir() else package.parent / name
