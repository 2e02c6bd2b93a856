"""Show the exact prompt that a model would see: the configured template on a conversation, without inference.

The prompt goes to standard output byte for byte, so it can be piped, counted and compared.
"""

from __future__ import annotations

import argparse
import json
import sys

from gateway.cli.options import (
    NotFound,
    add_config,
    add_conversation,
    fail,
    load_snapshot,
    read_conversation,
)

EXAMPLES = r"""examples:
  gateway render demo -m "user:1+1=?"
  gateway render demo -m "system:Be brief" -m "user:hi" --segments
  echo '[{"role": "user", "content": "hi"}]' | gateway render demo --json | jq .stop
  gateway render --template my-template.yaml -m "user:hi" | xxd
  gateway render --template sft-demo --whole -m "user:hi" -m "assistant:hello"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("model", nargs="?", help="a configured model")
    parser.add_argument("--template", metavar="FILE|NAME", help="a template instead of a model; needs no configuration")
    add_config(parser)
    add_conversation(parser)
    parser.add_argument("--segments", action="store_true", help="one line a segment: origin, role, text")
    parser.add_argument("--json", action="store_true", help="everything /v1/render tells, as JSON")
    parser.add_argument("--whole", action="store_true",
                        help="the complete conversation, as scored by perplexity, with no turn left open")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Render and print."""
    from gateway.cli.render_prompt import explain, find_route, segments_of, visible, whole_of
    from gateway.core.errors import CONFIG_FAILED, GatewayError

    if (args.model is None) == (args.template is None):
        print("name a model, or a template with --template", file=sys.stderr)
        return 2
    if args.json and args.whole:
        print("--json tells what is sent to a model, and a whole conversation never is: leave one of them out",
              file=sys.stderr)  # fmt: skip
        return 2
    try:
        snapshot = None
        if args.template is None and (snapshot := load_snapshot(args)) is None:
            return CONFIG_FAILED
        body = read_conversation(args)
        if args.whole:
            segments, messages = whole_of(args.model, args.template, snapshot, body), None
        else:
            route = find_route(args.model, args.template, snapshot)
            if args.json:
                print(json.dumps(explain(route, body), ensure_ascii=False, indent=2))
                return 0
            segments, messages = segments_of(route, body)
    except (NotFound, GatewayError) as error:
        return fail(error)
    if messages is not None:
        print(json.dumps(list(messages), ensure_ascii=False, indent=2))
    elif args.segments:
        for segment in segments:
            kind = "template" if segment.scaffold else "content "
            print(f"{segment.origin:<14} {kind} {segment.role:<10} {visible(segment.text)}")
    else:
        sys.stdout.write("".join(segment.text for segment in segments))
        if sys.stdout.isatty():
            sys.stdout.write("\n")
    return 0
