"""Compare a template with a reference over a fixed matrix of conversations, byte for byte and token for token.

The reference is the chat template in the model's tokenizer folder, or the template that --reference gives. The BOS is
compared too, both in the text and added by the engine. A conversation that both sides refuse counts as equal.

Exit code 0: the same prompt in every case. 1: there are differences, or no case was rendered by both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from gateway.cli.options import add_model, load_snapshot

EXAMPLES = r"""examples:
  gateway parity demo
  gateway parity my-sft-7b --reference ~/models/my-sft-7b --all
  gateway parity my-chat-7b --reference tokenizer_config.json --kwargs '{"enable_thinking": false}'
  gateway parity --template draft.yaml --reference sft-demo       two templates of the gateway
  gateway parity demo --case "system, one turn" --json | jq .cases[0].ours.text
  gateway parity demo || exit 1                                   in a CI job
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gateway parity``."""
    add_model(parser)
    parser.add_argument("--reference", metavar="FILE|FOLDER|NAME",
                        help="a chat_template.jinja, a tokenizer_config.json, a folder that holds one, "
                        "or another template or configured model (default: the model's tokenizer folder)")  # fmt: skip
    parser.add_argument("--tokenizer", type=Path, metavar="FILE|FOLDER",
                        help="a tokenizer.json, for the tokens (default: the model's, or the reference's)")  # fmt: skip
    parser.add_argument("--engine", choices=("transformers", "own"), default="auto",
                        help="the renderer of a chat template (default: transformers if it is installed)")  # fmt: skip
    parser.add_argument("--kwargs", type=_json_object, metavar="JSON",
                        help="variables for the reference's chat template, as an object")  # fmt: skip
    parser.add_argument("--variant", metavar="NAME",
                        help="one of the reference's named chat templates (default: the name that our template uses, "
                        "else the choice of transformers)")  # fmt: skip
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; may be repeated")
    parser.add_argument("--show", type=_count, default=3, metavar="N",
                        help="show the first N differences in full (default: 3)")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="show all differences in full")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--no-color", action="store_true", help="no colours on a terminal (as with NO_COLOR=1)")


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('expected a JSON object, such as {"enable_thinking": false}')
    return value


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("expected a number, 0 or more")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Compare the template with its reference and print the report."""
    from gateway.cli.comparing.comparison import compare_templates
    from gateway.cli.comparing.report import as_json, as_text, is_equal

    # --template needs no configuration, but its reference may be a configured model.
    snapshot = load_snapshot(args.config) if args.template is None or args.config.exists() else None
    found = compare_templates(args, snapshot)
    if args.json:
        print(json.dumps(as_json(found), ensure_ascii=False, indent=2))
    else:
        colored = sys.stdout.isatty() and not args.no_color and not os.environ.get("NO_COLOR")
        print(as_text(found, show=None if args.all else args.show, colored=colored), end="")
    return 0 if is_equal(found.results) else 1
