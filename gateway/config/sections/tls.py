"""Reads the section ``server.tls``: a certificate and its private key, with which the listeners serve HTTPS."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gateway.config.snapshot import TlsSpec
from metatemplate.files.reader import Files

ALPN = ["http/1.1"]
"""The protocols that a TLS listener offers to clients."""
VALIDITY = re.compile(rb"(?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)")
"""The two times between which a DER certificate is valid; the second one ends it. A year has two or four digits.

RFC 5280, 4.1: only a version, a number, an algorithm and the issuer's name stand before these times."""
MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's error reasons for a private key that does not fit the certificate."""


def read_tls(tls: TlsSpec, files: Files, add_problem: Callable[[str, str], None]) -> TlsSpec:
    """Return the section with absolute paths. ``add_problem``: called with a setting and a message.

    The files are read here, so that the watcher follows them. A problem is added if they cannot be used together.
    """
    certificate, key = tls.certificate, tls.key
    if not (certificate and key):
        for setting, missing, other in (("certificate", certificate, key), ("key", key, certificate)):
            if missing is None and other:
                add_problem(f"tls.{setting}", "is missing; TLS needs both server.tls.certificate and server.tls.key")
        return tls
    certificate, key = files.home / certificate, files.home / key
    contents = [files.read(certificate, partial(add_problem, "tls.certificate"))]
    contents.append(files.read(key, partial(add_problem, "tls.key")))
    if None not in contents:
        try:
            tls_context(certificate, key)
            expiry(certificate)
        except (OSError, ValueError) as error:
            add_problem("tls.certificate", f"cannot be used with server.tls.key: {_reason(error)}")
    return replace(tls, certificate=certificate, key=key)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a server: TLS 1.2 or later, HTTP/1.1.

    Raises ``OSError`` if the files cannot be used together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(ALPN)
    context.load_cert_chain(certificate, key, password=_no_password)  # without it, OpenSSL would ask at the terminal
    return context


def expiry(certificate: Path) -> float:
    """Return the Unix time at which the first certificate of a PEM file expires.

    Python's ``ssl`` module does not show this time. Raises ``ValueError`` if the file is not a PEM certificate.
    """
    _, begin, rest = certificate.read_text(encoding="ascii", errors="replace").partition(ssl.PEM_HEADER)
    first, end, _ = rest.partition(ssl.PEM_FOOTER)
    if not end:
        raise ValueError(f'the certificate must begin with the line "{ssl.PEM_HEADER}"')
    found = VALIDITY.search(ssl.PEM_cert_to_DER_cert(begin + first + end))
    if found is None:
        raise ValueError("the certificate has no time at which it expires")
    form = "%y%m%d%H%M%S" if found[1] else "%Y%m%d%H%M%S"
    return datetime.strptime((found[1] or found[2]).decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _no_password() -> str:
    raise ValueError("the private key is encrypted; save it without a password, and let only the gateway read the file")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason in MISMATCHES:
        return "the key belongs to another certificate"
    if isinstance(error, ssl.SSLError):
        return f"the files must be a certificate and its private key, both in PEM form ({error.reason or 'not PEM'})"
    return str(error)
