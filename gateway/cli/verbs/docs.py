"""List the pages of the documentation that comes with the gateway, or print one of them.

A page is printed as Markdown.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from gateway.cli.options import CommandError, verb
from gateway.cli.terminal import format_table
from metatemplate.values.words import quoted, suggest

EXAMPLES = """Examples:
  gateway docs                    the names and titles of all pages
  gateway docs templates | less   one page
"""


def _shell_complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in pages() if name.startswith(incomplete)]


@verb(__doc__, EXAMPLES)
@click.argument("page", required=False, metavar="[PAGE]", shell_complete=_shell_complete, help="the page to print")
def command(page: str | None) -> int:
    """Print the list of the pages, or one page."""
    found = pages()
    if page is None:
        rows = [
            [name, path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")]
            for name, path in found.items()
        ]
        print(*format_table([["page", "title"], *rows]), sep="\n")
        return 0
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        raise CommandError(f"no page {quoted(page)}{suggest(name, found)}; gateway docs lists all pages")
    sys.stdout.write(found[name].read_text(encoding="utf-8"))
    return 0


def pages() -> Mapping[str, Path]:
    """Return the files of the pages, by name: the path in the folder ``docs`` without ``.md``."""
    from gateway.config.library import shipped_data

    folder = shipped_data() / "docs"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}
