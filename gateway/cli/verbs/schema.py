"""Print the JSON Schema of a kind of file, with which an editor completes and checks it.

The kinds of file are gateway (gateway.yaml), policy (a file in policies/), keys (the file of client keys), template (a
file in meta_templates/) and prompt (a file in prompts/). An editor does not find all problems. gateway check also reads
the files that the settings name, and compares the settings.
"""

from __future__ import annotations

import json

import click

from gateway.cli.options import verb

KINDS = ("gateway", "policy", "keys", "template", "prompt")
EXAMPLES = """Examples:
  gateway schema > gateway.schema.json
  gateway schema policy > policy.schema.json

In the first line of gateway.yaml, for editors with the YAML language server (VS Code, Neovim, Emacs):
  # yaml-language-server: $schema=gateway.schema.json
"""


@verb(__doc__, EXAMPLES)
@click.argument("file", type=click.Choice(KINDS), default="gateway", help="the kind of file")
def command(file: str) -> int:
    """Print the schema."""
    from gateway.config.schema import settings
    from gateway.config.schema.json_schema import json_schema

    print(json.dumps(json_schema(getattr(settings, file.upper())), ensure_ascii=False, indent=2))
    return 0
