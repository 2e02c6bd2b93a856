"""Self-signed certificates for localhost, made with the command ``openssl``."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

KINDS = {"ec": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), "rsa": ("rsa:2048",)}


def write_certificate(folder: Path, kind: str, name: str = "server", days: int = 2) -> None:
    """Write ``NAME.crt`` and ``NAME.key``; ``kind``: ``ec`` or ``rsa``. Skips the test without ``openssl``."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    request, signed = f"{certificate}.request", ("-copy_extensions", "copyall", "-days", str(days))
    for arguments in (
        (
            "req",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-newkey",
            *KINDS[kind],
            "-keyout",
            f"{key}.new",
            "-out",
            request,
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ),
        ("x509", "-req", "-in", request, "-signkey", f"{key}.new", *signed, "-out", f"{certificate}.new"),
    ):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    for path in (key, certificate):
        Path(f"{path}.new").replace(path)


def trusting(certificate: Path) -> ssl.SSLContext:
    """A client's context that trusts only this certificate."""
    return ssl.create_default_context(cafile=str(certificate))


def served_certificate(port: int) -> str:
    """The certificate (PEM) that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=30)
