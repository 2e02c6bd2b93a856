"""Writes a draft as YAML with a header of comments, inline roles and messages, and texts in double quotes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

import yaml

from gateway.workshop.importer.draft import Draft
from metatemplate.values.words import printable

WIDTH = 118
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
"""Matches texts that need no quotes, unless YAML reads them as another type."""


def write_yaml(draft: Draft, verdict: Iterable[str] = ()) -> str:
    """Return the text of the template file. ``verdict``: lines about the comparison with the reference."""
    lines = [f"Imported from {draft.origin}.", f"Source: sha256 {draft.sha256}", *verdict]
    if draft.notes:
        lines += ["", "What was not imported, and what you should check:", *[f"- {note}" for note in draft.notes]]
    body = yaml.dump(_Document(draft.keys), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return "\n".join([*[one for line in lines for one in _comment(line)], "", body])


def _comment(text: str) -> list[str]:
    """Return a text as lines of comments. Characters that could end a line are escaped."""
    indent = "  " if text.startswith("- ") else ""
    folded = textwrap.wrap(
        printable(text), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [f"# {line}".rstrip() for line in folded or [""]]


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists inside of mappings."""
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that a repeated value is written in full each time, without an alias."""
        return True


class _Document(dict[str, Any]):
    """The keys of the template file, in a separate type so that the top level is never written inline."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Write words without quotes, Jinja code of several lines as blocks, and all other texts in double quotes."""
    style = None if WORD.fullmatch(text) else "|" if text.count("\n") > 1 and "{%" in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_mapping(dumper: yaml.SafeDumper, value: dict[str, Any]) -> yaml.MappingNode:
    """Write the top level and nested mappings as blocks, and all other mappings inline."""
    inline = not isinstance(value, _Document) and not any(isinstance(one, dict | list) for one in value.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=inline)


def _represent_list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    inline = not any(isinstance(one, dict | list) for one in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=inline)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(dict, _represent_mapping)
_Dumper.add_representer(_Document, _represent_mapping)
_Dumper.add_representer(list, _represent_list)
_Dumper.add_multi_representer(list, _represent_list)
