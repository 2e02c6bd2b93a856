"""Show the exact prompt that a model receives for a conversation, without inference.

The prompt is written to standard output byte for byte, so it can be piped, counted and compared. Notices are written to
standard error. They list what the gateway changed in the conversation and in the parameters of the request.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import (
    CommandError,
    check_one_model,
    conversation_options,
    load_snapshot,
    model_options,
    read_conversation,
    verb,
)
from gateway.cli.terminal import escape_line

EXAMPLES = r"""Examples:
  gateway render demo -m "user:1+1=?"
  gateway render demo -m "system:Be brief" -m "user:hi" --segments
  echo '[{"role": "user", "content": "hi"}]' | gateway render demo --json | jq .stop
  head -1 rows.jsonl | gateway render demo --prompt sums
  gateway render demo --prompt sums --var "question=1+1=?" --segments
  gateway render --template my-template.yaml -m "user:hi" | xxd
  gateway render --template sft-demo --whole -m "user:hi" -m "assistant:hello"
"""


@verb(__doc__, EXAMPLES)
@model_options
@conversation_options
@click.option("--segments", "as_segments", is_flag=True, help="print one line for each segment: origin, role, text")
@click.option("--json", "as_json", is_flag=True, help="print the result of POST /v1/render")
@click.option("--whole", is_flag=True,
              help="print the complete conversation, as for perplexity, with no turn left open")  # fmt: skip
def command(
    model: str | None,
    template: str | None,
    config: Path,
    as_segments: bool,
    as_json: bool,
    whole: bool,
    **conversation: Any,
) -> int:
    """Render the conversation and print the prompt."""
    from gateway.cli.rendering import conversation_segments, explain, find_model, render

    check_one_model(model, template)
    if as_json and whole:
        raise CommandError("--json and --whole cannot be used together; remove one of them")
    snapshot = load_snapshot(config) if template is None or conversation["prompt"] is not None else None
    body = read_conversation(**conversation)
    spec = find_model(model, template, snapshot, generates=not whole)
    if as_json:
        print(json.dumps(explain(spec, body, snapshot), ensure_ascii=False, indent=2))
        return 0
    rendered = None if whole else render(spec, body, snapshot)
    if rendered is not None and rendered.messages is not None:
        print(json.dumps(list(rendered.messages), ensure_ascii=False, indent=2))
        return 0
    segments = conversation_segments(spec, body) if rendered is None else rendered.segments or ()
    if as_segments:
        for segment in segments:
            kind = "template" if segment.scaffold else "content "
            print(f"{segment.origin:<14} {kind} {segment.role:<10} {escape_line(segment.text)}")
    else:
        sys.stdout.write("".join([segment.text for segment in segments]))
        if sys.stdout.isatty():
            sys.stdout.write("\n")
    return 0
