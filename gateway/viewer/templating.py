"""Renders the templates of the pages, and reads their assets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.viewer.exact_text import exact
from metatemplate.version import VERSION

ASSET_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def _environment() -> Environment:
    """Return the environment of the templates. Every value is escaped: prompts, answers and names are hostile texts."""
    environment = Environment(
        loader=PackageLoader("gateway.viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(version=VERSION, build=_build())
    environment.filters.update(exact=exact, seconds=seconds, part=lambda text: quote(text, safe=""))
    return environment


def provide(**names: Any) -> None:
    """Give the templates modules or functions, which they use by name."""
    _environment().globals.update(names)


def render(template: str, values: Mapping[str, Any]) -> bytes:
    """Return a page as HTML in UTF-8."""
    return _environment().get_template(template).render(values).encode("utf-8", "replace")


def _build() -> str:
    """Return the value in the addresses of assets. It changes with their content, because browsers keep them."""
    digest = hashlib.sha256()
    for entry in sorted(files("gateway.viewer").joinpath("assets").iterdir(), key=lambda one: one.name):
        digest.update(entry.read_bytes())
    return digest.hexdigest()[:12]


@cache
def asset(name: str) -> tuple[str, bytes] | None:
    """Return the content type and the bytes of an asset, or None if there is no such file."""
    found = {entry.name: entry for entry in files("gateway.viewer").joinpath("assets").iterdir()}.get(name)
    kind = ASSET_TYPES.get(name[name.rfind(".") :])
    return None if found is None or kind is None else (kind, found.read_bytes())


def seconds(value: float | None) -> str:
    """Return seconds as a short text: ``340 ms`` or ``12.3 s``."""
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
