"""May this host be asked for? The Host header must name us, or a web page could (DNS rebinding)."""

from __future__ import annotations

import re

from gateway.config.sections.server import is_loopback, url_host
from gateway.config.snapshot import ServerSpec
from gateway.core.errors import BadHost
from gateway.edge.http_request import HttpRequest

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

MANY = 256
"""Spellings of allowed hosts (ports, letters) that are remembered."""


class HostGuard:
    """The hosts answered for: loopback names on a loopback listener, and the configured ones."""

    def __init__(self, server: ServerSpec) -> None:
        configured = {host.lower() for host in server.allowed_hosts}
        self._any = "*" in configured
        self._hosts = configured | ({*LOOPBACK, url_host(server.host).lower()} if is_loopback(server.host) else set())
        self.seen: set[bytes | None] = set()
        """Host headers as they were sent, found good before; they need no further ``check``."""

    def check(self, asked: HttpRequest) -> None:
        """Raise ``BadHost`` unless exactly one Host header names an allowed host."""
        host = asked.headers.get(b"host")
        # A comma: two of them, joined.
        if host is None or b"," in host or not (self._any or _name(host.decode("latin-1")) in self._hosts):
            raise BadHost("the Host header names a host this gateway does not answer for (server.allowed_hosts)")
        if len(self.seen) < MANY:
            self.seen.add(host)


_HOST = re.compile(r"(\[[^\[\]@/]*\]|[^\[\]@/:]+)(?::[0-9]*)?")
"""RFC 9110, 7.2: a host and perhaps a port, and nothing else."""


def _name(host: str) -> str | None:
    """Host without its port, a bracketed IPv6 address with its brackets; None: it is not a Host header."""
    found = _HOST.fullmatch(host)
    return found[1].lower() if found else None
