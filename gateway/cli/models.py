"""List the configured models: what clients may write in ``model``, and where it goes."""

from __future__ import annotations

import argparse
import json

from gateway.cli.options import add_config, load_snapshot
from gateway.core.errors import CONFIG_FAILED

EXAMPLES = """examples:
  gateway models
  gateway models --json | jq '.[].name'
"""

COLUMNS = ("name", "template", "policy", "target", "speaks", "where")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print one row for each target."""
    snapshot = load_snapshot(args)
    if snapshot is None:
        return CONFIG_FAILED
    rows = [
        {
            "name": model.name,
            "template": model.template.name,
            "policy": model.policy.name,
            "target": target.label,
            "speaks": target.speaks,
            "where": target.url or (str(target.path) if target.path else "") or target.model,
        }
        for model in snapshot.models.values()
        for target in model.targets
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in COLUMNS]
    for row in ({name: name for name in COLUMNS}, *rows):
        print("  ".join(row[name].ljust(width) for name, width in zip(COLUMNS, widths, strict=True)).rstrip())
    return 0
