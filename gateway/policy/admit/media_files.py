"""Reads the media files that messages name. Only regular files in the folders of a policy are read.

A client's path is resolved first: percent-encoding, ``..`` and links. The resolved path must be in a folder of the
policy. The file is then opened from this folder, one name after another, without following links. So a file that is
replaced by a link in the meantime is not opened.

An address is read as vLLM reads it (``--allowed-local-media-path``): ``file://a/b.png`` names the relative path
``a/b.png``, because AISBench writes relative paths so. ``file://localhost/a.png`` and ``file:/a.png`` are absolute
paths (RFC 8089). The media type is taken from the ending of the written path, because the file behind a link may have
a name without ending.
"""

from __future__ import annotations

import os
import re
import stat
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path
from threading import RLock
from typing import Final
from urllib.parse import quote, unquote

from gateway.config.snapshot import MediaPolicy
from gateway.core.errors import MediaNotAllowed, Overloaded
from gateway.wire.inlined_file import InlinedFile

TYPES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".mpeg": "video/mpeg",
    ".mpg": "video/mpeg",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
}
"""Ending of a file's name → media type."""
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
FILE_ADDRESS = re.compile(r"file:(?://(?:localhost(?=/))?|(?=/(?!/)))([^?#\\]+)", re.IGNORECASE)
"""Matches a ``file:`` address and finds its path. The path is relative if it does not begin with a slash."""


def path_of(address: str) -> str | None:
    """Return the path that an address names, or None if it is not a ``file:`` address or a path."""
    if SCHEME.match(address) is None:
        return address or None
    found = FILE_ADDRESS.fullmatch(address)
    return None if found is None else unquote(found[1], errors="surrogateescape")


class InlineBudget:
    """The bytes of the files that all calls of this process hold inline.

    A file counts until its text is freed, which is when its call has ended in any way.
    """

    def __init__(self) -> None:
        self.used = 0
        self._lock = RLock()
        """Held while a thread changes ``used``. Texts are freed anywhere, also in the thread that holds it."""

    def take(self, size: int, limit: int, where: str) -> None:
        """Count the bytes of a file. Raises ``Overloaded`` if ``limit`` bytes are too few for all."""
        with self._lock:
            if self.used + size > limit:
                raise Overloaded(
                    f"{where}: the media files of running calls are too large together "
                    f"(server.max_inlined_media={limit}); retry later"
                )
            self.used += size

    def free(self, size: int) -> None:
        """Stop counting the bytes of a file."""
        with self._lock:
            self.used -= size


class MediaFiles:
    """The media files in the folders of a policy."""

    def __init__(self, policy: MediaPolicy, budget: InlineBudget, limit: int) -> None:
        """``limit``: the maximum number of bytes of all files in ``budget``."""
        self._budget = budget
        self._limit = limit
        self.policy = policy

    def address(self, path: str, types: Collection[str], left: int, where: str) -> tuple[str, int]:
        """Return the address that is sent in place of a path, and the size of the file in bytes.

        The address is a ``data:`` URI with the file's content, or the ``file:`` URI of the resolved path.
        ``left``: the largest size that is accepted. Raises ``MediaNotAllowed`` if the file is not accepted, and
        ``Overloaded`` if the files of all calls are too large together.
        """
        media_type = TYPES.get(os.path.splitext(path)[1].lower(), "")
        if media_type not in types:  # checked before the file is looked for: the error must not tell whether it exists
            endings = ", ".join([ending for ending, known in TYPES.items() if known in types])
            raise MediaNotAllowed(f"{where} must name a file that ends in one of: {endings}", param=where)
        try:
            descriptor, real = self._open(path)
        except (OSError, ValueError):  # one error for every path, so that it does not tell which files exist
            message = f"{where} names no file in the folders that the model's policy allows (media.folders)"
            raise MediaNotAllowed(message, param=where) from None
        try:
            size = os.fstat(descriptor).st_size
            if size > left:
                most = f"{self.policy.max_size} bytes together (the policy's media.max_size)"
                raise MediaNotAllowed(f"{where} is too large: the files of a request may have {most}", param=where)
            if self.policy.file != "inline":
                return f"file://{quote(os.fsencode(real))}", size
            return self._content(descriptor, media_type, os.path.basename(path), size, where), size
        except OSError as error:
            raise MediaNotAllowed(f"{where}: the file cannot be read ({error.strerror})", param=where) from None
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> tuple[int, str]:
        """Return the file descriptor and the resolved path. A relative path is looked up in each folder, in order."""
        folders = [os.path.realpath(folder) for folder in self.policy.folders]
        for start in folders:
            real = os.path.realpath(os.path.join(start, path))
            for folder in folders:
                if Path(real).is_relative_to(folder) and os.path.exists(real):
                    descriptor = open_beneath(folder, Path(real).relative_to(folder).parts)
                    if stat.S_ISREG(os.fstat(descriptor).st_mode):
                        return descriptor, real
                    os.close(descriptor)
        raise FileNotFoundError(path)

    def _content(self, descriptor: int, media_type: str, name: str, size: int, where: str) -> InlinedFile:
        """Return the content of a file, which counts in the budget until it is freed."""
        self._budget.take(size, self._limit, where)
        try:
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(size + 1)
            if len(content) != size:
                raise MediaNotAllowed(f"{where}: the file has changed while it was read", param=where)
            made = InlinedFile.of(media_type, name, content)
        except BaseException:
            self._budget.free(size)
            raise
        weakref.finalize(made, self._budget.free, size)
        return made


def open_beneath(folder: str, names: Sequence[str]) -> int:
    """Return the file descriptor of a file in a folder, opened without following links. Raises ``OSError``.

    ``names``: the names of the folders on the way and of the file. A named pipe does not block.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for name in names:
        outer = descriptor
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=outer)
        finally:
            os.close(outer)
    return descriptor
