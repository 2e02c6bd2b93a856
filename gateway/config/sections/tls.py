"""Reads the section ``server.tls``: a certificate and its private key, with which the listeners serve HTTPS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gateway.config.files.reader import Files

ALPN = ["http/1.1"]
"""The protocols offered to clients."""
MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's reasons for a key that belongs to another certificate; the last if the kinds of key differ."""


def read_tls(
    certificate: Any, key: Any, files: Files, add_problem: Callable[[str, str], None]
) -> dict[str, Path | None]:
    """Return the paths of both files as fields of ``ServerSpec``; ``add_problem`` takes a setting and a message.

    The files are read here, so that they are watched, and a pair that cannot be used refuses the configuration.
    """
    paths = {"tls_certificate": certificate, "tls_key": key}
    if not (certificate and key):
        for setting, missing, other in (("certificate", certificate, key), ("key", key, certificate)):
            if missing is None and other:
                add_problem(f"tls.{setting}", "is missing; TLS needs both server.tls.certificate and server.tls.key")
        return {}
    resolved = {name: files.home / path for name, path in paths.items()}
    contents = [files.read(path, partial(add_problem, name.replace("_", "."))) for name, path in resolved.items()]
    if None not in contents:
        try:
            tls_context(*resolved.values())
        except (OSError, ValueError) as error:
            add_problem("tls.certificate", f"cannot be used with server.tls.key: {_reason(error)}")
    return {**resolved}


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The context of a server: TLS 1.2 or later, HTTP/1.1. Raises ``OSError`` if the files cannot be used together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(ALPN)
    context.load_cert_chain(certificate, key, password=_no_password)  # without it, OpenSSL would ask at the terminal
    return context


def _no_password() -> str:
    raise ValueError("the private key is encrypted; write it without a password, readable by the gateway alone")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason in MISMATCHES:
        return "the key belongs to another certificate"
    if isinstance(error, ssl.SSLError):
        return f"both must be PEM files, of a certificate and of its private key ({error.reason or 'not PEM'})"
    return str(error)
