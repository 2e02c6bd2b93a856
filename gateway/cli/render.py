"""Show the exact prompt that a model receives for a conversation, without inference.

The prompt is written to standard output byte for byte, so it can be piped, counted and compared.
"""

from __future__ import annotations

import argparse
import json
import sys

from gateway.cli.options import CommandError, add_conversation, add_model, load_snapshot, read_conversation
from gateway.cli.terminal import escape_line

EXAMPLES = r"""examples:
  gateway render demo -m "user:1+1=?"
  gateway render demo -m "system:Be brief" -m "user:hi" --segments
  echo '[{"role": "user", "content": "hi"}]' | gateway render demo --json | jq .stop
  gateway render --template my-template.yaml -m "user:hi" | xxd
  gateway render --template sft-demo --whole -m "user:hi" -m "assistant:hello"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gateway render``."""
    add_model(parser)
    add_conversation(parser)
    parser.add_argument("--segments", action="store_true", help="one line for each segment: origin, role, text")
    parser.add_argument("--json", action="store_true", help="the result of POST /v1/render")
    parser.add_argument("--whole", action="store_true",
                        help="the complete conversation, as scored by perplexity, with no turn left open")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Render the conversation and print the prompt."""
    from gateway.cli.rendering import conversation_segments, explain, find_model, render

    if args.json and args.whole:
        raise CommandError("--json and --whole cannot be used together; remove one of them")
    snapshot = load_snapshot(args.config) if args.template is None else None
    body = read_conversation(args.message)
    model = find_model(args.model, args.template, snapshot, generates=not args.whole)
    if args.json:
        print(json.dumps(explain(model, body, snapshot), ensure_ascii=False, indent=2))
        return 0
    prompt = None if args.whole else render(model, body, snapshot)
    if prompt is not None and prompt.messages is not None:
        print(json.dumps(list(prompt.messages), ensure_ascii=False, indent=2))
        return 0
    segments = conversation_segments(model, body) if prompt is None else prompt.segments or ()
    if args.segments:
        for segment in segments:
            kind = "template" if segment.scaffold else "content "
            print(f"{segment.origin:<14} {kind} {segment.role:<10} {escape_line(segment.text)}")
    else:
        sys.stdout.write("".join([segment.text for segment in segments]))
        if sys.stdout.isatty():
            sys.stdout.write("\n")
    return 0
