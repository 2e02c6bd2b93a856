"""Print the version of the gateway."""

from __future__ import annotations

import json
import platform

import click

from gateway.cli.options import verb
from metatemplate.version import VERSION

EXAMPLES = """Examples:
  gateway version
  gateway version --json | jq -r .version
"""


@verb(__doc__, EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="print JSON, with the version of Python")
def command(as_json: bool) -> int:
    """Print the version."""
    facts = {"version": VERSION, "python": platform.python_version()}
    print(json.dumps(facts) if as_json else f"gateway {VERSION}")
    return 0
