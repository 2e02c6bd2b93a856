"""Bound sockets, for one process or for several workers on one port.

On Linux each worker has a separate listening socket, and the kernel balances new connections (SO_REUSEPORT). On other
systems SO_REUSEPORT does not balance, so all workers share one socket and race for connections: of 32 connections
opened at once, one of two workers often got 24 and sometimes all.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import socket
import stat
import sys
from pathlib import Path

from gateway.config.sections.server import url_host

KERNEL_BALANCES = sys.platform == "linux" and hasattr(socket, "SO_REUSEPORT")
"""Whether the kernel balances connections between several sockets that are bound to one port."""

MAX_UNSENT = 128 * 1024
"""The most bytes of unsent data that the kernel buffers for a client, instead of megabytes. With a small
buffer a slow client slows down the engine, and the gateway sees whether a client reads at all. The gateway sees
progress in steps of about this size: a client that reads less within ``delivery.timeout.idle`` counts as stalled."""


SOCKET_MODE = 0o660
"""The file mode of a Unix socket: the user and the group of the gateway may connect."""


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
    if host.startswith("unix:"):
        return _bind_unix(host)
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


def _bind_unix(host: str) -> socket.socket:
    """Return a socket that is bound to a path. A socket file on which no process listens is replaced.

    The file is removed when this process ends. Any other file at the path is left, and raises ``PortBusy``. A lock on a
    file beside it keeps out a second gateway, also before this one listens; the system frees it with the process.
    """
    path, bound = host.removeprefix("unix:"), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        fcntl.flock(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(path) == errno.ECONNREFUSED:
                    os.unlink(path)
        bound.bind(path)
        os.chmod(path, SOCKET_MODE)  # before the socket listens
    except OSError as error:
        bound.close()
        known = {FileNotFoundError: "its folder does not exist", BlockingIOError: "another gateway has its .lock file"}
        reason = known.get(type(error), error.strerror or error)
        raise PortBusy(f"cannot listen on {host} ({reason}); choose another path in server.host") from None
    atexit.register(Path(path).unlink, missing_ok=True)
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
    if not KERNEL_BALANCES or host.startswith("unix:"):
        return [alone] + [alone.dup() for _ in range(number - 1)]
    port = alone.getsockname()[1]
    alone.close()
    return [bind(host, port, shared=True) for _ in range(number)]
