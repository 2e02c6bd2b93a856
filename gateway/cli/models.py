"""List the configured models and their targets, one row for each target."""

from __future__ import annotations

import argparse
import json

from gateway.cli.options import add_config, load_snapshot
from gateway.cli.terminal import format_table

EXAMPLES = """examples:
  gateway models
  gateway models --json | jq '.[].name'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gateway models``."""
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print the models and targets as a table, or as JSON."""
    rows = [
        {
            "name": model.name,
            "template": model.template.name,
            "policy": model.policy.name,
            "target": target.label,
            "speaks": target.speaks,
            "where": target.url or str(target.path or target.model),
        }
        for model in load_snapshot(args.config).models.values()
        for target in model.targets
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print(*format_table([list(rows[0]), *[list(row.values()) for row in rows]]), sep="\n")
    return 0
