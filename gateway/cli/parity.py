"""Compare a model's template with a reference over a fixed matrix of conversations, byte for byte and token for token.

The reference is the chat template in the model's tokenizer folder unless --reference says another. What is compared is
what the model sees: the text with its BOS, whoever writes that. A conversation that both refuse counts as equal.

Exit code 0: the same prompt in every case. 1: there are differences, or no case could be rendered by both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from gateway.cli.options import NotFound, add_config, fail, load_snapshot

EXAMPLES = r"""examples:
  gateway parity demo
  gateway parity my-sft-7b --reference ~/models/my-sft-7b --all
  gateway parity my-chat-7b --reference tokenizer_config.json --kwargs '{"enable_thinking": false}'
  gateway parity --template draft.yaml --reference sft-demo       two templates of ours
  gateway parity demo --case "system, one turn" --json | jq .cases[0].ours.text
  gateway parity demo || exit 1                                   in a CI job
"""

SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("model", nargs="?", help="a configured model")
    parser.add_argument("--template", metavar="FILE|NAME", help="a template instead of a model; needs no configuration")
    parser.add_argument("--reference", metavar="FILE|FOLDER|NAME",
                        help="a chat_template.jinja, a tokenizer_config.json, a folder that holds one, "
                        "or another template or model of ours (default: the model's tokenizer folder)")  # fmt: skip
    add_config(parser)
    parser.add_argument("--tokenizer", type=Path, metavar="FILE|FOLDER",
                        help="a tokenizer.json, for the tokens (default: the model's, or the reference's)")  # fmt: skip
    parser.add_argument("--engine", choices=("transformers", "own"), default="auto",
                        help="who renders a chat template (default: transformers where it is installed)")  # fmt: skip
    parser.add_argument("--kwargs", metavar="JSON", help="variables for the reference's chat template, as an object")
    parser.add_argument("--variant", metavar="NAME",
                        help="one of the reference's named chat templates (default: that of ours, else as transformers "
                        "chooses)")  # fmt: skip
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; may be repeated")
    parser.add_argument("--show", type=int, default=SHOWN, metavar="N",
                        help=f"show the first N differences at length (default: {SHOWN})")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="show all of them")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    parser.add_argument("--no-color", action="store_true", help="no colour, even on a terminal (as NO_COLOR=1)")


def run(args: argparse.Namespace) -> int:
    """Compare and report."""
    from gateway.cli.parity_report import agrees, as_json, as_text
    from gateway.cli.parity_sides import Asked, comparison
    from gateway.core.errors import CONFIG_FAILED, GatewayError

    if (args.model is None) == (args.template is None):
        print("name a model, or a template with --template", file=sys.stderr)
        return 2
    if args.show < 0:
        print("--show takes a number of differences, 0 or more", file=sys.stderr)
        return 2
    # A template alone needs no configuration, but its reference may be a configured model.
    wanted = args.template is None or args.config.exists()
    snapshot = load_snapshot(args) if wanted else None
    if snapshot is None and wanted:
        return CONFIG_FAILED
    try:
        found = comparison(
            Asked(
                model=args.model,
                template=args.template,
                reference=args.reference,
                tokenizer=args.tokenizer,
                engine=args.engine,
                kwargs=_kwargs(args.kwargs),
                cases=tuple(args.case),
                variant=args.variant,
            ),
            snapshot,
        )
    except GatewayError as error:
        fail(error)
        return CONFIG_FAILED if error.code == "config_error" else 2
    except NotFound as error:
        return fail(error)
    if args.json:
        print(json.dumps(as_json(found), ensure_ascii=False, indent=2))
    else:
        colour = sys.stdout.isatty() and not args.no_color and not os.environ.get("NO_COLOR")
        print(as_text(found, shown=None if args.all else args.show, colour=colour), end="")
    return 0 if agrees(found.results) else 1


def _kwargs(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise NotFound(f"--kwargs is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise NotFound('--kwargs takes a JSON object, such as {"enable_thinking": false}')
    return value
