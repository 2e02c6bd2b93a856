"""Read the configuration and all templates and policies next to it, and run the examples in the templates.

Then load everything as gateway serve does: embedded models, scripts and tokenizers. Nothing is sent to a target.

Exit code 0: no problems. 1: every problem is listed on standard error, one on each line. 3: there is no configuration.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from gateway.cli.options import check_config_exists, config_option, print_notes, print_problems, verb

EXAMPLES = """Examples:
  gateway check
  gateway check --config conf/gateway.yaml || exit 1     in a CI job
"""


@verb(__doc__, EXAMPLES)
@config_option()
@click.option("-q", "--quiet", is_flag=True, help="print nothing if there are no problems")
def command(config: Path, quiet: bool) -> int:
    """Check the configuration, and print problems or a summary."""
    from gateway.assembly import dry_run
    from gateway.config.load import read_configuration

    check_config_exists(config)
    outcome = read_configuration(config, os.environ, everything=True)
    # A problem in an unused template prevents the first snapshot; the files in use are then read alone.
    snapshot = outcome.snapshot or read_configuration(config, os.environ).snapshot
    problems = outcome.problems + (dry_run(snapshot) if snapshot is not None else ())
    if problems or snapshot is None:
        print_problems(problems)
        return 1
    print_notes(snapshot, outcome.notes)
    if not quiet:
        models = len(snapshot.models)
        print(f"{config}: no problems ({models} models, {len(outcome.files)} files read, all examples correct)")
    return 0
