"""Reads the proxies and private authorities of targets: the section ``network``, and the settings of each target."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from gateway.config.schema.kinds import A_HOST
from gateway.config.sections.targets import OF_LITELLM
from gateway.config.snapshot import ModelSpec, NetworkSpec, TargetSpec
from metatemplate.files.reader import Files
from metatemplate.files.yaml import YamlDocument
from metatemplate.values.json_values import KeyPath

PROXY = re.compile(rf"http://({A_HOST.pattern}):[0-9]{{1,5}}")
FORM = (
    "must be http://host:port (1-65535); TLS to the proxy and SOCKS are unsupported, a password belongs in proxy_auth"
)


def read_network(
    document: YamlDocument, files: Files, network: NetworkSpec, models: Mapping[str, ModelSpec]
) -> dict[str, ModelSpec]:
    """Return the models, each target with its proxy and its authorities. Problems are added to the document.

    ``network``: the section, in which refused values are ``INVALID``.
    """
    _check_proxy(document, ("network",), network)

    def complete(target: TargetSpec) -> TargetSpec:
        name, _, number = target.label.rpartition("/")
        path: KeyPath = ("models", name, "targets", int(number))
        if target.speaks == "litellm" and network.proxy:
            files.notes.append(document.problem(path, f"does not use network.proxy; {OF_LITELLM}"))
        _check_proxy(document, path, target)
        host = urlsplit(target.url).hostname or ""
        direct = any(f".{host}".endswith(f".{entry.strip('[]')}") for entry in network.no_proxy or ())
        chosen = target if target.proxy or direct else network
        authorities = _authorities(document, files, (*path, "ca"), target)
        return replace(target, proxy=chosen.proxy, proxy_auth=chosen.proxy_auth, authorities=authorities)

    return {name: replace(model, targets=tuple(map(complete, model.targets))) for name, model in models.items()}


def _check_proxy(document: YamlDocument, path: KeyPath, given: NetworkSpec | TargetSpec) -> None:
    if given.proxy and not (PROXY.fullmatch(given.proxy) and 0 < int(given.proxy.rpartition(":")[2]) < 65536):
        document.refuse((*path, "proxy"), FORM)
    if given.proxy_auth and not (given.proxy and ":" in given.proxy_auth.get_secret_value()):
        document.refuse((*path, "proxy_auth"), "must contain user:password, and needs proxy beside it")


def _authorities(document: YamlDocument, files: Files, path: KeyPath, target: TargetSpec) -> str:
    """Return the content of the file ``ca``, or add a problem; empty without a file."""
    if target.ca is not None and not target.url.startswith("https"):
        document.refuse(path, "needs an https:// address in url")
    data = None if target.ca is None else files.read(files.home / target.ca, partial(document.refuse, path))
    if data is None:
        return ""
    certificates = data.decode("ascii", "ignore")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        document.refuse(path, f"{target.ca} contains no certificate in PEM form")
    return certificates
