"""Serve the configured models over HTTP.

SIGHUP, or a change to a file, takes in the new configuration; a broken one is refused and the old one keeps serving.
SIGTERM stops taking calls and lets running ones end (``server.drain``).
"""

from __future__ import annotations

import argparse
import os
import sys

from gateway.cli.options import add_config, note_copies, note_files, print_problems
from gateway.core.errors import CONFIG_FAILED

EXAMPLES = """examples:
  gateway serve
  gateway serve --config conf/gateway.yaml
  GATEWAY_SERVER__PORT=9000 gateway serve          one setting from the environment
  kill -HUP PID                                    take in edited files
"""

FIRST = """\
models:
  my-model:
    template: chat
    targets: [{speaks: chat, url: "http://127.0.0.1:8101/v1"}]
"""
"""The shortest configuration: an OpenAI-compatible server on this machine, asked with the messages as they are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_config(parser)
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    if not args.config.exists():
        print(f"{args.config}: no such file; name one with --config, or begin with:\n\n{FIRST}", file=sys.stderr)
        return CONFIG_FAILED
    from gateway.core.errors import ConfigError, GatewayError
    from gateway.runtime import Runtime
    from gateway.server.sockets import PortBusy

    runtime = Runtime(args.config, os.environ)
    try:
        snapshot = runtime.load()
        note_copies(snapshot)
        note_files(snapshot.notes)
        if snapshot.server.workers > 1:
            from gateway.server import supervisor

            return supervisor.serve(args.config, os.environ, args.log_level)
        from gateway.server import listen

        return listen.serve(runtime, snapshot, args.log_level)
    except ConfigError as error:
        print_problems(error)
    except (GatewayError, PortBusy) as error:
        print(error, file=sys.stderr)
    return CONFIG_FAILED
