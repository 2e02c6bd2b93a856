"""Reads the ``server`` section and its environment variables.

A listener that other machines can reach is refused if there are no client keys.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from operator import attrgetter
from typing import Any

from gateway.config.schema.kinds import INVALID, VariableText
from gateway.config.schema.settings import GATEWAY
from gateway.config.schema.validation import check, is_whole
from gateway.config.sections.targets import secret_reader
from gateway.config.snapshot import ServerSpec, TlsSpec
from gateway.core.errors import Problem
from metatemplate.files.reader import ENVIRONMENT, Files
from metatemplate.files.yaml import YamlDocument
from metatemplate.values.words import quoted, suggest

PREFIX = "GATEWAY_"
SERVER = "GATEWAY_SERVER__"


def _paths(section: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each setting of a section and of the sections inside."""
    for field in fields(section):
        path, value = (*above, field.name), getattr(section, field.name)
        yield from _paths(value, path) if is_dataclass(value) else [path]


VARIABLES = {SERVER + "__".join(path).upper(): path for path in _paths(ServerSpec())}
"""Name of an environment variable → path of the setting that the variable overrides."""


def read_server(
    document: YamlDocument, server: ServerSpec, files: Files, env: Mapping[str, str], *, has_keys: bool
) -> ServerSpec | None:
    """Return the section, or add problems and return None. ``server``: the section's values, or ``INVALID``.

    ``GATEWAY_SERVER__PORT`` and similar variables take precedence over the file. Variables without a double underscore
    are ignored, because container platforms create such variables. A non-loopback listener without keys is refused
    (``docs/spec/reliability.md`` F04).
    """
    server = server or ServerSpec()
    for variable in sorted(env):
        if variable in VARIABLES:
            path = VARIABLES[variable]
            value: Any = VariableText(env[variable])
            for name in reversed(path):
                value = {name: value}
            own = YamlDocument(ENVIRONMENT, [], {"server": value})
            given = check(own, GATEWAY, secret_reader(files, env)).server
            server = _changed(server, path, attrgetter(".".join(path))(given))
            document.problems += [replace(problem, key=variable) for problem in own.problems]
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

    host, admin = server.host, server.admin
    if admin and host and admin == f"{url_host(host)}:{server.port}":
        add_problem("admin", "is also the address of the main listener; choose another port, or remove the line")
    if host and not is_loopback(host):
        is_open = f"other machines can connect to {quoted(host)}"
        if not has_keys and server.insecure_no_keys is False:
            ways = "write `keys: {file: keys.yaml}` (gateway keys new NAME >> keys.yaml), or listen on 127.0.0.1"
            add_problem("host", f"{is_open}, and there are no client keys; {ways}")
        if server.allowed_hosts == ():
            names = "with the names that clients use for this machine"
            add_problem("host", f"{is_open}; write `allowed_hosts: [NAME]` under server, {names}")
    tls = server.tls
    if tls != TlsSpec():
        from gateway.config.sections.tls import read_tls

        tls = read_tls(tls, files, add_problem)
    return replace(server, host=host.strip("[]"), tls=tls) if is_whole(server) else None


def _changed(section: Any, path: Sequence[str], value: Any) -> Any:
    """Return a section with another value for the setting at ``path``. A section that was refused stays so."""
    if not path:
        return value
    if section is INVALID:
        return section
    return replace(section, **{path[0]: _changed(getattr(section, path[0]), path[1:], value)})


WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Address of all interfaces → the loopback address by which this machine reaches the gateway."""


def local_url(server: ServerSpec, port: int) -> str:
    """Return the address at which this machine reaches a gateway that is bound to ``port``."""
    if server.host.startswith("unix:"):
        return server.host
    return f"{server.scheme}://{url_host(WILDCARDS.get(server.host, server.host))}:{port}"


def status_url(server: ServerSpec) -> str:
    """Return the address of the listener that serves ``/metrics`` and ``/status``."""
    if server.admin is None:
        return local_url(server, server.port)
    host, _, port = server.admin.rpartition(":")
    return f"{'https' if server.tls.admin else 'http'}://{url_host(WILDCARDS.get(host.strip('[]'), host))}:{port}"


def url_host(host: str) -> str:
    """Return an address in the form for URLs and Host headers: an IPv6 address is put in brackets."""
    bare = host.strip("[]")
    return f"[{bare}]" if ":" in bare else bare


def is_loopback(host: str) -> bool:
    """Return whether the address is a loopback address, or a Unix socket: only this machine can connect."""
    if host.lower() == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
