"""The media that are sent to a target, and the strings that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.snapshot import MediaPolicy
from gateway.core.errors import MediaNotAllowed
from gateway.policy.admit.media import MediaRule
from gateway.wire.requests import read_chat

BOTH, NO_HTTPS, NO_DATA, NONE = (
    MediaPolicy(),
    MediaPolicy(https="refuse"),
    MediaPolicy(data="refuse"),
    MediaPolicy("refuse", "refuse"),
)
PNG = "data:image/png;base64,AAAA"


def check(message: dict[str, Any], policy: MediaPolicy = BOTH) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}, message]}
    call = read_chat(body, request_id="r")
    assert call.dialogue is not None
    MediaRule(policy).check(call.dialogue.messages)


def said(part: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "see"}, part]}


def image(url: Any) -> dict[str, Any]:
    return said({"type": "image_url", "image_url": {"url": url}})


PASSES: dict[str, dict[str, Any]] = {
    "a png": said({"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}),
    "a png as a string": said({"type": "image_url", "image_url": PNG}),
    "shouted": image("DATA:IMAGE/JPEG;BASE64,AAAA"),
    "a video": said({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}),
    "a sound": said({"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}}),
    "a sound in OpenAI's way": said({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    "base64 that begins with slashes": said({"type": "input_audio", "input_audio": {"data": "//uQxAAA"}}),
    "a file": said({"type": "file", "file": {"filename": "notes: a.pdf", "file_data": "data:text/plain,A"}}),
    "a file by name": said({"type": "file", "file": {"file_id": "file-abc123"}}),
    "text with an address": said({"type": "text", "text": "https://example.com"}),
    "a refusal": said({"type": "refusal", "refusal": "https://example.com"}),
    "words beside text": said({"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": 5}}),
    "a type we do not know, with words": said({"type": "tool_reference", "name": "get_weather"}),
    "an address": image("https://example.com/a.png?x=1#y"),
    "an address as a string": said({"type": "image_url", "image_url": "https://example.com"}),
    "an address with a port": image("HTTPS://Example.com:8443/a%20b.png"),
    "an address by number": image("https://93.184.216.34/a.png"),
    "an address by a long number": image("https://[2606:2800:220:1:248:1893:25c8:1946]/a.png"),
    "a video by address": said({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}),
    "tool calls": {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get", "arguments": "http://127.0.0.1/"}},
        ],
    },
    "what an answer brought": {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "reasoning_content": "see http://a/",
        "audio": None,
        "annotations": [{"type": "url_citation", "url_citation": {"url": "https://a.example/"}}],
        "thinking": "http://a/ or /b",
        "extra_content": {"google": {"thought_signature": "a/b+c=="}},
        "model": "m-1.5",
        "thinking_blocks": [{"type": "thinking", "thinking": "see http://a/", "signature": "a/b=="}],
    },
    "text under another name": said({"type": "input_text", "text": "https://example.com"}),
}


@pytest.mark.parametrize("message", PASSES.values(), ids=PASSES)
def test_media_of_a_known_form_are_accepted(message: dict[str, Any]) -> None:
    check(message)


ADDRESSES = {
    "http": "http://a.example/a.png",
    "http with one slash": "http:/a.example/a.png",
    "http with none": "http:a.example",
    "ftp": "ftp://a.example",
    "a file": "file:/etc/passwd",
    "a file with slashes": "FILE:///etc/passwd",
    "a bucket": "gs://a/b",
    "a path": "/etc/passwd",
    "a relative path": "../a.png",
    "a file's name": "a.png",
    "a Windows path": "\\\\host\\share",
    "another host": "//a.example/a.png",
    "a tab before": "\thttp://a.example",
    "257 blanks before": " " * 257 + "http://a.example",
    "257 blanks before https": " " * 257 + "https://a.example",
    "a control character before": "\x01https://a.example",
    "a line break inside": "h\nttp://a.example",
    "a line break inside https": "ht\ntps://a.example",
    "a blank behind": "https://a.example ",
    "javascript": "javascript:alert(1)",
    "an escaped scheme": "http%3A//a.example",
}
PLACES = {
    "image_url": said({"type": "image_url", "image_url": {"url": "URL"}}),
    "image_url as a string": said({"type": "image_url", "image_url": "URL"}),
    "video_url": said({"type": "video_url", "video_url": {"url": "URL"}}),
    "input_image": said({"type": "input_image", "image_url": "URL"}),
    "input_image, nested": said({"type": "input_image", "image_url": {"url": "URL"}}),
    "file_id": said({"type": "file", "file": {"file_id": "URL"}}),
    "file_url": said({"type": "file", "file": {"file_url": "URL"}}),
    "file_data": said({"type": "file", "file": {"file_data": "URL"}}),
    "detail": said({"type": "image_url", "image_url": {"url": PNG, "detail": "URL"}}),
    "an unknown type": said({"type": "made-up", "deep": [{"er": "URL"}]}),
    "beside text": said({"type": "text", "text": "hi", "image_url": {"url": "URL"}}),
    "a list in its place": said({"type": "image_url", "image_url": [{"url": "URL"}]}),
    "a block of another kind": {
        "role": "assistant",
        "content": "a",
        "thinking_blocks": [{"type": "image", "source": {"type": "url", "url": "URL"}}],
    },
    "a provider's field": {
        "role": "assistant",
        "content": "a",
        "provider_specific_fields": {"compaction_blocks": [{"type": "document", "source": {"url": "URL"}}]},
    },
    "beside the content": {"role": "user", "content": "hi", "image_url": {"url": "URL"}},
    "a list beside the content": {"role": "user", "content": "hi", "images": ["URL"]},
    "in a tool's answer": {"role": "tool", "tool_call_id": "a", "content": [{"type": "image", "image": "URL"}]},
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_other_addresses_are_refused_in_every_field(place: dict[str, Any], address: str) -> None:
    with pytest.raises(MediaNotAllowed) as raised:
        check(_replaced(place, address))
    assert str(raised.value.param).startswith("messages[1].")
    assert address not in raised.value.message


def _replaced(value: Any, address: str) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, address) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, address) for item in value]
    return address if value == "URL" else value


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "127.0.0.1",
        "127.1",
        "127.0.0.1.",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "metadata.google.internal",
        "redis",
        "a.svc",
        "db.svc.cluster.local",
        "printer.lan",
        "kubernetes.default",
        "a.service.consul",
    ],
)
def test_hosts_of_local_networks_are_refused(host: str) -> None:
    with pytest.raises(MediaNotAllowed, match="local network"):
        check(image(f"https://{host}/a.png"))


@pytest.mark.parametrize(
    "address",
    [
        "https://user@a.example/",
        "https://a.example:80@127.0.0.1/",
        "https://a.example\\@127.0.0.1/",
        "https:///a.png",
        "https://",
        "https://?a",
        "https://a..example:x/",
        "https://ä.example/",
        "https://a.example/ä",
        "https://a b.example/",
        "https://[::1",
        "https://[::1%25lo]/",
        "https://a.example:123456/",
        "https://a.example/" + "a" * 9000,
    ],
)
def test_an_address_that_parsers_read_differently_is_refused(address: str) -> None:
    with pytest.raises(MediaNotAllowed, match="must be an https URL"):
        check(image(address))


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("image_url", "data:image/svg+xml;base64,AAAA"),
        ("image_url", "data:text/html,hi"),
        ("image_url", "image.png"),
        ("image_url", None),
        ("image_url", {"url": 5}),
        ("video_url", {"url": PNG}),
        ("audio_url", {}),
    ],
)
def test_a_media_type_takes_only_its_own_kinds_of_data(kind: str, url: Any) -> None:
    with pytest.raises(MediaNotAllowed) as raised:
        check(said({"type": kind, kind: url}))
    assert raised.value.param == f"messages[1].content[1].{kind}"
    assert "data: URI of one of these types" in raised.value.message


@pytest.mark.parametrize(
    "data",
    [
        "data:image/png;base64,@@",
        "data:image/png;base64,",
        "data:image/png;base64",
        "data:image/png;BASE64,iVBO%2BRw0",
    ],
)
def test_data_that_is_not_base64_is_refused_before_the_target_gets_it(data: str) -> None:
    with pytest.raises(MediaNotAllowed, match="is not valid base64; write data:image/png;base64,"):
        check(image(data))


def test_frames_of_a_video_are_base64_texts_with_commas() -> None:
    check(said({"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,AAAA,BBBB"}}))
    with pytest.raises(MediaNotAllowed, match="is not valid base64"):
        check(said({"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,AAAA,<>"}}))


AUDIO = said({"type": "input_audio", "input_audio": {"data": "AAAA"}})
ADDRESS = image("https://example.com/a.png")


@pytest.mark.parametrize(
    ("policy", "message", "reason"),
    [
        (NO_HTTPS, ADDRESS, "must be a data: URI of one of these types"),
        (NO_DATA, image(PNG), "must be an https address$"),
        (NO_DATA, AUDIO, "does not allow"),
        (NONE, ADDRESS, "does not allow"),
        (NONE, image(PNG), "does not allow"),
        (BOTH, image("http://a/"), "must be an https address or a data: URI"),
    ],
    ids=["no https", "no data", "no base64", "neither: https", "neither: data", "both"],
)
def test_the_error_names_the_forms_that_the_policy_allows(policy: MediaPolicy, message: Any, reason: str) -> None:
    with pytest.raises(MediaNotAllowed, match=reason):
        check(message, policy)


@pytest.mark.parametrize(("policy", "message"), [(NO_HTTPS, image(PNG)), (NO_HTTPS, AUDIO), (NO_DATA, ADDRESS)])
def test_a_policy_may_refuse_one_form_and_allow_the_other(policy: MediaPolicy, message: Any) -> None:
    check(message, policy)
