"""The running example of the AISBench meta template document, through ``gateway render``.

The templates in ``golden/d4`` are the document's own; a comment in each names the differences of its output
from the one that the document prints, and ``docs/templates.md`` lists the same differences.
"""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.command import command

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "d4"

SUMS = [("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?"), ("assistant", "4")]
ASKED = [("system", "Solve the following math questions"), *SUMS]

OUTPUTS = {  # golden file: (template file, conversation, whole?)
    "no-meta": ("no-meta", SUMS, True),
    "rounds": ("rounds", SUMS, True),
    "reserved": ("reserved", ASKED, True),
    "fallback": ("fallback", ASKED, True),
    "begin-end": ("begin-end", ASKED, True),
    "generate": ("generate", ASKED[:-1], False),
    "generate-whole": ("generate", ASKED, True),
    "fields": ("fields", ASKED[:-1], False),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_render_gives_the_outputs_of_the_document(name: str) -> None:
    template, turns, whole = OUTPUTS[name]
    shown = render(template, turns, *(["--whole"] if whole else []))
    notes = b"note: fields: default_prompt: THOUGHTS\n" if name == "fields" else b""
    assert (shown.stdout, shown.stderr) == ((GOLDEN / f"{name}.txt").read_bytes(), notes)


@pytest.mark.parametrize("name", ["api", "api-system"])
def test_the_api_templates_of_the_document_give_messages(name: str) -> None:
    shown = render(name, ASKED[:-1])
    assert json.loads(shown.stdout) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_a_template_without_a_generating_role_is_shown_whole_or_refused() -> None:
    shown = render("rounds", SUMS)
    assert shown.returncode == 1
    assert b"no role with generate: true, so it renders only complete conversations" in shown.stderr


def test_a_whole_conversation_has_no_json_form() -> None:
    shown = render("generate", ASKED, "--whole", "--json")
    assert (shown.returncode, shown.stdout) == (2, b"")
    assert b"remove one of them" in shown.stderr


def test_the_docs_list_the_differences_of_the_documents_templates() -> None:
    section = (
        (ROOT / "docs" / "templates.md").read_text(encoding="utf-8").partition("## Differences from the documents")[2]
    )
    for words in ("end of conversation", "`<BOT>: `", "line break", "lists of integers", "section markers"):
        assert words in section
    for template in sorted(GOLDEN.glob("*.yaml")):
        assert template.read_text(encoding="utf-8").startswith("# Of the AISBench meta template document")


def render(template: str, turns: list[tuple[str, str]], *options: str) -> CompletedProcess[bytes]:
    """The bytes of ``gateway render`` with a template of the document."""
    messages = [argument for role, text in turns for argument in ("-m", f"{role}:{text}")]
    return command(ROOT, "render", "--template", str(GOLDEN / f"{template}.yaml"), *messages, *options)
