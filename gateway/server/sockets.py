"""Bound sockets, for one process or for several workers on one port.

On Linux each worker has a separate listening socket, and the kernel balances new connections (SO_REUSEPORT). On other
systems SO_REUSEPORT does not balance, so all workers share one socket and race for connections: of 32 connections
opened at once, one of two workers often got 24 and sometimes all.
"""

from __future__ import annotations

import socket
import sys

from gateway.config.sections.server import url_host

KERNEL_BALANCES = sys.platform == "linux" and hasattr(socket, "SO_REUSEPORT")
"""Whether the kernel balances connections between several sockets that are bound to one port."""

MAX_UNSENT = 128 * 1024
"""The most bytes of unsent data that the kernel buffers for a client, instead of megabytes. With a small
buffer a slow client slows down the engine, and the gateway sees whether a client reads at all. The gateway sees
progress in steps of about this size: a client that reads less within ``delivery.timeout.idle`` counts as stalled."""


class PortBusy(Exception):
    """The gateway cannot listen on the address."""


def bind(
    host: str,
    port: int,
    *,
    shared: bool = False,
    choose: str = "another port: server.port in gateway.yaml, --port 9000, or PORT=9000 make run",
) -> socket.socket:
    """Return a bound socket that does not listen yet. Raises ``PortBusy``.

    ``shared``: whether other workers of this gateway can bind the same port. ``choose``: for the error, what to change.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT)  # accepted connections inherit it
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise PortBusy(f"cannot listen on {url_host(host)}:{port} ({error.strerror}); choose {choose}") from None
    return bound


def split(address: str) -> tuple[str, int]:
    """Return the host and the port of an address such as ``127.0.0.1:9464`` or ``[::1]:9464``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def bind_admin(address: str) -> socket.socket:
    """Return the bound socket of ``server.admin``. Raises ``PortBusy``."""
    return bind(*split(address), choose="another port in server.admin")


def bind_each(host: str, port: int, number: int) -> list[socket.socket]:
    """Return one bound socket for each worker, all on one port. Raises ``PortBusy``."""
    alone = bind(host, port)  # not shared: two gateways that share a port would not notice each other
    if not KERNEL_BALANCES:
        return [alone] + [alone.dup() for _ in range(number - 1)]
    port = alone.getsockname()[1]
    alone.close()
    return [bind(host, port, shared=True) for _ in range(number)]
