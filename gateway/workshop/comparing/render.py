"""Show the exact prompt that a model receives for a conversation, without inference.

The prompt is written to standard output byte for byte, so it can be piped, counted and compared. Notices are written to
standard error. They list what the gateway changed in the conversation and in the parameters of the request. Notices on
parameters that the request does not give are the same in every call, and only --json has them. It also has the texts of
a dataset prompt with several turns or labels.

Exit code 0: the prompt was rendered; with --as, every engine makes the same prompt. 1: the conversation cannot be
rendered; with --as, an engine makes another prompt, or none does.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.call_options import ConversationOptions, ModelOptions, check_one_model, read_conversation
from gateway.cli.options import CommandError, flag, load_snapshot, option, takes, verb
from gateway.cli.terminal import escape_line

if TYPE_CHECKING:
    from gateway.config.snapshot import ModelSpec

EXAMPLES = r"""Examples:
  gateway render demo -m "user:1+1=?"
  gateway render demo -m "system:Be brief" -m "user:hi" --segments
  echo '[{"role": "user", "content": "hi"}]' | gateway render demo --json | jq .stop
  head -1 rows.jsonl | gateway render demo --prompt sums
  gateway render demo --prompt sums --var "question=1+1=?" --segments
  gateway render --template my-template.yaml -m "user:hi" | xxd
  gateway render --template sft-demo --whole -m "user:hi" -m "assistant:hello"
  gateway render my-chat-7b --as transformers,llama.cpp,minijinja -m "user:hi"
"""


@dataclass(frozen=True, kw_only=True)
class RenderVerbOptions(ConversationOptions, ModelOptions):
    """The options of ``gateway render``."""

    as_segments: bool = flag("--segments")
    """print one line for each segment: origin, role, text"""
    as_json: bool = flag("--json")
    """print JSON instead of the prompt: the result of POST /v1/render, or with --as the report"""
    whole: bool = flag()
    """print the complete conversation, as for perplexity, with no turn left open; a template file needs no role with
    generate: true for this, and one without any role joins the messages with line breaks"""
    engines: str | None = option("ENGINE[,…]", "--as")
    """render the model's chat template with other engines too, and print what differs: transformers, llama.cpp,
    minijinja"""


@verb(__doc__, EXAMPLES)
@takes(RenderVerbOptions)
def command(options: RenderVerbOptions) -> int:
    """Render the conversation and print the prompt."""
    from gateway.cli.rendering import conversation_segments, explain, find_model, render

    check_one_model(options)
    template, whole = options.template, options.whole
    if options.as_json and whole and options.engines is None:
        raise CommandError("--json and --whole cannot be used together; remove one of them")
    if options.engines is not None and (options.as_segments or options.prompt is not None):
        raise CommandError("--as shows whole prompts of messages; remove --segments and --prompt")
    snapshot = load_snapshot(options.config) if template is None or options.prompt is not None else None
    body = read_conversation(options)
    spec = find_model(options.model, template, snapshot, generates=not whole)
    if options.engines is not None:
        return _side_by_side(options, spec, {**body, "add_generation_prompt": False} if whole else body)
    if options.as_json:
        print(json.dumps(explain(spec, body, snapshot), ensure_ascii=False, indent=2))
        return 0
    rendered = None if whole else render(spec, body, snapshot)
    if rendered is not None and rendered.messages is not None:
        print(json.dumps(list(rendered.messages), ensure_ascii=False, indent=2))
        return 0
    segments = conversation_segments(spec, body) if rendered is None else rendered.segments or ()
    if options.as_segments:
        for segment in segments:
            kind = "template" if segment.scaffold else "content "
            print(f"{segment.origin:<14} {kind} {segment.role:<10} {escape_line(segment.text)}")
    else:
        sys.stdout.write("".join([segment.text for segment in segments]))
        if sys.stdout.isatty():
            sys.stdout.write("\n")
    return 0


def _side_by_side(options: RenderVerbOptions, model: ModelSpec, body: dict[str, Any]) -> int:
    """Print how the prompts of other engines differ, as ``gateway parity`` does."""
    from gateway.workshop.comparing.report import as_text, is_equal, report_json
    from gateway.workshop.comparing.side_by_side import compare_engines

    assert options.engines is not None
    found = compare_engines(model, model if options.template is None else None, options.engines.split(","), body)
    shown = json.dumps(report_json(found), ensure_ascii=False, indent=2) if options.as_json else as_text(found)
    click.echo(shown.rstrip("\n"))
    return 0 if is_equal(found.results) else 1
