"""Which media may a message hold? Only what it carries itself.

The gateway fetches nothing, and hands no address to an upstream that would
(row A19 of ``specs/reliability.md``: addresses inside the network, ``file:``, redirects).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.errors import MediaNotAllowed

SCHEMES = {
    # part type: (key that holds the address, accepted beginnings)
    "image_url": ("image_url", ("data:image/png;", "data:image/jpeg;", "data:image/gif;", "data:image/webp;")),
    "video_url": ("video_url", ("data:video/mp4;", "data:video/webm;", "data:video/mpeg;")),
    "audio_url": ("audio_url", ("data:audio/wav;", "data:audio/mpeg;", "data:audio/mp3;", "data:audio/ogg;")),
}


def refuse_remote_media(part: Mapping[str, Any], param: str) -> None:
    """Raise ``MediaNotAllowed`` unless the part carries its media as a ``data:`` URI of a known type."""
    row = SCHEMES.get(part.get("type", ""))
    if row is None:
        return
    key, accepted = row
    value = part.get(key)
    url = value.get("url") if isinstance(value, Mapping) else value
    if not isinstance(url, str) or not url.lower().startswith(accepted):
        kinds = ", ".join(beginning[5:-1] for beginning in accepted)
        raise MediaNotAllowed(
            f"{param}.{key} must be a data: URI of one of these types: {kinds}; the gateway fetches no addresses",
            param=f"{param}.{key}",
        )
