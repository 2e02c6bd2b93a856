"""Serve the configured models over HTTP.

On SIGHUP, and when a file changes, the configuration is loaded again. If the new configuration has problems, the old
configuration stays in use. On SIGTERM no new connections are accepted, and running calls have time to end
(server.drain).

Exit code 1: a second signal ended running calls, or workers crashed repeatedly until none was left. 3: the
configuration cannot be used, or the port is taken.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from gateway.cli.options import CommandError, check_config_exists, config_option, print_notes, verb
from gateway.core.errors import CONFIG_FAILED

EXAMPLES = """Examples:
  gateway serve
  gateway serve --config conf/gateway.yaml
  gateway serve --host 0.0.0.0 --port 9000
  GATEWAY_SERVER__PORT=9000 gateway serve          a setting from the environment
  kill -HUP PID                                    load edited files
"""


@verb(__doc__, EXAMPLES)
@config_option()
@click.option("--host", metavar="ADDRESS", show_default="server.host of the configuration", help="the address to bind")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    show_default="server.port of the configuration",
    help="the port to bind; 0: a free port",
)
@click.option(
    "--log-level",
    default="info",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="the lowest level that is logged",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="replaces server.log_format")
def command(config: Path, host: str | None, port: int | None, log_level: str, log_format: str | None) -> int:
    """Serve until a signal ends the process."""
    check_config_exists(config)
    # As with any setting from the environment, workers and reloads see the values too.
    for name, value in (("HOST", host), ("PORT", port), ("LOG_FORMAT", log_format)):
        if value is not None:
            os.environ[f"GATEWAY_SERVER__{name}"] = str(value)
    from gateway.core.errors import ConfigError, GatewayError
    from gateway.server.reload import ConfigLoader
    from gateway.server.sockets import PortBusy

    loader = ConfigLoader(config)
    try:
        snapshot = loader.load()
        print_notes(snapshot, snapshot.notes)
        if snapshot.server.workers > 1:
            from gateway.server.processes import supervisor

            return supervisor.serve(loader, snapshot, log_level)
        from gateway.server import lifecycle
        from gateway.server.runtime import Runtime

        return lifecycle.serve(Runtime(loader), snapshot, log_level)
    except ConfigError:
        raise
    except (GatewayError, PortBusy) as error:
        raise CommandError(str(error), CONFIG_FAILED) from None
