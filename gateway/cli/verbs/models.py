"""List the configured models and their targets, one row for each target."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gateway.cli.options import config_option, load_snapshot, verb
from gateway.cli.terminal import format_table

EXAMPLES = """Examples:
  gateway models
  gateway models --json | jq '.[].name'
"""


@verb(__doc__, EXAMPLES)
@config_option()
@click.option("--json", "as_json", is_flag=True, help="print JSON instead of a table")
def command(config: Path, as_json: bool) -> int:
    """Print the models and targets as a table, or as JSON."""
    rows = [
        {
            "name": model.name,
            "template": model.template.name,
            "policy": model.policy.name,
            "target": target.label,
            "speaks": target.speaks,
            "where": target.url or str(target.local_path or target.model),
        }
        for model in load_snapshot(config).models.values()
        for target in model.targets
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        print(*format_table([list(rows[0]), *[list(row.values()) for row in rows]]), sep="\n")
    return 0
