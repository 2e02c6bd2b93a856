"""The content of a media file in a message, and the placeholder that is recorded in its place."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from metatemplate.values.json_values import changed

PLACEHOLDER = "inlined-file:"
"""The beginning of a placeholder. No client can send an address that begins so."""


class InlinedFile(str):
    """The ``data:`` URI of a media file that the gateway has read."""

    placeholder: str
    """What is recorded: the name of the file, its size in bytes, and the SHA-256 of its content."""

    @classmethod
    def of(cls, media_type: str, name: str, content: bytes) -> InlinedFile:
        """Return the URI of a file. ``name``: its name in the request, without folders."""
        made = cls(f"data:{media_type};base64,{b64encode(content).decode('ascii')}")
        name = quote(name, errors="surrogateescape")
        made.placeholder = f"{PLACEHOLDER}{name};size={len(content)};sha256={sha256(content).hexdigest()}"
        return made


def without_files(messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return messages with the placeholders of their files."""
    return tuple([changed(one, _recorded) if isinstance(one.get("content"), list) else one for one in messages])


def _recorded(value: Any, key: object) -> Any:
    return value.placeholder if isinstance(value, InlinedFile) else value
