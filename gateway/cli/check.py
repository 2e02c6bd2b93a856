"""Look through every file: the configuration, all templates and policies beside it, and the examples inside them.

Exit code 0: all is well. 1: the problems are on standard error, one a line, all of them at once.
"""

from __future__ import annotations

import argparse
import os

from gateway.cli.options import add_config, print_problems

EXAMPLES = """examples:
  gateway check
  gateway check --config conf/gateway.yaml || exit 1     in a CI job
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_config(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing when all is well")


def run(args: argparse.Namespace) -> int:
    """Check; the exit code for CI."""
    from gateway.config.load import read
    from gateway.core.errors import ConfigError

    outcome = read(args.config, os.environ, everything=True)
    if outcome.problems or outcome.snapshot is None:
        print_problems(ConfigError(outcome.problems))
        return 1
    if not args.quiet:
        models = len(outcome.snapshot.models)
        print(f"{args.config}: {models} models, {len(outcome.files)} files read, every example right: no problems")
    return 0
