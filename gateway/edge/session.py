"""Signed sessions of browsers: a cookie that names a client key by its digest, until the session expires.

The cookie holds no key. The digest is looked up in the keys on every request, so a revoked key ends its session.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass

from gateway.config.snapshot import ServerSpec

SESSION_SECONDS = 12 * 3600
"""Seconds after which a session expires."""
SESSION = "session"
"""The purpose of the token in the cookie of a session."""
TOKEN = "token"
"""The name of the printed token in an address, and its purpose."""
OPERATOR = b""
"""The subject of a session that began with the printed token. No key has this digest."""


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and checks sessions and tokens with the secret of the viewer."""

    secret: bytes
    """At least 16 bytes. All processes that serve one address have the same secret."""

    def token(self, purpose: str, subject: str = "") -> str:
        """Return the token for a purpose, as 32 characters that may stand in an address."""
        signed = b"%b\0%b" % (purpose.encode("ascii"), subject.encode("utf-8", "replace"))
        return base64.urlsafe_b64encode(hmac.digest(self.secret, signed, "sha256")[:24]).decode("ascii")

    def is_token(self, text: str, purpose: str, subject: str = "") -> bool:
        """Return whether a text is the token for a purpose. Takes the same time for every text of the same length."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token(purpose, subject).encode("ascii"))

    def session(self, subject: bytes, now: float) -> str:
        """Return the value of the cookie of a session that begins at ``now`` (Unix time).

        ``subject``: the SHA-256 of a client key, or ``OPERATOR``.
        """
        content = f"{subject.hex()}.{int(now + SESSION_SECONDS)}"
        return f"{content}.{self.token(SESSION, content)}"

    def subject(self, cookie: str, now: float) -> bytes | None:
        """Return the subject of a session. None if the cookie is invalid, or if the session has expired at ``now``."""
        content, _, token = cookie.rpartition(".")
        if not self.is_token(token, SESSION, content):
            return None
        subject, end = content.split(".")
        return bytes.fromhex(subject) if int(end) > now else None


def cookie_value(header: str | None, name: str) -> str:
    """Return the value of a cookie; empty if there is none. Other cookies of this host may have any form."""
    for one in (header or "").split(";"):
        found, _, value = one.strip().partition("=")
        if found == name:
            return value
    return ""


def viewer_signer(server: ServerSpec, secret: bytes) -> Signer:
    """Return the signer with the configured secret (``server.viewer_secret``), else with ``secret`` of this start."""
    if server.viewer_secret is None:
        return Signer(secret)
    return Signer(b"gateway viewer\0" + server.viewer_secret.get_secret_value().encode("utf-8"))
