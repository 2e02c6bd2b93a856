"""Show what a running gateway serves: models, the state of their targets, the store, and the last reload.

The admin listener is asked, or the main listener if the configuration has no server.admin. The main listener needs a
client key that allows all models, if keys are configured. Only the section server of the configuration has to be valid.
With server.tls and without server.admin, give a name that the certificate contains: --url https://gateway.example.org

Exit code 1: no gateway answers, or it refuses the request.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gateway.cli.call_options import key_option, read_key, url_option
from gateway.cli.options import CommandError, check_config_exists, config_option, verb
from gateway.cli.terminal import format_table

EXAMPLES = """Examples:
  gateway status
  gateway status --url http://10.0.0.5:9464
  gateway status --json | jq .last_reload.error
"""


@verb(__doc__, EXAMPLES)
@config_option()
@url_option(
    "the address of a running gateway, with or without /v1; of its admin listener if it has one",
    show_default="the address in the configuration",
)
@key_option()
@click.option("--json", "as_json", is_flag=True, help="print JSON instead of a table")
def command(config: Path, url: str | None, key: str | None, as_json: bool) -> int:
    """Print the status as a table, or as JSON."""
    from gateway.cli.connecting.answer import get_json

    url = url or _configured_url(config)
    status = asyncio.run(get_json(url, "/status", read_key(key)))
    try:
        lines = _lines(url, status)
    except (KeyError, TypeError):
        raise CommandError(f"{url} answers, but is not a gateway with /status", 1) from None
    print(json.dumps(status, indent=2) if as_json else "\n".join(lines))
    return 0


def _configured_url(config: Path) -> str:
    from gateway.config.load import configured_server
    from gateway.config.sections.server import is_loopback, status_url
    from gateway.config.snapshot import ServerSpec

    if click.get_current_context().get_parameter_source("config") is not ParameterSource.DEFAULT:
        check_config_exists(config)
    server = configured_server(config, os.environ) if config.exists() else ServerSpec()
    if server is None:
        raise CommandError(f"{config} has problems in the section server; list them with gateway check, or give --url")
    if server.admin is None and (server.host.startswith("unix:") or not is_loopback(server.host)):
        raise CommandError(
            f"a gateway at {server.host} serves its status only on an admin listener; set server.admin, such as "
            "127.0.0.1:9464"
        )
    return status_url(server)


def _lines(url: str, status: Mapping[str, Any]) -> list[str]:
    store, reload = status["store"], status["last_reload"]
    stored = "none" if store is None else "answers" if store["answers"] else store["problem"]
    last = "none since the start" if reload["at"] is None else f"successful at {reload['at']}"
    if reload["error"]:
        last = f"refused at {reload['at']}, the configuration above is still in use:\n{reload['error']}"
    targets = [
        [
            model["name"],
            model["template"],
            model["policy"],
            target["name"],
            target["state"],
        ]
        for model in status["models"]
        for target in model["targets"]
    ]
    return [
        f"{url}: {status['state']} since {status['started_at']}, version {status['version']}, configuration "
        f"{status['revision']}, workers: {status['workers']}, running calls: {status['running_calls']}",
        *format_table([["model", "template", "policy", "target", "state"], *targets]),
        f"store: {stored}",
        f"last reload: {last}",
    ]
