"""The lines printed when the gateway is ready: its address, its models, a request to try."""

from __future__ import annotations

import logging
import os
import sys
import time

from gateway.config.sections.server import is_loopback, local_url
from gateway.config.snapshot import Snapshot
from gateway.edge.about.commands import curl_command
from gateway.edge.session import TOKEN, Signer
from gateway.server.sockets import split

LOG = logging.getLogger("gateway.runtime")


def announce(snapshot: Snapshot, port: int, viewer_secret: bytes) -> None:
    """Print the greeting on standard error. If the log format is JSON, log the greeting instead.

    The address of the viewer may contain a secret token, and is not logged.
    """
    if snapshot.server.log_format == "json":
        LOG.info(greeting(snapshot, port))
    else:
        address = viewer_address(snapshot, port, viewer_secret)
        print(greeting(snapshot, port) + (f"\nlook:\n  {address}" if address else ""), file=sys.stderr, flush=True)


def viewer_address(snapshot: Snapshot, port: int, viewer_secret: bytes) -> str:
    """Return the address of the viewer; without client keys with the token that opens recorded prompts and answers.

    Empty if the viewer is off, or closed because there are no keys and other machines can connect.
    """
    server = snapshot.server
    address = f"{local_url(server, port)}/viewer"
    if server.viewer == "off" or server.host.startswith("unix:") or not (snapshot.keys or is_loopback(server.host)):
        return ""
    return address if snapshot.keys else f"{address}?{TOKEN}={Signer(viewer_secret).token(TOKEN)}"


def greeting(snapshot: Snapshot, port: int) -> str:
    """Return the greeting for the bound ``port``, with a note if other machines can reach the admin listener."""
    names = list(snapshot.models)
    root = local_url(snapshot.server, port)
    url = root if root.startswith("unix:") else f"{root}/v1"
    workers = f", {snapshot.server.workers} workers" if snapshot.server.workers > 1 else ""
    admin = snapshot.server.admin
    note = (
        f"\nnote: server.admin {admin} serves metrics and health without a key, and other machines can connect to it"
        if admin and not is_loopback(split(admin)[0])
        else ""
    )
    endpoints = snapshot.server.endpoints
    curl = f"--unix-socket {root[5:]} {snapshot.server.scheme}://localhost" if root.startswith("unix:") else root
    command = curl_command(f"{curl}/v1", names[0], has_keys=bool(snapshot.keys))
    example = f"\ntry:\n  {command}" if not endpoints or "chat" in endpoints else ""
    process = f"(process {os.getpid()}, {time.strftime('%H:%M:%S')}{workers})"
    return f"serving {', '.join(names)} at {url}  {process}{example}{note}"
