"""How is a draft written as YAML? In the style of our own files: a header that says where it is from, flow for roles.

Whatever a source holds stays inside quotes or behind a ``#`` on its line; a text is read back as it was.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.importer.draft import Draft

WIDTH = 118
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
"""Words that stand without quotes."""
NO_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
"""Words that YAML, or somebody's YAML, takes for something else."""
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def written(draft: Draft, verdict: Iterable[str] = ()) -> str:
    """The file's text. ``verdict``: lines about the comparison with the reference."""
    lines = [*_header(draft, verdict), ""]
    for key, value in draft.keys.items():
        lines.extend(_entry(key, value))
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A text in double quotes, on one line."""
    return f'"{"".join([_char(char) for char in text])}"'


def on_one_line(text: str) -> str:
    """A text for a comment: whatever it holds, it stays behind the ``#``."""
    return "".join([char if char.isprintable() else _char(char) for char in text])


def _char(char: str) -> str:
    if char in ESCAPES:
        return ESCAPES[char]
    if char.isprintable() and char != "\ufeff":
        return char
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


# ---------------------------------------------------------------- the header


def _header(draft: Draft, verdict: Iterable[str]) -> list[str]:
    lines = [f"Imported from {draft.origin}.", f"Source: sha256 {draft.digest}"]
    lines += list(verdict)
    if draft.notes:
        lines += ["", "What was not carried over, and what to look at:", *[f"- {note}" for note in draft.notes]]
    return [line for one in lines for line in _comment(one)]


def _comment(text: str) -> list[str]:
    indent = "  " if text.startswith("- ") else ""
    folded = textwrap.wrap(on_one_line(text), WIDTH, subsequent_indent=indent, break_long_words=False,
                           break_on_hyphens=False)  # fmt: skip
    return [f"# {line}".rstrip() for line in folded or [""]]


# ---------------------------------------------------------------- values


def _entry(key: str, value: Any) -> list[str]:
    if key == "examples":
        return ["examples:", *[line for example in value for line in _example(example)]]
    if key == "template":
        return _block(key, value)
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return [f"{key}:", *[f"  - {_flow(one)}" for one in value]]
    if key in ("marks", "special_tokens") and isinstance(value, Mapping):
        return [f"{key}:", *[f"  {_word(name)}: {_flow(one)}" for name, one in value.items()]]
    return [f"{key}: {_flow(value, word=key in ('kind', 'bos', 'class', 'marks_of', 'turns'))}"]


def _example(example: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, value in example.items():
        if isinstance(value, list):
            lines += [f"    {key}:", *[f"      - {_flow(one)}" for one in value]]
        else:
            lines.append(f"    {key}: {_flow(value)}")
    return [f"  - {lines[0][4:]}", *lines[1:]]


def _block(key: str, text: str) -> list[str]:
    """A program on lines of its own where YAML gives them back unchanged, else quoted."""
    body, ends = text.rstrip("\n"), len(text) - len(text.rstrip("\n"))
    lines = body.split("\n")
    if not body or ends > 1 or not all(char.isprintable() or char == "\n" for char in text):
        return [f"{key}: {quoted(text)}"]
    return [f"{key}: |2{'' if ends else '-'}", *[f"  {line}" if line else "" for line in lines]]


def _flow(value: Any, *, word: bool = False) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _word(value) if word else quoted(value)
    if isinstance(value, Mapping):
        pairs = [f"{_word(str(key))}: {_flow(one, word=key in WORDS)}" for key, one in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return f"[{', '.join([_flow(one) for one in value])}]"


WORDS = frozenset({"role", "api_role", "fallback_role", "assistant", "tool", "parser", "type"})
"""Keys whose values are names."""


def _word(text: str) -> str:
    return text if PLAIN.fullmatch(text) and text.lower() not in NO_WORDS else quoted(text)
