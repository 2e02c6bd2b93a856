"""Make a client key.

The key is printed once, on standard error, and is not stored. The entry for keys.yaml is printed on standard output,
and contains only the digest of the key.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from typing import Literal

import click

from gateway.cli.options import CommandError, verb

EXAMPLES = """Examples:
  gateway keys new ci-runner >> keys.yaml      the key goes to the terminal, the entry to the file
"""


@verb(__doc__, EXAMPLES)
@click.argument("action", type=click.Choice(["new"]), help="make a key")
@click.argument("name", metavar="NAME", help="the name of the entry in keys.yaml")
def command(action: Literal["new"], name: str) -> int:
    """Print a new key on standard error and the key's entry on standard output."""
    from gateway.config.schema.names import KEY_NAME

    if not KEY_NAME.fullmatch(name):
        raise CommandError(
            'the name of a key must have 1 to 64 letters, digits, ".", "_", "@" or "-", '
            "and begin with a letter or a digit"
        )
    key = f"gk_{secrets.token_hex(3)}_{secrets.token_urlsafe(32)}"
    print(f"key for {name}, shown only once: {key}", file=sys.stderr)
    print(f'{name}:\n  sha256: "{hashlib.sha256(key.encode()).hexdigest()}"\n  models: ["*"]')
    return 0
