"""Reads the ``server`` section and its environment variables.

A listener that other machines can reach is refused if there are no client keys.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from gateway.config.files.reader import ENVIRONMENT, Files
from gateway.config.files.yaml import YamlDocument
from gateway.config.schema.settings import GATEWAY, ROWS
from gateway.config.schema.validation import INVALID
from gateway.config.sections.tls import read_tls
from gateway.config.snapshot import ServerSpec
from gateway.core.errors import Problem
from gateway.core.words import quoted, suggest

PREFIX = "GATEWAY_"
SERVER = "GATEWAY_SERVER__"
VARIABLES = {
    SERVER + row.name.removeprefix("server.").replace(".", "__").upper(): row
    for row in ROWS
    if row.file == GATEWAY and row.name.startswith("server.")
}
"""Name of an environment variable → row of the setting that the variable overrides."""


def read_server(
    document: YamlDocument, values: Any, files: Files, env: Mapping[str, str], *, has_keys: bool
) -> ServerSpec | None:
    """Return the section, or add problems and return None. ``values``: the section's values, or ``INVALID``.

    ``GATEWAY_SERVER__PORT`` and similar variables take precedence over the file. Variables without a double underscore
    are ignored, because container platforms create such variables. A non-loopback listener without keys is refused
    (``docs/spec/reliability.md`` F04).
    """
    settings = {_field(row.name): row.default_value for row in VARIABLES.values()}
    for name, value in (values or {}).items():
        inner = value if isinstance(value, dict) else {"": value}
        settings |= {_field(f"server.{name}.{key}"): entry for key, entry in inner.items()}
    for variable in sorted(env):
        if variable in VARIABLES:
            setting = _field(VARIABLES[variable].name)
            try:
                settings[setting] = VARIABLES[variable].kind.from_text(env[variable])
            except ValueError as error:
                settings[setting] = INVALID
                document.problems.append(Problem(ENVIRONMENT, 0, variable, str(error)))
        elif variable.startswith(PREFIX) and "__" in variable:
            hint = f"; only settings of the section server have variables, such as {SERVER}PORT"
            hint = suggest(variable, VARIABLES) if variable.startswith(SERVER) else hint
            document.problems.append(Problem(ENVIRONMENT, 0, variable, f"unknown variable{hint}"))

    def add_problem(setting: str, message: str) -> None:
        """Add a problem with a setting, at the environment variable or the line that gives the value."""
        variable = SERVER + setting.replace(".", "__").upper()
        if variable in env:
            document.problems.append(Problem(ENVIRONMENT, 0, variable, message))
        else:
            document.refuse(("server", *setting.split(".")), message)

    host, admin = settings["host"], settings["admin"]
    if admin and host and admin == f"{url_host(host)}:{settings['port']}":
        add_problem("admin", "is also the address of the main listener; choose another port, or remove the line")
    if host and not is_loopback(host):
        is_open = f"other machines can connect to {quoted(host)}"
        if not has_keys and settings["insecure_no_keys"] is False:
            ways = "write `keys: {file: keys.yaml}` (gateway keys new NAME >> keys.yaml), or listen on 127.0.0.1"
            add_problem("host", f"{is_open}, and there are no client keys; {ways}")
        if settings["allowed_hosts"] == ():
            names = "with the names that clients use for this machine"
            add_problem("host", f"{is_open}; write `allowed_hosts: [NAME]` under server, {names}")
    settings |= read_tls(settings.get("tls_certificate"), settings.get("tls_key"), files, add_problem)
    return None if INVALID in settings.values() else ServerSpec(**{**settings, "host": host.strip("[]")})


def _field(setting: str) -> str:
    """Return the name of a setting's field in ``ServerSpec``, such as ``cors_origins`` for ``server.cors.origins``."""
    return setting.removeprefix("server.").strip(".").replace(".", "_")


WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Address of all interfaces → the loopback address by which this machine reaches the gateway."""


def local_url(server: ServerSpec, port: int) -> str:
    """Return the address at which this machine reaches a gateway that is bound to ``port``."""
    return f"{server.scheme}://{url_host(WILDCARDS.get(server.host, server.host))}:{port}"


def status_url(server: ServerSpec) -> str:
    """Return the address of the listener that serves ``/metrics`` and ``/status``."""
    if server.admin is None:
        return local_url(server, server.port)
    host, _, port = server.admin.rpartition(":")
    return f"{'https' if server.tls_admin else 'http'}://{url_host(WILDCARDS.get(host.strip('[]'), host))}:{port}"


def url_host(host: str) -> str:
    """Return an address in the form for URLs and Host headers: an IPv6 address is put in brackets."""
    bare = host.strip("[]")
    return f"[{bare}]" if ":" in bare else bare


def is_loopback(host: str) -> bool:
    """Return whether the address is a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
