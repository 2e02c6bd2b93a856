"""Checks the media in messages: which fields may contain media, and which addresses are allowed.

The gateway fetches no address, but a target may fetch an address inside its network, a ``file:`` URI or a path (row
A19 of ``docs/spec/reliability.md``; vLLM CVE-2025-6242). So each string of a message must be one of these: text, media
(a ``data:`` URI, or an ``https`` address in strict form), or a plain word that is not an address or a path.
These addresses are never rewritten. An address with characters that a parser would remove or skip is refused.

If the policy allows files (``media.file``), media may also be a ``file:`` URI or a path. Such an address is never sent
as the client wrote it: ``with_files`` replaces it by the file's content, or by the ``file:`` URI of its resolved path.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from gateway.config.snapshot import MediaPolicy
from gateway.core.errors import MediaNotAllowed
from gateway.policy.admit.media_files import InlineBudget, MediaFiles, path_of
from metatemplate.values.dialogue import Message
from metatemplate.values.words import quoted, suggest

HTTPS = re.compile(
    r"https://(\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?)\.?(?::[0-9]{1,5})?(?:[/?#]|$)"
)
"""Matches the beginning of an ``https`` address that was converted to lower case and has no user name."""
ODD_IN_ADDRESS = re.compile(r"[^!-\[\]-~]")
"""Matches spaces, control characters, backslashes and non-ASCII characters. Address parsers differ for all these."""
MAX_ADDRESS = 8192
"""The maximum number of characters of an address."""
DATA = re.compile(r"data:([a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,127})[;,]")
MAX_HEAD = 256
"""The media type of a ``data:`` URI must end within this number of characters."""
BASE64_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\r\n"
PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]{0,128}")
LOCAL_NAMES = frozenset(
    {
        "arpa",
        "cluster",
        "consul",
        "corp",
        "default",
        "home",
        "internal",
        "intranet",
        "invalid",
        "lan",
        "local",
        "localdomain",
        "localhost",
        "private",
        "svc",
        "test",
    }
)
"""Last labels of host names that are not public: a machine or a local network resolves them (RFC 6761, 6762, 8375)."""

KNOWN_PARTS = "Send text in a part of type text, and media in a part such as image_url."
UNKNOWN_FIELD = f"is or contains an unknown field; leave the field out. {KNOWN_PARTS}"

NUMBERS = frozenset({int, float, bool, type(None)})

TEXT: Final = "text"
"""The slot of a field that contains only text. Neither a target nor LiteLLM reads an address in such a field."""
BASE64: Final = "base64"
"""The slot of a field that contains media in base64."""
IMAGE: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
VIDEO: Final = ("video/mp4", "video/webm", "video/mpeg", "video/jpeg")
"""``video/jpeg``: frames of a video as JPEG images in base64, separated by commas, as AISBench and vLLM write them."""
AUDIO: Final = ("audio/wav", "audio/mpeg", "audio/mp3", "audio/ogg")
FILE: Final = ()
"""The slot of a file. It must be a ``data:`` URI of any type. The other media slots list the types that are allowed."""

Slot = str | tuple[str, ...] | Mapping[str, Any]
"""The kind of content that a field may have. The slot of an object is a mapping: field → slot."""

PARTS: Final[Mapping[str, Mapping[str, Slot]]] = {
    # Type of a content part → its fields, both OpenAI's fields and the fields that vLLM and SGLang add.
    "text": {"text": TEXT, "citations": TEXT},
    **{kind: {"text": TEXT} for kind in ("input_text", "output_text", "summary_text")},
    "refusal": {"refusal": TEXT},
    "thinking": {"thinking": TEXT, "text": TEXT, "signature": TEXT},
    "reasoning": {"thinking": TEXT, "text": TEXT},
    "image_url": {"image_url": IMAGE},
    "video_url": {"video_url": VIDEO},
    "audio_url": {"audio_url": AUDIO},
    "input_image": {"image_url": IMAGE},
    "input_audio": {"input_audio": {"data": BASE64}},
    "file": {"file": {"file_data": FILE, "filename": TEXT}},
}

FIELDS: Final[Mapping[str, Slot]] = {
    # Fields of a message except ``content``. Some are fields of answers, which clients send back.
    **dict.fromkeys(
        (
            "role",
            "name",
            "refusal",
            "reasoning",
            "reasoning_content",
            "reasoning_details",
            "thinking",
            "tool_call_id",
            "tool_calls",
            "tool_name",
            "function_call",
            "tools",
            "annotations",
            "citations",
            "extra_content",
            "id",
            "model",
            "timestamp",
        ),
        TEXT,
    ),
    # LiteLLM copies thinking blocks into an Anthropic message, so each field of a block is checked.
    "thinking_blocks": {"type": TEXT, "thinking": TEXT, "signature": TEXT, "data": TEXT},
    "audio": {"data": BASE64, "transcript": TEXT},
}


class MediaRule:
    """A policy's rule for media in messages."""

    def __init__(self, policy: MediaPolicy, budget: InlineBudget | None = None, limit: int = sys.maxsize) -> None:
        """``budget``, ``limit``: for the files that all calls send inline; see ``MediaFiles``."""
        self._https = policy.https == "allow"
        self._data = policy.data == "allow"
        self._files = None if policy.file == "refuse" else MediaFiles(policy, budget or InlineBudget(), limit)

    @property
    def takes_files(self) -> bool:
        """Whether messages may name files. If so, ``with_files`` must be applied to the messages that are sent."""
        return self._files is not None

    def check(self, messages: Sequence[Message], *, files: bool = False) -> None:
        """Raise ``MediaNotAllowed`` if a string of the messages may not be sent to a target.

        ``files``: whether the client has the right to name files.
        """
        for number, message in enumerate(messages):
            for field, value in message.raw.items():
                if field != "content":
                    self._check(value, FIELDS.get(field), f"messages[{number}].{field}")
                elif isinstance(value, list):
                    for index, part in enumerate(value):
                        self._part(part, f"messages[{number}].content[{index}]")
                        if self._files is not None and not files:
                            _refuse_files(part, f"messages[{number}].content[{index}]")

    async def with_files(self, messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        """Return the messages with the final address of each file. Files are read in a thread.

        Raises ``MediaNotAllowed`` for a file that may not be sent, and if all files together are too large; and
        ``Overloaded`` if those of all calls are.
        """
        parts = [part for message in messages for part in _parts(message)]
        if self._files is None or not any(next(_files_in(part), None) for part in parts):
            return tuple(messages)
        return await asyncio.to_thread(_with_files, self._files, messages)

    def _part(self, part: Mapping[str, Any], where: str) -> None:
        kind = part["type"]
        slots, problem = PARTS.get(kind, {}), UNKNOWN_FIELD
        if kind not in PARTS:
            problem = f"has the type {quoted(kind)}, which is not known{suggest(kind, PARTS)}. {KNOWN_PARTS}"
        for field, slot in slots.items():
            if field in part or isinstance(slot, tuple):  # a media part without media is refused
                self._check(part.get(field), slot, f"{where}.{field}")
        for field, value in part.items():
            if field not in slots:
                self._check(value, None, where, problem)

    def _check(self, value: object, slot: Slot | None, where: str, problem: str = UNKNOWN_FIELD) -> None:
        """Check one value against its slot. The depth of the request body limits the recursion.

        ``problem``: what is wrong with a value that is neither text, media nor a plain word.
        """
        if slot == TEXT:
            return
        if isinstance(slot, tuple) or slot == BASE64:
            self._medium(value, slot, where)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self._check(item, slot.get(key) if isinstance(slot, Mapping) else None, where, problem)
        elif isinstance(value, list):
            if not NUMBERS.issuperset(map(type, value)):
                for item in value:
                    self._check(item, slot, where, problem)
        elif isinstance(value, str) and PLAIN_WORD.fullmatch(value) is None:
            raise MediaNotAllowed(f"{where} {problem}", param=where)

    def _medium(self, value: object, slot: Slot, where: str) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if key != "url":
                    self._check(item, None, where)
            value = value.get("url")
        if isinstance(value, str) and self._takes(value, slot, where):
            return
        forms = []
        if self._files is not None and slot not in (BASE64, FILE):
            forms.append("a file: URI or a path")
        if self._https and slot not in (BASE64, FILE):
            forms.append("an https address")
        if self._data:
            kinds = ""
            if isinstance(slot, tuple) and slot:
                kinds = f" of one of these types: {', '.join(slot)} (data:{slot[0]};base64,…)"
            forms.append("the file in base64" if slot == BASE64 else f"a data: URI{kinds}")
        if not forms:
            raise MediaNotAllowed(f"the model's policy (key media) does not allow {where}; leave it out", param=where)
        raise MediaNotAllowed(f"{where} must be {' or '.join(forms)}", param=where)

    def _takes(self, value: str, slot: Slot, where: str) -> bool:
        if slot == BASE64:
            return self._data and _is_base64(value)
        data = DATA.match(value[:MAX_HEAD].lower())
        if data is not None:
            if not (self._data and (slot == FILE or data[1] in slot)):
                return False
            _check_data(value, data[1], where)
            return True
        if self._https and slot != FILE and value[:8].lower() == "https://":
            refuse_unsafe_address(value, where)
            return True
        # a file's path is checked when the file is opened
        return self._files is not None and slot != FILE and len(value) <= MAX_ADDRESS and path_of(value) is not None


def _check_data(uri: str, media_type: str, where: str) -> None:
    """Raise ``MediaNotAllowed`` if a ``data:`` URI has no data, or has data that is not base64 although it says so."""
    head, _, data = uri.partition(",")
    if media_type == "video/jpeg":
        data = data.replace(",", "")
    if not data or (head[-7:].lower() == ";base64" and not _is_base64(data)):
        raise MediaNotAllowed(
            f"{where} is not valid base64; write data:{media_type};base64, and then the bytes of the file in base64",
            param=where,
        )


def _is_base64(text: str) -> bool:
    return text.isascii() and not text.encode().translate(None, BASE64_SIGNS)


def _parts(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the content parts of a message as received."""
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _files_in(part: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (field, path, allowed media types) for each field of a content part that names a file."""
    for field, slot in PARTS.get(part["type"], {}).items():
        value = part.get(field)
        url = value.get("url") if isinstance(value, Mapping) else value
        if isinstance(slot, tuple) and slot != FILE and isinstance(url, str) and (path := path_of(url)) is not None:
            yield field, path, slot


def _refuse_files(part: Mapping[str, Any], where: str) -> None:
    for field, _, _ in _files_in(part):
        raise MediaNotAllowed(
            f"{where}.{field} names a file, and the client's key has no right to name files; send the media as a "
            "data: URI, or ask the operator for a key with allow_media_files",
            param=f"{where}.{field}",
        )


def _with_files(files: MediaFiles, messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    sent, left = [], files.policy.max_size
    for number, message in enumerate(messages):
        parts = []
        for index, part in enumerate(_parts(message)):
            for field, path, types in _files_in(part):
                address, size = files.address(path, types, left, f"messages[{number}].content[{index}].{field}")
                left -= size
                value = part[field]
                part = {**part, field: {**value, "url": address} if isinstance(value, Mapping) else address}
            parts.append(part)
        sent.append({**message, "content": parts} if parts else message)
    return tuple(sent)


def refuse_unsafe_address(url: str, where: str) -> None:
    """Raise ``MediaNotAllowed`` if an address is not an ``https`` address in strict form, or if its host is not public.

    Host names are not resolved. A public name may have an address in a private network; the target must refuse it.
    """
    found = HTTPS.match(url.lower()) if len(url) <= MAX_ADDRESS else None
    if found is None or ODD_IN_ADDRESS.search(url) is not None:
        raise MediaNotAllowed(
            f"{where} must be an https URL of at most {MAX_ADDRESS} ASCII characters, without user name, spaces or "
            "backslashes",
            param=where,
        )
    if _is_local(found[1].strip("[]")):
        raise MediaNotAllowed(
            f"{where} names a host of a local network; send the media as a data: URI, or use a public host", param=where
        )


def _is_local(host: str) -> bool:
    """Return whether a host is a special address (loopback, private, link-local …) or a name that is not public."""
    try:
        address = ip_address(host)
    except ValueError:
        # If the last label begins with a digit, some parsers read the host as IPv4: 127.1, 0x7f.1, 2130706433.
        labels = host.split(".")
        return len(labels) == 1 or "" in labels or labels[-1] in LOCAL_NAMES or labels[-1][0].isdigit()
    # The only IPv6 allowed is global unicast (2000::/3) without tunnels: others may contain an IPv4 address.
    tunnel = isinstance(address, IPv6Address) and (address.packed[0] >> 5 != 1 or address.sixtofour is not None)
    return tunnel or not address.is_global or address.is_multicast
