"""Serve the configured models over HTTP.

On SIGHUP, and when a file changes, the configuration is loaded again; if it has problems, the old one stays in use.
On SIGTERM no new connections are accepted, and running calls may end (server.drain).
"""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.options import CommandError, config_option, print_notes, verb
from gateway.core.errors import CONFIG_FAILED

EXAMPLES = """Examples:
  gateway serve
  gateway serve --config conf/gateway.yaml
  GATEWAY_SERVER__PORT=9000 gateway serve          a setting from the environment
  kill -HUP PID                                    load edited files
"""

MINIMAL = """\
models:
  my-model:
    template: chat
    targets: [{speaks: chat, url: "http://127.0.0.1:8101/v1"}]
"""
"""The shortest configuration: an OpenAI-compatible server on this machine, which receives the messages unchanged."""


@verb(__doc__, EXAMPLES)
@config_option()
@click.option("--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]),
              help="the lowest level that is logged")  # fmt: skip
def command(config: Path, log_level: str) -> int:
    """Serve until a signal ends the process."""
    if not config.exists():
        raise CommandError(
            f"{config}: no such file; give a file with --config, or start with:\n\n{MINIMAL}", CONFIG_FAILED
        )
    from gateway.core.errors import ConfigError, GatewayError
    from gateway.server.reload import ConfigLoader
    from gateway.server.sockets import PortBusy

    loader = ConfigLoader(config)
    try:
        snapshot = loader.load()
        print_notes(snapshot, snapshot.notes)
        if snapshot.server.workers > 1:
            from gateway.server import supervisor

            return supervisor.serve(loader, snapshot, log_level)
        from gateway.server import lifecycle
        from gateway.server.runtime import Runtime

        return lifecycle.serve(Runtime(loader), snapshot, log_level)
    except ConfigError:
        raise
    except (GatewayError, PortBusy) as error:
        raise CommandError(str(error), CONFIG_FAILED) from None
