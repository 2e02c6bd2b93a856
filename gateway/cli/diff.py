"""Show where the prompts of two templates differ on one conversation: the first difference, then a unified diff.

Line breaks and unusual characters are escaped, and blanks at the end of a line are shown as dots.

Exit code 0: the same bytes. 1: they differ.
"""

from __future__ import annotations

import argparse

from gateway.cli.options import add_config, add_conversation, load_snapshot, read_conversation
from gateway.cli.terminal import diff_lines

EXAMPLES = """examples:
  gateway diff demo demo-wrong-template -m "user:1+1=?"
  gateway diff my-sft-7b ./draft.yaml -m "system:Be brief" -m "user:hi"      a model and a template file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gateway diff``."""
    parser.add_argument("a", metavar="A", help="a configured model, or a template's name or file")
    parser.add_argument("b", metavar="B", help="another one")
    add_config(parser)
    add_conversation(parser)


def run(args: argparse.Namespace) -> int:
    """Render the conversation with both templates and compare the prompts."""
    from gateway.cli.rendering import find_any, prompt_text

    snapshot = load_snapshot(args.config) if args.config.exists() else None
    body = read_conversation(args.message)
    a, b = [prompt_text(find_any(name, snapshot), body, snapshot) for name in (args.a, args.b)]
    if a == b:
        print(f"the same {len(a)} characters")
        return 0
    print("\n".join(diff_lines(a, b, args.a, args.b)))
    return 1
