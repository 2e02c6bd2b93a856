"""Sources for the tests: real bytes under a name, with neighbours, read as the verb reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.core.errors import ConfigError
from gateway.workshop.importer.source import Source
from metatemplate.files import yaml

SOURCES = Path(__file__).parent / "sources"


def parse_yaml(data: bytes, name: str) -> Any:
    document = yaml.parse(data, name)
    if document.problems:
        raise ConfigError(tuple(document.problems))
    return document.value


def source(name: str, text: str | bytes, beside: Mapping[str, str] | None = None) -> Source:
    """A source that is not on disk."""
    data = text if isinstance(text, bytes) else text.encode()
    neighbours = {one: content.encode() for one, content in (beside or {}).items()}
    return Source(name=name, data=data, read_file=neighbours.get, parse_yaml=parse_yaml, path=name)


def shipped(name: str) -> Source:
    """One of the files in ``sources/``."""
    return source(name, (SOURCES / name).read_bytes())
