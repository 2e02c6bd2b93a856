"""Make a client key: printed once, kept nowhere; the entry for keys.yaml holds its digest only."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys

EXAMPLES = """examples:
  gateway keys new ci-runner >> keys.yaml      the key goes to the terminal, the entry to the file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("action", choices=["new"])
    parser.add_argument("name", help="what the key is for; an entry's name in keys.yaml")


def run(args: argparse.Namespace) -> int:
    """Print the key on standard error, its entry on standard output."""
    from gateway.config.schema.names import KEY_NAME

    if not KEY_NAME.fullmatch(args.name):
        print('a name for a key has up to 64 letters, digits, ".", "_", "@" and "-"', file=sys.stderr)
        return 2
    key = f"gk_{secrets.token_hex(3)}_{secrets.token_urlsafe(32)}"
    print(f"key for {args.name}, shown this once: {key}", file=sys.stderr)
    print(f'{args.name}:\n  sha256: "{hashlib.sha256(key.encode()).hexdigest()}"\n  models: ["*"]')
    return 0
