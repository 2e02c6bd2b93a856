"""List the templates, or print the file of one template.

The list contains the files in ./meta_templates, and the files that come with the gateway ("included"). A file in
./meta_templates replaces an included file with the same name. "for" has the models that the file names in its comment
"For:", else its description.

With NAME, the path of the file goes to standard error. A file in ./meta_templates that is empty, or that is standard
output, is passed over, so that the last example copies the included file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli.completion import complete_template
from gateway.cli.options import CommandError, print_note, verb
from gateway.cli.terminal import format_table

EXAMPLES = """Examples:
  gateway templates
  gateway templates | grep -i my-family                       the templates for a family of models
  gateway templates --json | jq -r '.[] | select(.kind == "prompter").name'
  gateway templates sft-demo
  gateway templates sft-demo > meta_templates/mine.yaml       a copy to change
  gateway templates sft-demo > meta_templates/sft-demo.yaml   a copy that replaces the included file
"""


@verb(__doc__, EXAMPLES)
@click.argument(
    "name", required=False, metavar="[NAME]", shell_complete=complete_template, help="the template to print"
)
@click.option("--json", "as_json", is_flag=True, help="print JSON instead of a table")
def command(name: str | None, as_json: bool) -> int:
    """Print the list, or the file of one template."""
    from gateway.config.library import shipped_folder, template_files
    from metatemplate.files.template_file import BUILT_IN
    from metatemplate.files.template_models import help_for
    from metatemplate.values.words import suggest

    files = template_files(Path.cwd())
    if name is None:
        built_in = {
            "name": BUILT_IN.name,
            "kind": BUILT_IN.kind,
            "from": "built in",
            "description": BUILT_IN.description,
        }
        rows: list[dict[str, Any]] = [{**built_in, "for": []}]
        rows += [_row(path, included=path.parent == shipped_folder("meta_templates")) for path in files]
        if as_json:
            print(json.dumps(rows, ensure_ascii=False, indent=2))
        else:
            cells = [
                [row["name"], row["kind"], row["from"], "; ".join(row["for"]) or row["description"]] for row in rows
            ]
            print(*format_table([["name", "kind", "from", "for"], *cells]), sep="\n")
        return 0
    included = {path.stem: path for path in shipped_folder("meta_templates").glob("*.yaml")}
    by_name = included | {path.stem: path for path in files if not _is_overwritten(path)}
    if name == BUILT_IN.name:
        raise CommandError(f"the template {name} has no file, because it is built in ({BUILT_IN.description})")
    if name not in by_name and any(path.stem == name for path in files):
        raise CommandError(
            f"meta_templates/{name}.yaml is empty or is standard output, and no included file has its name"
        )
    if name not in by_name:
        raise CommandError(f'no template "{name}"{suggest(name, by_name) or help_for(name, files)}')
    print_note(by_name[name])
    sys.stdout.write(by_name[name].read_text(encoding="utf-8"))
    return 0


def _is_overwritten(path: Path) -> bool:
    """Return whether a file is empty, as the shell makes it before this verb writes to it, or is standard output."""
    found = path.stat()
    try:
        return not found.st_size or os.path.samestat(found, os.fstat(sys.stdout.fileno()))
    except OSError:  # standard output has no file descriptor
        return False


def _row(path: Path, *, included: bool) -> dict[str, Any]:
    """Return the row of a template in the list. The file may have problems: ``gateway check`` reports them."""
    from metatemplate.files import yaml
    from metatemplate.files.template_models import models_of

    data = path.read_bytes()
    value = yaml.parse(data, path.name).value
    keys = value if isinstance(value, dict) else {}
    text = data.decode("utf-8", "replace")
    first = text.partition("\n")[0]
    description = first.removeprefix("#").strip() if first.startswith("#") else keys.get("description", "")
    kind = keys.get("kind", "meta") if keys else "unreadable"
    return {
        "name": path.stem,
        "kind": str(kind),
        "from": "included" if included else "meta_templates/",
        "description": str(description),
        "for": models_of(text),
    }
