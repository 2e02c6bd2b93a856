"""Show where the prompts of two templates differ on one conversation: the first difference, then a unified diff.

Line breaks and unusual characters are escaped, and blanks at the end of a line are shown as dots.

Exit code 0: the prompts are the same bytes. 1: the prompts differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gateway.cli.completion import complete_model_or_template
from gateway.cli.options import config_option, conversation_options, load_snapshot, read_conversation, verb
from gateway.cli.terminal import color_difference, diff_lines
from metatemplate.values.words import counted

EXAMPLES = """Examples:
  gateway diff demo demo-wrong-template -m "user:1+1=?"
  gateway diff my-sft-7b ./draft.yaml -m "system:Be brief" -m "user:hi"      a model and a template file
"""


@verb(__doc__, EXAMPLES)
@click.argument("a", shell_complete=complete_model_or_template,
                help="a configured model, or the name or file of a template")  # fmt: skip
@click.argument("b", shell_complete=complete_model_or_template,
                help="the model or template to compare with A, named like A")  # fmt: skip
@config_option()
@conversation_options
def command(a: str, b: str, config: Path, **conversation: Any) -> int:
    """Render the conversation with both templates and compare the prompts."""
    from gateway.cli.rendering import find_any, prompt_text

    snapshot = load_snapshot(config) if config.exists() else None
    body = read_conversation(**conversation)
    one, other = [prompt_text(find_any(name, snapshot), body, snapshot) for name in (a, b)]
    if one == other:
        print(f"the prompts are equal ({counted(len(one), 'character')})")
        return 0
    click.echo("\n".join(map(color_difference, diff_lines(one, other, a, b))))
    return 1
