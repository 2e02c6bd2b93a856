"""The certificate with which the listeners of one process serve HTTPS, and its replacement by a reload."""

from __future__ import annotations

import ssl

from gateway.config.sections.tls import expiry, tls_context
from gateway.config.snapshot import ServerSpec
from gateway.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class LoadedCertificate:
    """A certificate with its key, as read from the files."""

    context: ssl.SSLContext
    expires: float
    """Unix time."""


class ServerCertificate:
    """The current certificate. A listener keeps ``context`` until its end.

    Each handshake then changes to the context of the last reload. A new context is needed because loading another
    certificate into a context keeps the old one, if the kinds of their keys differ.
    """

    def __init__(self, server: ServerSpec) -> None:
        """Raises ``OSError`` if the files cannot be used."""
        self._current = load(server)
        self.context = load(server).context
        self.context.sni_callback = self._choose

    @property
    def expires(self) -> float:
        """The Unix time at which the current certificate expires."""
        return self._current.expires

    def replace(self, loaded: LoadedCertificate) -> None:
        """Use the certificate for every handshake from now on. Open connections continue."""
        self._current = loaded

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """OpenSSL calls this for each handshake, also if the client sends no name."""
        connection.context = self._current.context


def load(server: ServerSpec) -> LoadedCertificate:
    """The configured files. Raises ``OSError`` if they cannot be used."""
    assert server.tls_certificate is not None
    assert server.tls_key is not None
    return LoadedCertificate(
        context=tls_context(server.tls_certificate, server.tls_key), expires=expiry(server.tls_certificate)
    )
