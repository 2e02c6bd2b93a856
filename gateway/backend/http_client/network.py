"""Connections to a target through an HTTP proxy, and with trust in further certificates.

A request to an ``http`` address is sent to the proxy with the whole address in its request line. For an ``https``
address the proxy opens a tunnel (CONNECT), and TLS inside it is with the target. The connection to the proxy itself has
no TLS. Only the proxy gets the credentials: in the CONNECT, or with a request that it forwards.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urlsplit

from gateway.backend.http_client.client import ConnectionPool, HttpClient
from gateway.backend.http_client.connection import Connection
from gateway.core.errors import UpstreamDnsError, UpstreamError, UpstreamUnreachable

REMEDIES = {403: "allow the address of the model's server at the proxy", 407: "set or correct proxy_auth"}
"""Status of a refused CONNECT → what to do."""


@dataclass(frozen=True, slots=True)
class Network:
    """The network settings of a target; a ``PoolFactory``."""

    proxy: str
    """``http://host:port``; empty: connect to the target itself."""
    proxy_auth: str = field(repr=False)
    """``user:password`` for the proxy; may be empty."""
    authorities: str
    """Certificates in PEM form that are trusted besides the system's; may be empty."""

    @property
    def credentials(self) -> str:
        """``proxy_auth`` as the proxy gets it, in Base64; may be empty."""
        return base64.b64encode(self.proxy_auth.encode("ascii")).decode("ascii")

    def __call__(self, client: HttpClient, host: str, port: int, tls: ssl.SSLContext | None) -> ConnectionPool:
        """Return a new pool for a target."""
        if tls is not None and self.authorities:
            tls = ssl.create_default_context()
            tls.load_verify_locations(cadata=self.authorities)
        if not self.proxy:
            return ConnectionPool(client, host, port, tls)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        auth = f"proxy-authorization: Basic {self.credentials}\r\n" if self.proxy_auth else ""
        if tls is None:
            return ProxiedPool(client, host, port, None, f"http://{address}", auth, self.proxy)
        connect = f"CONNECT {address} HTTP/1.1\r\nhost: {address}\r\n{auth}\r\n".encode("ascii")
        return ProxiedPool(client, host, port, tls, proxy=self.proxy, connect=connect)


@dataclass(eq=False, slots=True)
class ProxiedPool(ConnectionPool):
    """The idle connections to one target through a proxy."""

    peer: ClassVar[str] = "the proxy, or the model's server behind it,"
    proxy: str = ""
    connect: bytes = b""
    """The request that opens a tunnel; empty: the proxy forwards requests."""

    async def open(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """Return a new connection, with TLS inside a tunnel if the target has TLS. See ``ConnectionPool.open``."""
        proxy, url = ProxyConnection(loop), urlsplit(self.proxy)
        try:
            transport, _ = await loop.create_connection(lambda: proxy, url.hostname or "", url.port or 0)
        except socket.gaierror:
            raise UpstreamDnsError("the host name of the proxy does not resolve; check proxy") from None
        except OSError:
            raise UpstreamUnreachable("the proxy does not accept connections; check proxy, and that it runs") from None
        if self.tls is None:
            return proxy
        connection = Connection(loop)
        try:
            await proxy.send(self.connect, b"")
            await proxy.read_head()
            if proxy.status // 100 != 2:
                what = f"the proxy refuses the connection to the model's server (status {proxy.status})"
                raise UpstreamUnreachable(
                    f"{what}; {REMEDIES.get(proxy.status, 'check url, and the log of the proxy')}"
                )
            tunnel = await loop.start_tls(transport, connection, self.tls, server_hostname=self.host)
            if tunnel is None or tunnel.is_closing():
                raise ConnectionResetError
            connection.connection_made(tunnel)
        except BaseException:
            proxy.close()
            raise
        return connection


class ProxyConnection(Connection):
    """A connection to a proxy, which forwards requests or opens a tunnel."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        """asyncio calls this when bytes have arrived. The reader is woken by a head alone: a CONNECT has no body."""
        super().data_received(data)
        if self._forward is None:
            self._wake()

    def _fail(self, error: UpstreamError) -> None:
        message = error.message.replace("the model's server", "the proxy", 1)
        error.message = message.replace("use https:// instead of http:// in url", "name its port without TLS in proxy")
        super()._fail(error)
