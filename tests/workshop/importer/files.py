"""Sources for the tests: real bytes under a name, with neighbours, read as the verb reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.workshop.importer.source import Source

SOURCES = Path(__file__).parent / "sources"


def source(name: str, text: str | bytes, beside: Mapping[str, str] | None = None) -> Source:
    """A source that is not on disk."""
    data = text if isinstance(text, bytes) else text.encode()
    neighbours = {one: content.encode() for one, content in (beside or {}).items()}
    return Source(name=name, data=data, read_file=neighbours.get, path=name)


def shipped(name: str) -> Source:
    """One of the files in ``sources/``."""
    return source(name, (SOURCES / name).read_bytes())
