"""Look through every file: the configuration, all templates and policies beside it, and the examples inside them.

Then everything is put together as for serving: embedded models are loaded, scripts and tokenizers are read.

Exit code 0: all is well. 1: the problems are on standard error, one a line, all of them at once.
"""

from __future__ import annotations

import argparse
import os

from gateway.cli.options import add_config, note_copies, note_files, print_problems

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
    from gateway.assembly import dry_run
    from gateway.config.load import read_configuration
    from gateway.core.errors import ConfigError

    outcome = read_configuration(args.config, os.environ, everything=True)
    # A spare template's mistake keeps nobody from serving, so it is no reason to stop looking either.
    snapshot = outcome.snapshot or read_configuration(args.config, os.environ).snapshot
    problems = outcome.problems + (dry_run(snapshot) if snapshot is not None else ())
    if problems or snapshot is None:
        print_problems(ConfigError(problems))
        return 1
    note_copies(snapshot)
    note_files(outcome.notes)
    if not args.quiet:
        models = len(snapshot.models)
        print(f"{args.config}: {models} models, {len(outcome.files)} files read, every example right: no problems")
    return 0
