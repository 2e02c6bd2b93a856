"""Make a client key.

The key is printed once, on standard error, and not stored. The entry for keys.yaml, which has only the digest, is
printed on standard output.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys

from gateway.cli.options import CommandError

EXAMPLES = """examples:
  gateway keys new ci-runner >> keys.yaml      the key goes to the terminal, the entry to the file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gateway keys``."""
    parser.add_argument("action", choices=["new"])
    parser.add_argument("name", help="the name of the entry in keys.yaml")


def run(args: argparse.Namespace) -> int:
    """Print a new key on standard error and the key's entry on standard output."""
    from gateway.config.schema.names import KEY_NAME

    if not KEY_NAME.fullmatch(args.name):
        raise CommandError('the name of a key has up to 64 letters, digits, ".", "_", "@" and "-"')
    key = f"gk_{secrets.token_hex(3)}_{secrets.token_urlsafe(32)}"
    print(f"key for {args.name}, shown this once: {key}", file=sys.stderr)
    print(f'{args.name}:\n  sha256: "{hashlib.sha256(key.encode()).hexdigest()}"\n  models: ["*"]')
    return 0
