"""The ``server`` section, its environment variables, and the guard against open listeners."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from gateway.config.files.reader import ENVIRONMENT, Files
from gateway.config.files.yaml import YamlDocument
from gateway.config.schema.names import quote, suggest
from gateway.config.schema.settings import GATEWAY, ROWS
from gateway.config.schema.validation import INVALID
from gateway.config.snapshot import ServerSpec
from gateway.core.errors import Problem

PREFIX = "GATEWAY_"
SERVER = "GATEWAY_SERVER__"
SETTINGS = {row.name.removeprefix("server."): row for row in ROWS if row.file == GATEWAY and row.name[:7] == "server."}


class ServerSection:
    """The checked section, with the origin of each value."""

    def __init__(self, document: YamlDocument, values: Mapping[str, Any], files: Files) -> None:
        self.document = document
        self.values = dict(values)
        self.files = files
        self.overridden: set[str] = set()

    def override(self, env: Mapping[str, str]) -> None:
        """Apply ``GATEWAY_SERVER__PORT`` and similar variables, which take precedence over the file.

        Names with a single underscore are ignored: container platforms create them.
        """
        for variable in sorted(env):
            if variable.startswith(SERVER):
                self._set(variable, env[variable])
            elif variable.startswith(PREFIX) and "__" in variable:
                message = f"unknown variable: only server settings can be set here, as {SERVER}PORT"
                self.files.problems.append(Problem(ENVIRONMENT, 0, variable, message))

    def _set(self, variable: str, text: str) -> None:
        setting = variable.removeprefix(SERVER).lower()
        if setting not in SETTINGS:
            known = [SERVER + name.upper() for name in SETTINGS]
            self.files.problems.append(
                Problem(ENVIRONMENT, 0, variable, f"unknown variable{suggest(variable, known)}"),
            )
            return
        self.overridden.add(setting)
        try:
            self.values[setting] = SETTINGS[setting].kind.from_text(text)
        except ValueError as error:
            self.values[setting] = INVALID
            self.blame(setting, str(error))

    def blame(self, setting: str, message: str) -> None:
        """Add a problem with a setting, at the origin of its value."""
        if setting in self.overridden:
            self.files.problems.append(Problem(ENVIRONMENT, 0, SERVER + setting.upper(), message))
        else:
            self.files.problems.append(self.document.problem(("server", setting), message))

    def guard(self, has_keys: bool) -> None:
        """Refuse a non-loopback listener without keys (``docs/spec/reliability.md`` F04)."""
        host, admin, port = self.values["host"], self.values["admin"], self.values["port"]
        if admin and port is not INVALID and host is not INVALID and admin == f"{url_host(host)}:{port}":
            self.blame("admin", "is the main listener's own address: choose another port, or leave the line out")
        if host is INVALID or is_loopback(host):
            return
        if not has_keys and self.values["insecure_no_keys"] is False:
            self.blame(
                "host",
                f"{quote(host)} is open to others, and there are no client keys: "
                "name a file under keys.file, or listen on 127.0.0.1",
            )
        if self.values["allowed_hosts"] == ():
            self.blame(
                "host",
                f"{quote(host)} is open to others: list the names it answers for under server.allowed_hosts",
            )

    def spec(self) -> ServerSpec:
        """Return the section as a value; call only if there are no problems."""
        return ServerSpec(**{**self.values, "host": self.values["host"].strip("[]")})


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
