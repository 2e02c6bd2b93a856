"""Show where the prompts of two templates differ on one conversation: the first difference, then a unified diff.

Line breaks, tabs, unusual blanks and control characters are escaped, and blanks at the end of a line are shown as dots.

Exit code 0: the prompts are the same bytes. 1: the prompts differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gateway.cli.call_options import ConversationOptions, read_conversation
from gateway.cli.completion import complete_model_or_template
from gateway.cli.options import argument, config_option, load_snapshot, parameter, takes, verb
from gateway.cli.terminal import color_difference, diff_lines
from metatemplate.values.words import counted

EXAMPLES = """Examples:
  gateway diff demo demo-wrong-template -m "user:1+1=?"
  gateway diff my-sft-7b ./draft.yaml -m "system:Be brief" -m "user:hi"      a model and a template file
"""


@dataclass(frozen=True, kw_only=True)
class _DiffInputs:
    """What ``gateway diff`` compares."""

    a: str = argument(shell_complete=complete_model_or_template)
    """a configured model, or the name or file of a template"""
    b: str = argument(shell_complete=complete_model_or_template)
    """the model or template to compare with A, named like A"""
    config: Path = parameter(config_option)


@dataclass(frozen=True, kw_only=True)
class DiffOptions(ConversationOptions, _DiffInputs):
    """The options of ``gateway diff``."""


@verb(__doc__, EXAMPLES)
@takes(DiffOptions)
def command(options: DiffOptions) -> int:
    """Render the conversation with both templates and compare the prompts."""
    from gateway.cli.rendering import find_any, prompt_text

    snapshot = load_snapshot(options.config) if options.config.exists() else None
    body = read_conversation(options)
    one, other = [prompt_text(find_any(name, snapshot), body, snapshot) for name in (options.a, options.b)]
    if one == other:
        print(f"the prompts are equal ({counted(len(one), 'character')})")
        return 0
    click.echo("\n".join(map(color_difference, diff_lines(one, other, options.a, options.b))))
    return 1
