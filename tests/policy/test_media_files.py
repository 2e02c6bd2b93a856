"""Media that messages name as files: which files are sent, in which form, and which paths are refused."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from gateway.config.snapshot import MediaPolicy
from gateway.core.errors import MediaNotAllowed
from gateway.policy.admit.media import MediaRule
from gateway.policy.admit.media_files import open_beneath
from gateway.wire.requests import read_chat

PIXELS = b"\x89PNG of ten"


@dataclass(frozen=True)
class Disk:
    """Two named folders and a folder that no policy names."""

    root: Path

    def policy(self, file: Literal["pass", "inline"] = "inline", max_size: int = 1000) -> MediaPolicy:
        return MediaPolicy(file=file, folders=(self.root / "images", self.root / "more"), max_size=max_size)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    root = tmp_path.resolve()
    for name in (
        "images/deep/a.png",
        "images/b c%20ü.png",
        "images/clip.mp4",
        "more/only.jpg",
        "images/text.txt",
        "outside/secret.png",
        "images-too/secret.png",
        "images/%2e%2e/kept.png",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(PIXELS)
    (root / "images" / "empty.png").touch()
    (root / "images" / "folder.png").mkdir()
    os.mkfifo(root / "images" / "pipe.png")
    (root / "images" / "to-a.png").symlink_to("deep/a.png")
    (root / "images" / "to-more.jpg").symlink_to(root / "more" / "only.jpg")
    (root / "images" / "to-secret.png").symlink_to(root / "outside" / "secret.png")
    (root / "images" / "to-outside").symlink_to(root / "outside")
    (root / "images" / "loop.png").symlink_to("loop.png")
    (root / "images" / "blobs").mkdir()
    (root / "images" / "blobs" / "abc123").write_bytes(PIXELS)
    (root / "images" / "blob.png").symlink_to("blobs/abc123")  # as in Hugging Face's cache
    (root / "images" / "to-a.txt").symlink_to("deep/a.png")
    return Disk(root)


def part(url: Any, kind: str = "image_url") -> dict[str, Any]:
    return {"type": kind, kind: {"url": url}}


def sent(policy: MediaPolicy, *parts: dict[str, Any], right: bool = True) -> list[Any]:
    """The parts that are sent in place of the parts of a request."""
    body = {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}
    call = read_chat(body, request_id="r")
    assert call.dialogue is not None
    rule = MediaRule(policy)
    rule.check(call.dialogue.messages, files=right)
    messages = asyncio.run(rule.with_files([message.raw for message in call.dialogue.messages]))
    parts_sent = messages[0]["content"]
    assert isinstance(parts_sent, list)
    return parts_sent


def refusal(policy: MediaPolicy, *parts: dict[str, Any], right: bool = True) -> MediaNotAllowed:
    with pytest.raises(MediaNotAllowed) as raised:
        sent(policy, *parts, right=right)
    return raised.value


FORMS = {  # the address in the request: the file that is sent
    "file://ROOT/images/deep/a.png": "images/deep/a.png",
    "FILE://LOCALHOST" + "ROOT/images/deep/a.png": "images/deep/a.png",
    "file://ROOT/images/deep/../deep/./a.png": "images/deep/a.png",
    "file://ROOT/outside/../images/deep/a.png": "images/deep/a.png",
    "file://ROOT/images/d%65ep%2Fa.png": "images/deep/a.png",
    "file://ROOT/images/%252e%252e/kept.png": "images/%2e%2e/kept.png",
    "file://ROOT/images/b c%2520ü.png": "images/b c%20ü.png",
    "file://ROOT/images/b%20c%2520%C3%BC.png": "images/b c%20ü.png",
    "file://deep/a.png": "images/deep/a.png",
    "file://./deep/a.png": "images/deep/a.png",
    "file://only.jpg": "more/only.jpg",
    "deep/a.png": "images/deep/a.png",
    "b c%20ü.png": "images/b c%20ü.png",
    "ROOT/more/only.jpg": "more/only.jpg",
    "file://to-a.png": "images/deep/a.png",
    "file:ROOT/images/deep/a.png": "images/deep/a.png",
    "File:ROOT/images/b%20c%2520%C3%BC.png": "images/b c%20ü.png",
    "file://to-more.jpg": "more/only.jpg",
    "file://blob.png": "images/blobs/abc123",
    "ROOT/images/blob.png": "images/blobs/abc123",
}


@pytest.mark.parametrize("url", FORMS)
def test_each_form_of_a_path_names_one_file(disk: Disk, url: str) -> None:
    real = disk.root / FORMS[url]
    kind = "jpeg" if real.suffix == ".jpg" else "png"
    url = url.replace("ROOT", str(disk.root))
    inline = f"data:image/{kind};base64,{b64encode(PIXELS).decode()}"
    assert sent(disk.policy("inline"), part(url)) == [part(inline)]
    assert sent(disk.policy("pass"), part(url)) == [part(real.as_uri())]


def test_only_the_address_of_a_part_changes(disk: Disk) -> None:
    text = {"type": "text", "text": "file:///etc/passwd"}
    image = {"type": "image_url", "image_url": {"url": "deep/a.png", "detail": "low"}, "uuid": "one"}
    short = {"type": "input_image", "image_url": "file://deep/a.png"}
    data = part("data:image/png;base64,AAAA")
    real = (disk.root / "images/deep/a.png").as_uri()
    assert sent(disk.policy("pass"), text, image, short, data) == [
        text,
        {"type": "image_url", "image_url": {"url": real, "detail": "low"}, "uuid": "one"},
        {"type": "input_image", "image_url": real},
        data,
    ]


def test_a_video_is_sent_with_its_own_type(disk: Disk) -> None:
    assert sent(disk.policy(), part("file://clip.mp4", "video_url"))[0]["video_url"]["url"].startswith(
        "data:video/mp4;"
    )


NO_FILE = "names no file in the folders that the model's policy allows (media.folders)"
WRONG_ENDING = "must name a file that ends in one of: .png, .jpg, .jpeg, .gif, .webp"
REFUSED: Mapping[str, str] = {  # the address: the reason
    "file:///etc/passwd": WRONG_ENDING,
    "/etc/passwd": WRONG_ENDING,
    "file://ROOT/outside/secret.png": NO_FILE,
    "file://ROOT/outside/missing.png": NO_FILE,
    "file://ROOT/images-too/secret.png": NO_FILE,
    "file://../outside/secret.png": NO_FILE,
    "../outside/secret.png": NO_FILE,
    "file://ROOT/images/../outside/secret.png": NO_FILE,
    "file://ROOT/images/%2e%2e/outside/secret.png": NO_FILE,
    "file://ROOT/images/..%2foutside/secret.png": NO_FILE,
    "file://%2e%2e/outside/secret.png": NO_FILE,
    "file://localhost/../outside/secret.png": NO_FILE,
    "file://to-secret.png": NO_FILE,
    "file://to-outside/secret.png": NO_FILE,
    "file:///proc/self/root" + "ROOT/outside/secret.png": NO_FILE,
    "file:///proc/self/cwd/../../../../etc/passwd": WRONG_ENDING,
    "file:///proc/self/fd/0": WRONG_ENDING,
    "file:///dev/zero": WRONG_ENDING,
    "file://missing.png": NO_FILE,
    "file://loop.png": NO_FILE,
    "file://deep/a.png%00.png": NO_FILE,
    "file://" + "a" * 300 + ".png": NO_FILE,
    "//a.example/a.png": NO_FILE,
    " https://a.example/a.png": NO_FILE,
    "h\nttp://a.example/a.png": NO_FILE,
    "file://pipe.png": NO_FILE,
    "file://folder.png": NO_FILE,
    "file://ROOT/images": WRONG_ENDING,
    "file://missing.txt": WRONG_ENDING,
    "file:ROOT/outside/secret.png": NO_FILE,
    "file:/etc/passwd": WRONG_ENDING,
    "file://to-a.txt": WRONG_ENDING,
    "file://blobs/abc123": WRONG_ENDING,
    "file://deep/a.png/": WRONG_ENDING,
    "file://text.txt": WRONG_ENDING,
    "file://clip.mp4": WRONG_ENDING,
    "file:deep/a.png": "must be a file: URI or a path or an https address or a data: URI",
    "file://deep/a.png?x": "must be a file: URI or a path or an https address or a data: URI",
    "file://deep/a.png#x": "must be a file: URI or a path or an https address or a data: URI",
    "file://deep\\a.png": "must be a file: URI or a path or an https address or a data: URI",
    "file://" + "a/" * 5000 + "a.png": "must be a file: URI or a path or an https address or a data: URI",
    "http://a.example/a.png": "must be a file: URI or a path or an https address or a data: URI",
    "http:a.png": "must be a file: URI or a path or an https address or a data: URI",
}


@pytest.mark.parametrize("mode", ["pass", "inline"])
@pytest.mark.parametrize("url", REFUSED, ids=lambda url: ascii(url)[:50])
def test_other_paths_are_refused(disk: Disk, url: str, mode: Literal["pass", "inline"]) -> None:
    address = url.replace("ROOT", str(disk.root))
    error = refusal(disk.policy(mode), part(address))
    assert REFUSED[url] in error.message
    assert error.param == "messages[0].content[0].image_url"
    assert address not in error.message


def test_a_missing_file_and_a_file_outside_get_the_same_error(disk: Disk) -> None:
    messages = {
        refusal(disk.policy(), part(f"file://{disk.root}/outside/{name}.png")).message for name in ("secret", "x")
    }
    assert len(messages) == 1


@pytest.mark.parametrize("mode", ["pass", "inline"])
def test_all_files_of_a_request_together_have_a_size_limit(disk: Disk, mode: Literal["pass", "inline"]) -> None:
    image, size = part("file://deep/a.png"), len(PIXELS)
    assert len(sent(disk.policy(mode, size), image)) == 1
    assert "may have 10 bytes together" in refusal(disk.policy(mode, size - 1), image).message
    assert len(sent(disk.policy(mode, 2 * size), image, image)) == 2
    error = refusal(disk.policy(mode, 2 * size), image, image, image)
    assert (error.param, "max_size" in error.message) == ("messages[0].content[2].image_url", True)
    assert len(sent(disk.policy(mode, size), image, part("file://empty.png"))) == 2


def test_a_folder_that_becomes_a_link_after_the_check_is_not_followed(disk: Disk) -> None:
    """The path is resolved before the file is opened. A link that appears in between must not lead out."""
    folder = str(disk.root / "images")
    os.close(open_beneath(folder, ("deep", "a.png")))
    for names in (("to-outside", "secret.png"), ("to-secret.png",), ("to-a.png",)):
        with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
            open_beneath(folder, names)


def test_a_client_without_the_right_names_no_file(disk: Disk) -> None:
    error = refusal(disk.policy(), part("data:image/png;base64,AAAA"), part("file://deep/a.png"), right=False)
    assert "ask the operator for a key with allow_media_files" in error.message
    assert error.param == "messages[0].content[1].image_url"


def test_files_are_only_for_parts_with_a_media_type(disk: Disk) -> None:
    for other in (
        {"type": "file", "file": {"file_data": "file://deep/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "file://deep/a.png"}},
        {"type": "image_url", "image_url": {"url": {"url": "deep/a.png"}}},
        {"type": "made-up", "image_url": {"url": "deep/a.png"}},
    ):
        refusal(disk.policy(), other)


def test_without_the_setting_no_file_is_accepted(disk: Disk) -> None:
    policy = MediaPolicy(folders=(disk.root / "images",))
    assert not MediaRule(policy).takes_files
    for url in ("file://deep/a.png", "deep/a.png", (disk.root / "images/deep/a.png").as_uri()):
        assert "must be an https address or a data: URI" in refusal(policy, part(url)).message
