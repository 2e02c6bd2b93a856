"""The section ``network`` and the settings ``proxy``, ``proxy_auth`` and ``ca`` of targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway.config.load import load, read_configuration
from gateway.config.snapshot import TargetSpec
from tests.support.certificates import write_certificate

Write = Callable[[Mapping[str, str]], Path]
ENV = {"SHARED": "all:shared", "OWN": "one:own"}
CONFIG = """\
network: {{proxy: "http://shared:3128", proxy_auth: "env:SHARED", no_proxy: [{direct}]}}
models:
  demo:
    template: plain
    targets:
      - {{speaks: completions, url: "http://{host}/v1"{more}}}
"""
ROWS: dict[str, tuple[str, str, str, tuple[str, str]]] = {
    # name: the host, no_proxy, other settings of the target, and its proxy with its credentials
    "no host without a proxy": ("engine.example.org:8000", "", "", ("http://shared:3128", "all:shared")),
    "the name": ("engine.example.org:8000", "engine.example.org", "", ("", "")),
    "a name above": ("engine.example.org:8000", "other, Example.ORG", "", ("", "")),
    "the end of another name": ("engine.badexample.org", "example.org", "", ("http://shared:3128", "all:shared")),
    "an address": ("10.0.0.5:8000", "10.0.0.5", "", ("", "")),
    "an address in brackets": ("[::1]:8000", '"[::1]"', "", ("", "")),
    "a proxy of the target": ("engine", "", ', proxy: "http://own:1"', ("http://own:1", "")),
    "a proxy and credentials of the target": (
        "engine",
        "engine",
        ', proxy: "http://own:1", proxy_auth: "env:OWN"',
        ("http://own:1", "one:own"),
    ),
}


def loaded(write: Write, text: str) -> TargetSpec:
    return load(write({"gateway.yaml": text}), ENV).models["demo"].targets[0]


@pytest.mark.parametrize(("host", "direct", "more", "expected"), ROWS.values(), ids=ROWS)
def test_a_target_has_its_own_proxy_or_that_of_all(
    write: Write, host: str, direct: str, more: str, expected: tuple[str, str]
) -> None:
    target = loaded(write, CONFIG.format(host=host, direct=direct, more=more))
    auth = "" if target.proxy_auth is None else target.proxy_auth.get_secret_value()
    assert (target.proxy, auth) == expected
    assert "own" not in repr(target.proxy_auth)


def test_authorities_are_read_once_and_belong_to_the_revision(write: Write) -> None:
    text = CONFIG.format(host="engine", direct="", more=", ca: corp.pem").replace("http://engine", "https://engine")
    path = write({"gateway.yaml": text, "corp.pem": ""})
    revisions = []
    for kind in ("ec", "rsa"):
        write_certificate(path.parent, kind, "corp")
        certificate = (path.parent / "corp.crt").read_text()
        (path.parent / "corp.pem").write_text(f"# Unternehmens-Zertifikat für Köln\n{certificate}", encoding="utf-8")
        outcome = read_configuration(path, ENV)
        assert outcome.snapshot is not None
        (target,) = outcome.snapshot.models["demo"].targets
        assert certificate in target.authorities
        assert path.parent / "corp.pem" in outcome.files, "a reload follows it"
        revisions.append(outcome.snapshot.revision)
    assert revisions[0] != revisions[1]


def test_a_note_names_each_target_of_litellm_that_does_not_use_the_proxy(write: Write) -> None:
    text = """\
network: {proxy: "http://shared:3128"}
models:
  api:
    template: chat
    targets:
      - {speaks: litellm, model: openai/a}
"""
    notes = [str(note) for note in load(write({"gateway.yaml": text}), {}).notes]
    assert notes == [
        "gateway.yaml:6 models.api.targets[0]: does not use network.proxy; for all its targets, LiteLLM reads "
        "HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE of the environment"
    ]
