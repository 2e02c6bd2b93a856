"""``server.tls``: what is refused when the configuration is read, and what is said about it."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config.load import load, read_configuration
from gateway.config.sections.tls import expiry
from gateway.core.errors import ConfigError
from tests.config.conftest import GATEWAY, VALID, Write
from tests.support.certificates import write_certificate


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The name of a file → its text."""
    folder = tmp_path_factory.mktemp("pems")
    write_certificate(folder, "ec", "first")
    write_certificate(folder, "ec", "second")
    write_certificate(folder, "rsa", "rsa")
    write_certificate(folder, "ec", "late", days=20_000)
    encrypt = ["openssl", "ec", "-in", "first.key", "-aes128", "-passout", "pass:secret", "-out", "encrypted.key"]
    subprocess.run(encrypt, cwd=folder, check=True, capture_output=True)
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["first", "late"])
def test_the_end_of_a_certificate_is_read(pems: Mapping[str, str], name: str, tmp_path: Path) -> None:
    (tmp_path / "server.crt").write_text(f"Überschrift\n{pems[f'{name}.crt']}{pems['second.crt']}")
    command = ["openssl", "x509", "-in", "server.crt", "-noout", "-enddate"]
    shown = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert expiry(tmp_path / "server.crt") == ssl.cert_time_to_seconds(shown.partition("=")[2].strip())


def files(pems: Mapping[str, str], server: str) -> dict[str, str]:
    return {**VALID, **pems, "gateway.yaml": f"server: {{{server}}}\n{GATEWAY}"}


REFUSED = {
    "a certificate without a key": (
        "tls: {certificate: first.crt}",
        "tls.key: is missing; TLS needs both server.tls.certificate and server.tls.key",
    ),
    "a key without a certificate": (
        "tls: {key: first.key}",
        "tls.certificate: is missing; TLS needs both server.tls.certificate and server.tls.key",
    ),
    "a missing file": (
        "tls: {certificate: none.crt, key: first.key}",
        "tls.certificate: cannot read none.crt (the file does not exist)",
    ),
    "the key of another certificate": (
        "tls: {certificate: first.crt, key: second.key}",
        "tls.certificate: cannot be used with server.tls.key: the key belongs to another certificate",
    ),
    "the key of a certificate of another kind": (
        "tls: {certificate: first.crt, key: rsa.key}",
        "tls.certificate: cannot be used with server.tls.key: the key belongs to another certificate",
    ),
    "the files in the wrong order": (
        "tls: {certificate: first.key, key: first.crt}",
        "tls.certificate: cannot be used with server.tls.key: the files must be a certificate and its "
        "private key, both in PEM form (not PEM)",
    ),
    "an encrypted key": (
        "tls: {certificate: first.crt, key: encrypted.key}",
        "tls.certificate: cannot be used with server.tls.key: the private key is encrypted; save it without a "
        "password, and let only the gateway read the file",
    ),
}


@pytest.mark.parametrize(("server", "message"), REFUSED.values(), ids=REFUSED)
def test_a_pair_that_cannot_be_used_is_refused(
    write: Write, pems: Mapping[str, str], server: str, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(write(files(pems, server)), {})
    assert str(refused.value) == f"gateway.yaml:1 server.{message}"


def test_both_files_are_watched_and_belong_to_the_revision(write: Write, pems: Mapping[str, str]) -> None:
    path = write(files(pems, "tls: {certificate: first.crt, key: first.key}"))
    first = read_configuration(path, {})
    assert {path.parent / "first.crt", path.parent / "first.key"} <= set(first.files)
    for name in ("crt", "key"):
        (path.parent / f"first.{name}").write_text(pems[f"second.{name}"])
    second = read_configuration(path, {})
    assert first.snapshot is not None
    assert second.snapshot is not None
    assert first.snapshot.server.scheme == "https"
    assert first.snapshot.revision != second.snapshot.revision


def test_a_problem_names_the_environment_variable_that_caused_it(write: Write, pems: Mapping[str, str]) -> None:
    path = write(files(pems, "tls: {certificate: first.crt}"))
    with pytest.raises(ConfigError) as refused:
        load(path, {"GATEWAY_SERVER__TLS__KEY": str(Path("none.key"))})
    said = "environment GATEWAY_SERVER__TLS__KEY: cannot read none.key (the file does not exist)"
    assert str(refused.value) == said
