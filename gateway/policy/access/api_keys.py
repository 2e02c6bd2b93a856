"""Client keys, stored as SHA-256 digests, and the models that each key may use.

A key is looked up by the SHA-256 of the token that the client sent, so the gateway compares no secrets
(``docs/spec/reliability.md`` 3.2). If no keys are configured, every request is allowed. The gateway then starts only on
a loopback address, or with ``insecure_no_keys``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from gateway.config.snapshot import KeySpec
from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.errors import InvalidApiKey


class Keyring:
    """The configured client keys."""

    def __init__(
        self, keys: Sequence[KeySpec], models: Iterable[str] = (), now: Callable[[], float] = time.time
    ) -> None:
        """``models``: the names of the configured models, of which each key allows some."""
        names = tuple(models)
        allowed = {patterns: _matching(patterns, names) for patterns in {key.models for key in keys}}
        self._by_digest = {
            bytes.fromhex(key.sha256): (
                key,
                Caller(
                    key=key.name,
                    models=allowed[key.models],
                    record=key.record,
                    allow_markers=key.allow_markers,
                    allow_media_files=key.allow_media_files,
                ),
            )
            for key in keys
        }
        self._now = now
        self.needed = bool(keys)
        """Whether a request needs a key. False if no keys are configured."""

    def authenticate(self, authorization: str | None) -> Caller:
        """Return the owner of the key in an ``Authorization`` header, or ``ANONYMOUS`` if no keys are configured.

        Raises ``InvalidApiKey`` if the key is missing, unknown or expired.
        """
        if not self.needed:
            return ANONYMOUS
        scheme, _, token = (authorization or "").partition(" ")
        return self.owner(key_digest(token.strip()) if scheme.lower() == "bearer" else b"")

    def owner(self, digest: bytes) -> Caller:
        """Return the owner of the key with a SHA-256 digest. Raises ``InvalidApiKey`` if it is unknown or expired."""
        found = self._by_digest.get(digest)
        if found is None:
            raise InvalidApiKey(
                "the request has no valid client key; send a key of this gateway (made with gateway keys new), not a "
                "provider's key, as `Authorization: Bearer …`"
            )
        key, caller = found
        if key.expires is not None and key.expires <= self._now():
            error = InvalidApiKey("this client key has expired; ask the operator for a new one")
            from gateway.config.sections.keys import expiry_note  # imported with the configuration that has keys

            error.log_message = expiry_note(key, "expired")
            raise error
        return caller


def key_digest(key: str) -> bytes:
    """Return the SHA-256 of a client key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _matching(patterns: Sequence[str], models: Sequence[str]) -> frozenset[str] | None:
    """Return the models that match a pattern; None if a pattern matches every name."""
    if "*" in patterns:
        return None
    return frozenset([model for model in models if any(fnmatchcase(model, pattern) for pattern in patterns)])
