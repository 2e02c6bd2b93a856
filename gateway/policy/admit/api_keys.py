"""Who may call what? Client keys, known by their digests only.

A key is looked up by the SHA-256 of what the client sent, so no secret is ever compared
(``specs/reliability.md`` 3.2). No keys configured: everyone may call everything, which the
configuration allows on loopback only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from gateway.config.snapshot import KeySpec
from gateway.core.errors import InvalidApiKey

WANTED = "send a valid client key as `Authorization: Bearer …`"


class Keyring:
    """The configured keys."""

    def __init__(self, keys: tuple[KeySpec, ...], now: Callable[[], float] = time.time) -> None:
        self._by_digest = {bytes.fromhex(key.sha256): key for key in keys}
        self._within: dict[str, set[str]] = {key.sha256: set() for key in keys}
        """By key, the models that its patterns have been found to allow."""
        self._now = now
        self.needed = bool(keys)
        """Without keys nobody has to be asked for one."""

    def admit(self, authorization: str | None) -> KeySpec | None:
        """The key behind an ``Authorization`` header; None when no keys are needed. Raises ``InvalidApiKey``."""
        if not self._by_digest:
            return None
        scheme, _, token = (authorization or "").partition(" ")
        key = self._by_digest.get(hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest())
        if scheme.lower() != "bearer" or key is None or (key.expires is not None and key.expires <= self._now()):
            raise InvalidApiKey(WANTED)
        return key

    def opens(self, key: KeySpec | None, model: str) -> bool:
        """``allows`` for a configured model; its patterns are matched once, however many there are."""
        if key is None:
            return True
        within = self._within[key.sha256]
        if model in within:
            return True
        if not allows(key, model):
            return False
        within.add(model)  # only names of the configuration come here, so it grows no further than that
        return True


def allows(key: KeySpec | None, model: str) -> bool:
    """May this key see the model?"""
    return key is None or any(fnmatchcase(model, pattern) for pattern in key.models)
