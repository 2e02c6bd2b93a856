"""Client keys, stored as SHA-256 digests, and the models each key may use.

A key is looked up by the digest of what the client sent, so no secret is compared (``docs/spec/reliability.md`` 3.2).
Without configured keys every request is allowed; such a configuration is accepted on a loopback address only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from gateway.config.snapshot import KeySpec
from gateway.core.errors import InvalidApiKey


class Keyring:
    """The configured keys."""

    def __init__(self, keys: tuple[KeySpec, ...], now: Callable[[], float] = time.time) -> None:
        self._by_digest = {bytes.fromhex(key.sha256): key for key in keys}
        self._allowed: dict[str, set[str]] = {key.sha256: set() for key in keys}
        """Digest → configured models that the key's patterns have matched; never more than the configured models."""
        self._now = now
        self.needed = bool(keys)
        """False: no keys are configured."""

    def admit(self, authorization: str | None) -> KeySpec | None:
        """The key of an ``Authorization`` header; None when no keys are configured. Raises ``InvalidApiKey``."""
        if not self._by_digest:
            return None
        scheme, _, token = (authorization or "").partition(" ")
        key = self._by_digest.get(hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest())
        if scheme.lower() != "bearer" or key is None or (key.expires is not None and key.expires <= self._now()):
            raise InvalidApiKey(
                "send a client key of this gateway (gateway keys new), not a provider's, as `Authorization: Bearer …`"
            )
        return key

    def allows(self, key: KeySpec | None, model: str) -> bool:
        """True if a pattern of the key matches this configured model, or if no keys are configured."""
        if key is None:
            return True
        allowed = self._allowed[key.sha256]
        if model not in allowed:
            if not any(fnmatchcase(model, pattern) for pattern in key.models):
                return False
            allowed.add(model)
        return True
