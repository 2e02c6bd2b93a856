"""The ``server`` section, its environment variables, and the guard against open listeners."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from gateway.config.files.reader import ENVIRONMENT
from gateway.config.files.yaml import YamlDocument
from gateway.config.schema.names import quote, suggest
from gateway.config.schema.settings import GATEWAY, ROWS
from gateway.config.schema.validation import INVALID
from gateway.config.snapshot import ServerSpec
from gateway.core.errors import Problem

PREFIX = "GATEWAY_"
SERVER = "GATEWAY_SERVER__"
VARIABLES = {
    SERVER + row.name.removeprefix("server.").upper(): row
    for row in ROWS
    if row.file == GATEWAY and row.name.startswith("server.")
}
"""Name of a variable → its setting."""


class ServerSection:
    """The checked section; ``GATEWAY_SERVER__PORT`` and similar variables take precedence over the file.

    Names with a single underscore are ignored: container platforms create them.
    """

    def __init__(self, document: YamlDocument, values: Any, env: Mapping[str, str]) -> None:
        self._document = document
        self._env = env
        self._values = {row.name.removeprefix("server."): row.default_value for row in VARIABLES.values()}
        self._values |= values or {}
        for variable in sorted(env):
            if variable in VARIABLES:
                self._override(variable, env[variable])
            elif variable.startswith(SERVER):
                self._refuse_variable(variable, f"unknown variable{suggest(variable, VARIABLES)}")
            elif variable.startswith(PREFIX) and "__" in variable:
                message = f"unknown variable: only server settings can be set here, as {SERVER}PORT"
                self._refuse_variable(variable, message)

    def _override(self, variable: str, text: str) -> None:
        setting = variable.removeprefix(SERVER).lower()
        try:
            self._values[setting] = VARIABLES[variable].kind.from_text(text)
        except ValueError as error:
            self._values[setting] = INVALID
            self._refuse_variable(variable, str(error))

    def _refuse_variable(self, variable: str, message: str) -> None:
        self._document.problems.append(Problem(ENVIRONMENT, 0, variable, message))

    def _blame(self, setting: str, message: str) -> None:
        """Add a problem with a setting, at the origin of its value."""
        variable = SERVER + setting.upper()
        if variable in self._env:
            self._refuse_variable(variable, message)
        else:
            self._document.refuse(("server", setting), message)

    def guard(self, has_keys: bool) -> None:
        """Refuse a non-loopback listener without keys (``docs/spec/reliability.md`` F04)."""
        host, admin = self._values["host"], self._values["admin"]
        if admin and host and admin == f"{url_host(host)}:{self._values['port']}":
            self._blame("admin", "is the main listener's own address: choose another port, or leave the line out")
        if not host or is_loopback(host):
            return
        is_open = f"{quote(host)} is open to others"
        if not has_keys and self._values["insecure_no_keys"] is False:
            ways = "name a file under keys.file, or listen on 127.0.0.1"
            self._blame("host", f"{is_open}, and there are no client keys: {ways}")
        if self._values["allowed_hosts"] == ():
            self._blame("host", f"{is_open}: list the names it answers for under server.allowed_hosts")

    def spec(self) -> ServerSpec:
        """Return the section as a value; call only if there are no problems."""
        return ServerSpec(**{**self._values, "host": self._values["host"].strip("[]")})


def url_host(host: str) -> str:
    """Return an address as in URLs and Host headers: IPv6 in brackets."""
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
