"""Compare a template with a reference over a fixed matrix of conversations, byte for byte and token for token.

The reference is the chat template in the model's tokenizer folder, or the template that --reference names. The BOS is
compared too, whether it is in the text or is added by the engine. If both templates refuse a conversation, they are
equal in this case.

Exit code 0: the same prompt in every case. 1: there are differences, or no case was rendered by both templates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import FILE_PATH, check_one_model, load_snapshot, model_options, verb

EXAMPLES = r"""Examples:
  gateway parity demo
  gateway parity my-sft-7b --reference ~/models/my-sft-7b --all
  gateway parity my-chat-7b --reference tokenizer_config.json --kwargs '{"enable_thinking": false}'
  gateway parity --template draft.yaml --reference sft-demo       two templates of the gateway
  gateway parity demo --case "system, one turn" --json | jq .cases[0].ours.text
  gateway parity demo || exit 1                                   in a CI job
"""


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise click.BadParameter('expected a JSON object, such as {"enable_thinking": false}')
    return value


@verb(__doc__, EXAMPLES)
@model_options
@click.option("--reference", metavar="FILE|FOLDER|NAME", show_default="the model's tokenizer folder",
              help="a chat_template.jinja, a tokenizer_config.json, a folder that contains such a file, "
              "another template, or a configured model")  # fmt: skip
@click.option("--tokenizer", type=FILE_PATH, metavar="FILE|FOLDER", show_default="the model's, else the reference's",
              help="a tokenizer.json, with which the tokens are compared")  # fmt: skip
@click.option("--engine", type=click.Choice(["transformers", "own"]), show_default="transformers if it is installed",
              help="the library that renders the reference's chat template; own: the gateway's renderer")  # fmt: skip
@click.option("--kwargs", type=_json_object, metavar="JSON",
              help="variables for the reference's chat template, as a JSON object")  # fmt: skip
@click.option("--variant", metavar="NAME",
              show_default="the name that the compared template uses, else the choice of transformers",
              help="one of the reference's named chat templates")  # fmt: skip
@click.option("--case", "cases", multiple=True, metavar="NAME", help="compare only this case; may be repeated")
@click.option("--show", type=click.IntRange(min=0), default=3, metavar="N", help="show the first N differences in full")
@click.option("--all", "show_all", is_flag=True, help="show all differences in full")
@click.option("--json", "as_json", is_flag=True, help="print the whole report as JSON")
@click.option("--no-color", is_flag=True, help="print no colours on a terminal (as with NO_COLOR=1)")
def command(config: Path, show: int, show_all: bool, as_json: bool, no_color: bool, **options: Any) -> int:
    """Compare the template with its reference and print the report."""
    from gateway.workshop.comparing.comparison import ParityOptions, compare_templates
    from gateway.workshop.comparing.report import as_text, is_equal, report_json

    chosen = ParityOptions(**options)
    check_one_model(chosen.model, chosen.template)
    # --template needs no configuration, but its reference may be a configured model.
    snapshot = load_snapshot(config) if chosen.template is None or config.exists() else None
    found = compare_templates(chosen, snapshot)
    if as_json:
        print(json.dumps(report_json(found), ensure_ascii=False, indent=2))
    else:
        click.echo(as_text(found, show=None if show_all else show), nl=False, color=False if no_color else None)
    return 0 if is_equal(found.results) else 1
