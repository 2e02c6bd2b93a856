"""Which media may a message hold? Only what it carries itself.

The gateway fetches nothing, and hands no address to an upstream that would
(row A19 of ``specs/reliability.md``: addresses inside the network, ``file:``, redirects).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.core.errors import MediaNotAllowed

SCHEMES = {
    # part type: (key that holds the address, accepted beginnings)
    "image_url": ("image_url", ("data:image/png;", "data:image/jpeg;", "data:image/gif;", "data:image/webp;")),
    "video_url": ("video_url", ("data:video/mp4;", "data:video/webm;", "data:video/mpeg;")),
    "audio_url": ("audio_url", ("data:audio/wav;", "data:audio/mpeg;", "data:audio/mp3;", "data:audio/ogg;")),
}

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|file:", re.IGNORECASE)
"""What an upstream might fetch; a ``data:`` URI is none, and base64 holds no colon."""

BEFORE = "".join(map(chr, range(33)))
INSIDE = dict.fromkeys(map(ord, "\t\r\n"))

OWN_WORDS = frozenset({"type", "text", "refusal"})
"""Keys of a part that hold words and no media; a text may well begin with an address."""


def refuse_remote_media(part: Mapping[str, Any], param: str) -> None:
    """Raise ``MediaNotAllowed`` unless the part carries its media itself.

    Known types take ``data:`` URIs of the listed kinds only. No part of any type
    may hold an address: servers know more types than we do (``input_image``, ``file``).
    """
    row = SCHEMES.get(part.get("type", ""))
    if row is not None:
        key, accepted = row
        value = part.get(key)
        url = value.get("url") if isinstance(value, Mapping) else value
        if not isinstance(url, str) or not url.lower().startswith(accepted):
            kinds = ", ".join(beginning[5:-1] for beginning in accepted)
            raise MediaNotAllowed(
                f"{param}.{key} must be a data: URI of one of these types: {kinds}; the gateway fetches no addresses",
                param=f"{param}.{key}",
            )
    for key, value in part.items():
        if key not in OWN_WORDS and any(_is_address(word) for word in _strings(value)):
            raise MediaNotAllowed(
                f"{param} holds an address; the gateway fetches none and passes none on: send the media itself",
                param=param,
            )


def _is_address(word: str) -> bool:
    # URL parsers skip blanks and control characters before an address, tabs and line ends anywhere in it.
    return ADDRESS.match(word[:256].lstrip(BEFORE).translate(INSIDE)) is not None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
