"""Checks the store, the certificate of the listeners, and the names of ``server.allowed_hosts``."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path

from gateway.cli.connecting.engine import REQUEST_SECONDS
from gateway.cli.connecting.live_check import LiveResult
from gateway.config.files.yaml import YamlDocument
from gateway.config.sections.keys import EXPIRES_SOON
from gateway.config.sections.tls import expiry, tls_context
from gateway.config.snapshot import Snapshot, StoreSpec
from gateway.core.words import quoted, utc

OTHER_NAME = (62, 64)
"""OpenSSL's codes for a certificate that does not contain the host name or the IP address."""


async def check_server(snapshot: Snapshot, document: YamlDocument) -> list[LiveResult]:
    """Return one result for each of the store, the certificate and the hosts. ``document``: ``gateway.yaml``."""
    server, found = snapshot.server, []
    if snapshot.store.url:
        found.append(await _store(snapshot.store, document))
    if server.tls.certificate is not None:
        found.append(_certificate(server.tls.certificate, document))
    hosts = [host.strip("[]") for host in server.allowed_hosts if host != "*"]
    found += await asyncio.gather(*[_host(host, server.tls.certificate, server.tls.key, document) for host in hosts])
    return found


async def _store(spec: StoreSpec, document: YamlDocument) -> LiveResult:
    from gateway.storage.redis_server import probe

    if fault := await probe(spec, REQUEST_SECONDS):
        return LiveResult("store", "problem", document.problem(("store", "url"), f"{spec.url} {fault}"))
    return LiveResult("store", f"{spec.url} answers, and can be written")


def _certificate(path: Path, document: YamlDocument) -> LiveResult:
    end = expiry(path)
    if end <= time.time():
        message = f"expired at {utc(end)}, so clients refuse the connection; renew the files"
        return LiveResult("certificate", "problem", document.problem(("server", "tls", "certificate"), message))
    soon = " soon, at" if end <= time.time() + EXPIRES_SOON else " at"
    return LiveResult("certificate", f"expires{soon} {utc(end)}")


async def _host(host: str, certificate: Path | None, key: Path | None, document: YamlDocument) -> LiveResult:
    """Look a host up, and compare it with the certificate. An unknown host may be known in the clients' network."""
    found = fault = ""
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found = f"has the address {', '.join(dict.fromkeys([str(row[4][0]) for row in rows]))}"
    except UnicodeError:  # a part between two dots is empty or too long
        fault = f"{quoted(host)} is not a valid host name; correct it"
    except OSError:
        found = "has no address on this machine; check its spelling"
    if not fault and certificate is not None and key is not None and not _has_name(certificate, key, host):
        fault = f"the certificate of server.tls does not contain {quoted(host)}, so clients refuse the connection"
    if fault:
        return LiveResult(f"host {host}", "problem", document.problem(("server", "allowed_hosts"), fault))
    return LiveResult(f"host {host}", found)


def _has_name(certificate: Path, key: Path, host: str) -> bool:
    """Return whether a client accepts the certificate for a host name. The TLS handshake is made in memory."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(certificate)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=host)
    server = tls_context(certificate, key).wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_code not in OTHER_NAME
    return True
