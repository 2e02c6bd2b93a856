"""Compare a template with a reference over a fixed matrix of conversations, byte for byte and token for token.

The reference is the chat template in the model's tokenizer folder, or what --reference names. The BOS is
compared too, whether it is in the text or is added by the engine. If both templates refuse a conversation, they are
equal in this case.

Exit code 0: the same prompt in every case. 1: there are differences, or no case was rendered by both templates. 2:
there is no reference, its server does not answer, or the engine is not installed.
"""

from __future__ import annotations

import json

import click

from gateway.cli.call_options import check_one_model
from gateway.cli.options import load_snapshot, takes, verb
from gateway.workshop.comparing.parity_options import ParityOptions

EXAMPLES = r"""Examples:
  gateway parity demo
  gateway parity my-sft-7b --reference ~/models/my-sft-7b --all
  gateway parity my-chat-7b --reference http://127.0.0.1:8101/v1   a vLLM or llama.cpp server
  gateway parity my-chat-7b --reference tokenizer_config.json --kwargs '{"enable_thinking": false}'
  gateway parity my-chat-7b --engine llama.cpp                     another engine for the same chat template
  gateway parity --template draft.yaml --reference sft-demo       two templates of the gateway
  gateway parity demo --case "system, one turn" --json | jq .cases[0].ours.text
  gateway parity demo || exit 1                                   in a CI job
"""


@verb(__doc__, EXAMPLES)
@takes(ParityOptions)
def command(options: ParityOptions) -> int:
    """Compare the template with its reference and print the report."""
    from gateway.workshop.comparing.comparison import compare_templates
    from gateway.workshop.comparing.report import as_text, is_equal, report_json

    check_one_model(options)
    # --template needs no configuration, but its reference may be a configured model.
    snapshot = load_snapshot(options.config) if options.template is None or options.config.exists() else None
    found = compare_templates(options, snapshot)
    if options.as_json:
        print(json.dumps(report_json(found), ensure_ascii=False, indent=2))
    else:
        text = as_text(found, show=None if options.show_all else options.show)
        click.echo(text, nl=False, color=False if options.no_color else None)
    return 0 if is_equal(found.results) else 1
