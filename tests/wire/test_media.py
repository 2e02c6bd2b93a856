"""Which media may a message hold?"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import MediaNotAllowed
from gateway.wire.media import refuse_remote_media

PASSES: dict[str, dict[str, Any]] = {
    "a png": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    "a png as a string": {"type": "image_url", "image_url": "data:image/png;base64,AAAA"},
    "shouted": {"type": "image_url", "image_url": {"url": "DATA:IMAGE/JPEG;BASE64,AAAA"}},
    "a video": {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
    "a sound": {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}},
    "a sound in OpenAI's way": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "base64 that begins with slashes": {"type": "input_audio", "input_audio": {"data": "//uQxAAA", "format": "mp3"}},
    "a file": {"type": "file", "file": {"filename": "notes: a.pdf", "file_data": "data:application/pdf;base64,AA"}},
    "a file by name": {"type": "file", "file": {"file_id": "file-abc123"}},
    "text with an address": {"type": "text", "text": "https://example.com"},
    "a refusal": {"type": "refusal", "refusal": "https://example.com"},
    "no type": {},
}


@pytest.mark.parametrize("part", PASSES.values(), ids=PASSES)
def test_a_part_that_carries_its_media_passes(part: dict[str, Any]) -> None:
    refuse_remote_media(part, "messages[0].content[0]")


ADDRESSES = (
    "http://a/",
    "HTTPS://a/",
    "ftp://a",
    "file:/etc/passwd",
    "gs://a/b",
    "s3://a/b",
    "\thttp://a",
    "h\nttp://a",
)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("part", [
    {"type": "input_image", "image_url": "URL"},
    {"type": "file", "file": {"file_id": "URL"}},
    {"type": "made-up", "deep": [{"er": "URL"}]},
    {"type": "text", "text": "hi", "image_url": {"url": "URL"}},
    {"image_url": {"url": "URL"}},
], ids=["input_image", "file", "unknown", "beside text", "no type"])  # fmt: skip
def test_an_address_is_refused_wherever_it_stands(part: dict[str, Any], address: str) -> None:
    with pytest.raises(MediaNotAllowed) as raised:
        refuse_remote_media(_replaced(part, address), "messages[0].content[0]")
    assert raised.value.param == "messages[0].content[0]"
    assert address not in raised.value.message


def _replaced(value: Any, address: str) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, address) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, address) for item in value]
    return address if value == "URL" else value


@pytest.mark.parametrize(("kind", "url"), [
    ("image_url", "data:image/svg+xml;base64,AAAA"),
    ("image_url", "data:text/html,hi"),
    ("image_url", "image.png"),
    ("image_url", None),
    ("image_url", {"url": 5}),
    ("video_url", {"url": "data:image/png;base64,AAAA"}),
    ("audio_url", {}),
])  # fmt: skip
def test_a_known_type_takes_its_own_kinds_of_data_only(kind: str, url: Any) -> None:
    with pytest.raises(MediaNotAllowed) as raised:
        refuse_remote_media({"type": kind, kind: url}, "p")
    assert raised.value.param == f"p.{kind}"
    assert "data: URI" in raised.value.message
