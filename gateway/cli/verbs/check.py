"""Read the configuration and all templates and policies next to it, and run the examples in the templates.

Then load embedded models, scripts and tokenizers, as gateway serve does. Requests are sent only with --live: every
target is asked which models it serves, and whether its engine adds a BOS; the store is asked, and the end of the
certificate and the names of the hosts are checked.

Exit code 0: there are no problems. 1: there are problems, and standard error lists them, one on each line.
3: the configuration file does not exist.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import check_config_exists, config_option, print_notes, print_problems, verb
from gateway.cli.terminal import format_table, progress
from gateway.core.words import counted

if TYPE_CHECKING:
    from gateway.config.snapshot import Snapshot

EXAMPLES = """Examples:
  gateway check
  gateway check --config conf/gateway.yaml || exit 1     in a CI job
  gateway check --live                                   is every target reachable?
"""


@verb(__doc__, EXAMPLES)
@config_option()
@click.option("-q", "--quiet", is_flag=True, help="print nothing if there are no problems")
@click.option(
    "--live",
    is_flag=True,
    help="ask every target whether it accepts its key and serves its model; check the store, certificate and hosts",
)
def command(config: Path, quiet: bool, live: bool) -> int:
    """Check the configuration, and print problems or a summary."""
    from gateway.assembly import dry_run
    from gateway.config.files.reader import POLICIES, TEMPLATES
    from gateway.config.load import read_configuration
    from gateway.config.sections.keys import expiry_notes

    check_config_exists(config)
    files = [path for folder in (TEMPLATES, POLICIES) for path in (config.parent / folder).glob("*.yaml")]
    with progress("checking", range(len(files) + 1)) as bar:  # the last step: models are loaded
        outcome = read_configuration(config, os.environ, everything=True, checked=bar.update)
        # A problem in an unused template prevents the first snapshot; the files in use are then read alone.
        snapshot = outcome.snapshot or read_configuration(config, os.environ).snapshot
        problems = outcome.problems + (dry_run(snapshot) if snapshot is not None else ())
        bar.update(1)
    if problems or snapshot is None:
        print_problems(problems)
        return 1
    if not quiet:
        print_notes(snapshot, (*outcome.notes, *expiry_notes(snapshot.keys, time.time())))
        read = f"{counted(len(snapshot.models), 'model')}, {counted(len(outcome.files), 'file')} read"
        print(f"{config}: no problems ({read}, all examples correct)")
    return _check_live(snapshot, config, quiet) if live else 0


def _check_live(snapshot: Snapshot, config: Path, quiet: bool) -> int:
    """Ask every target, print one line for each result and then the problems, and return the exit code."""
    from gateway.cli.connecting.live_check import check_live
    from gateway.config.files.yaml import parse

    results = asyncio.run(check_live(snapshot, parse(config.read_bytes(), config.name, [])))
    if not quiet:
        print(*format_table([[result.label, result.found] for result in results]), sep="\n")
    problems = [result.problem for result in results if result.problem is not None]
    if problems:
        print_problems(problems)
    return 1 if problems else 0
