"""The check of the Host header, which stops web pages from reaching a local gateway (DNS rebinding)."""

from __future__ import annotations

import re

from gateway.config.sections.server import is_loopback, url_host
from gateway.config.snapshot import ServerSpec
from gateway.core.errors import BadHost
from gateway.edge.http_request import HttpRequest
from metatemplate.values.words import quoted

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

MAX_ACCEPTED = 256
"""The maximum number of accepted Host headers that are remembered. A host has many spellings (port, letter case)."""


class HostGuard:
    """Accepts the configured hosts, and on a loopback listener also the loopback names."""

    def __init__(self, server: ServerSpec) -> None:
        configured = {host.lower() for host in server.allowed_hosts}
        self._any = "*" in configured
        self._hosts = configured | ({*LOOPBACK, url_host(server.host).lower()} if is_loopback(server.host) else set())
        self.accepted: set[bytes | None] = set()
        """Host headers, as sent, that ``check`` has accepted before. ``App`` does not check these again."""

    def check(self, request: HttpRequest) -> None:
        """Raise ``BadHost`` unless exactly one Host header names an accepted host."""
        host = request.headers.get(b"host")
        if host is None:
            raise BadHost("the Host header is missing")
        found = _HOST.fullmatch(host.decode("latin-1"))
        if found is None:
            raise BadHost(f"the Host header {quoted(host.decode('latin-1'))} is not a valid host")
        name = found[1].lower()  # without the port; an IPv6 address keeps the brackets
        if not (self._any or name in self._hosts):
            raise BadHost(
                f"the Host header names {quoted(name)}, which is not allowed; the operator can add this host to "
                "server.allowed_hosts"
            )
        if len(self.accepted) < MAX_ACCEPTED:
            self.accepted.add(host)


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+;=-]+)(?::[0-9]*)?")
"""RFC 9110, 7.2: a host, optionally a port, and nothing else. The values of two Host headers are joined by a comma."""
