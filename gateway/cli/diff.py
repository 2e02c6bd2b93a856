"""Show where two templates part on one conversation: the first differing place, then both prompts line by line.

Exit code 0: the same bytes. 1: they differ.
"""

from __future__ import annotations

import argparse
import difflib

from gateway.cli.options import (
    NotFound,
    add_config,
    add_conversation,
    fail,
    load_snapshot,
    read_conversation,
)

EXAMPLES = """examples:
  gateway diff demo demo-wrong-template -m "user:1+1=?"
  gateway diff my-sft-7b ./draft.yaml -m "system:Be brief" -m "user:hi"      a model against a template file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("a", metavar="A", help="a configured model, a template's name or a template file")
    parser.add_argument("b", metavar="B", help="the other one")
    add_config(parser)
    add_conversation(parser)


def run(args: argparse.Namespace) -> int:
    """Render both and compare."""
    from gateway.cli.render_prompt import find_either, text_of
    from gateway.core.errors import CONFIG_FAILED, GatewayError

    snapshot = load_snapshot(args) if args.config.exists() else None
    if snapshot is None and args.config.exists():
        return CONFIG_FAILED
    try:
        body = read_conversation(args)
        one, other = (text_of(find_either(name, snapshot), body) for name in (args.a, args.b))
    except (NotFound, GatewayError) as error:
        return fail(error)
    if one == other:
        print(f"the same {len(one)} characters")
        return 0
    print(_summary(one, other))
    for line in difflib.unified_diff(_lines(one), _lines(other), args.a, args.b, lineterm=""):
        print(line)
    return 1


def _summary(one: str, other: str) -> str:
    at = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    line, column = one.count("\n", 0, at) + 1, at - (one.rfind("\n", 0, at) + 1) + 1
    return (
        f"they part at character {at} (line {line}, column {column}): {one[at : at + 24]!r} / {other[at : at + 24]!r}"
    )


def _lines(text: str) -> list[str]:
    """Lines with their ends shown, so that a missing newline or a blank at the end can be seen."""
    from gateway.cli.render_prompt import visible

    return [visible(line) for line in text.splitlines(keepends=True)]
