"""Client keys, stored as SHA-256 digests, and the models that each key may use.

A key is looked up by the SHA-256 of the token that the client sent, so the gateway compares no secrets
(``docs/spec/reliability.md`` 3.2). If no keys are configured, every request is allowed. The gateway then starts only on
a loopback address, or with ``insecure_no_keys``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from gateway.config.sections.keys import expiry_note
from gateway.config.snapshot import KeySpec
from gateway.core.errors import InvalidApiKey


class Keyring:
    """The configured client keys."""

    def __init__(self, keys: tuple[KeySpec, ...], now: Callable[[], float] = time.time) -> None:
        self._by_digest = {bytes.fromhex(key.sha256): key for key in keys}
        self._allowed: dict[str, set[str]] = {key.sha256: set() for key in keys}
        """Digest of a key → the configured models that matched a pattern of the key so far."""
        self._now = now
        self.needed = bool(keys)
        """Whether a request needs a key. False if no keys are configured."""

    def admit(self, authorization: str | None) -> KeySpec | None:
        """Return the key that an ``Authorization`` header contains, or None if no keys are configured.

        Raises ``InvalidApiKey`` if the key is missing, unknown or expired.
        """
        if not self._by_digest:
            return None
        scheme, _, token = (authorization or "").partition(" ")
        key = self._by_digest.get(hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest())
        if scheme.lower() != "bearer" or key is None:
            raise InvalidApiKey(
                "the request has no valid client key; send a key of this gateway (made with gateway keys new), not a "
                "provider's key, as `Authorization: Bearer …`"
            )
        if key.expires is not None and key.expires <= self._now():
            error = InvalidApiKey("this client key has expired; ask the operator for a new one")
            error.log_message = expiry_note(key, "expired")
            raise error
        return key

    def allows(self, key: KeySpec | None, model: str) -> bool:
        """Return whether a key may use a configured model. ``key``: None if no keys are configured."""
        if key is None:
            return True
        allowed = self._allowed[key.sha256]
        if model not in allowed:
            if not any(fnmatchcase(model, pattern) for pattern in key.models):
                return False
            allowed.add(model)
        return True
