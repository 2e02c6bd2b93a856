"""The TLS certificate of the listeners of one process. A reload can replace the certificate."""

from __future__ import annotations

import ssl

from gateway.config.sections.tls import expiry, tls_context
from gateway.config.snapshot import ServerSpec
from metatemplate.values.frozen import dataclass


@dataclass(frozen=True, slots=True)
class LoadedCertificate:
    """A certificate with its key, as read from the files."""

    context: ssl.SSLContext
    expires: float
    """The Unix time at which the certificate expires."""


class ServerCertificate:
    """The current certificate. A listener uses ``context`` until the listener is closed.

    Each handshake switches from ``context`` to the context of the last reload. A reload makes a new context, because a
    context that loads a certificate with another type of key also keeps its old certificate.
    """

    def __init__(self, server: ServerSpec) -> None:
        """Load the configured files. Raises ``OSError`` if the files cannot be used."""
        self.current = load(server)
        """What every handshake from now on uses. Open connections continue if it is replaced."""
        self.context = load(server).context
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Use the current certificate for a handshake. OpenSSL calls this even if the client sends no server name."""
        connection.context = self.current.context


def load(server: ServerSpec) -> LoadedCertificate:
    """Load the configured certificate and key. Raises ``OSError`` if the files cannot be used."""
    assert server.tls.certificate is not None
    assert server.tls.key is not None
    return LoadedCertificate(
        context=tls_context(server.tls.certificate, server.tls.key), expires=expiry(server.tls.certificate)
    )
