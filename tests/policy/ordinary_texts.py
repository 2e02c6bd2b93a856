"""Ordinary texts, on which the marker policy should not act: prose, code and HTML.

The texts are the paragraphs of this repository's pages and code, of Python's standard library, and of the HTML pages
that ``pydoc`` writes for modules of the standard library.
"""

from __future__ import annotations

import pydoc
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metatemplate.errors import ForgedMarker
from metatemplate.templates.spec import TemplateSpec
from tests.policy import marker_judge

MODULES = (
    "argparse",
    "ast",
    "asyncio",
    "collections",
    "csv",
    "datetime",
    "email.message",
    "html.parser",
    "http.client",
    "json",
    "logging",
    "pathlib",
    "re",
    "smtplib",
    "socket",
    "ssl",
    "string",
    "tarfile",
    "unittest.mock",
    "urllib.request",
    "xml.dom.minidom",
    "zipfile",
)
"""The modules whose pages are read as HTML."""
LONGEST = 1_200


def texts(root: Path) -> list[str]:
    """Return the paragraphs of all sources, each once."""
    found = dict.fromkeys([text for source in _sources(root) for text in _paragraphs(source)])
    return list(found)


def _sources(root: Path) -> Iterator[str]:
    for pattern in ("*.md", "docs/**/*.md", "gateway/**/*.py", "tests/**/*.py", "bench/**/*.py"):
        for path in sorted(root.glob(pattern)):
            yield path.read_text(encoding="utf-8")
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.glob("*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")
    for module in MODULES:
        yield pydoc.HTMLDoc().document(pydoc.locate(module), module)


def _paragraphs(source: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", source):
        for at in range(0, len(paragraph), LONGEST):
            if paragraph[at : at + LONGEST].strip():
                yield paragraph[at : at + LONGEST]


async def alarms(spec: TemplateSpec, texts: list[str]) -> list[str]:
    """Return the texts that the policy changes or refuses, although they contain no special token of the model."""
    route, tokens = marker_judge.route_of(spec, "escape", None), marker_judge.special_tokens(spec)
    form = await marker_judge.form_of(route, _request("a"))
    found = []
    for text in texts if form is not None else ():
        if any(token in text for token in tokens):
            continue
        try:
            safe = await marker_judge.safe_prompt(route, _request(text), form or 0)
        except ForgedMarker:
            found.append(text)
            continue
        if safe.markers:
            found.append(text)
    return found


def _request(text: str) -> dict[str, Any]:
    function = {"name": "find", "description": "Find.", "parameters": {"type": "object", "properties": {}}}
    return {"messages": [{"role": "user", "content": text}], "tools": [{"type": "function", "function": function}]}
