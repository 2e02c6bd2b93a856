"""Checks the content of a template file, and reports all mistakes together.

OpenCompass's keys keep their names, so that a ``meta_template`` can be pasted into a file. A file on which OpenCompass
crashes is refused (``docs/spec/opencompass.md`` 12). A null means a missing key, as in OpenCompass's configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from metatemplate.files.file_types import file_type
from metatemplate.files.problems import Problems, SpecError
from metatemplate.templates.spec import UNKNOWN_SOURCE, FamilyMarkers, SpecProblem, TemplateSpec
from metatemplate.values.json_values import KeyPath
from metatemplate.values.words import shown

if TYPE_CHECKING:
    from metatemplate.chat_templates.folder import Fetch, Names

__all__ = ["SpecError", "parse_spec"]

TOOL_KEYS = ("tools", "thinking")
"""The keys that ``files/tools.py`` checks. It is imported with the first template that has one of them."""
CHAT_KEYS = ("kind", "description", "stop", "eos_token_id", "examples", *TOOL_KEYS)
BASE_KEYS = ("kind", "description", "stop", "eos_token_id", "bos", "media", "examples", "markers")
CHAT_FILE = file_type("chat", CHAT_KEYS, TemplateSpec)
BASE_FILE = file_type("base", BASE_KEYS, TemplateSpec)
FILES: Mapping[str, str] = {
    "meta": "metatemplate.files.meta:META_FILE",
    "prompter": "metatemplate.files.prompter:PROMPTER_FILE",
    "jinja": "metatemplate.files.jinja:JINJA_FILE",
    "chat": "metatemplate.files.template:CHAT_FILE",
    "base": "metatemplate.files.template:BASE_FILE",
}
"""Kind of template → the type of its file. The module of a kind is imported when a file of this kind is read."""
FIELDS = frozenset(field.name for field in fields(TemplateSpec)) - {"begin"}
"""The keys that are fields of ``TemplateSpec``. The ``begin`` of a meta template depends on its roles."""

MIN_TOKEN = 3
"""The minimum length of a token under ``markers``. The search for markers leaves out shorter texts."""

OTHER_NAMES = {
    **dict.fromkeys(("hf", "huggingface", "transformers", "chat_template"), "jinja"),
    **dict.fromkeys(("opencompass", "aisbench"), "meta"),
    "lazyllm": "prompter",
}
"""Name of a kind in other tools → name of the same kind here."""


def parse_spec(
    raw: Mapping[str, Any],
    *,
    name: str,
    digest: str = "",
    generates: bool = True,
    fetch: Fetch = lambda name: None,
    names: Names = lambda name: (),
) -> TemplateSpec:
    """Check the content of a template file. Raises SpecError with all problems.

    ``generates``: False if the template only renders complete conversations; ``round`` may be missing then (no meta
    template). ``fetch``: reads a file next to the template file. ``names``: lists the files of a folder there.
    """
    problems = Problems()
    given = problems.mapping(raw, ())
    if (meant := OTHER_NAMES.get(str(given.get("kind")))) is not None:
        raise SpecError([SpecProblem(("kind",), f"{shown(given['kind'])} is not a kind; write {meant}")])
    kind = problems.choice(given.get("kind", "meta"), ("kind",), tuple(FILES))
    if problems.found:
        raise SpecError(problems.found)
    keys = problems.read(resolve_name(FILES[kind]), {**given, "kind": kind})
    spec = TemplateSpec(name=name, digest=digest, **{key: keys[key] for key in keys if key in FIELDS})
    if kind == "meta":
        from metatemplate.files.meta import read_meta

        spec = read_meta(keys, spec, problems, generates=generates)
    elif kind == "prompter":
        from metatemplate.files.prompter import read_prompter

        spec = read_prompter(keys, spec, problems)
    elif kind == "jinja":
        from metatemplate.files.jinja import read_jinja

        spec = read_jinja(keys, spec, problems, fetch, names)
    _check_keys(spec, keys, problems)
    if spec.markers is not None:
        _check_markers(spec.markers, problems)
    _check_examples(spec, problems)
    if kind == "jinja" and not problems.found:
        from metatemplate.files.jinja import check_rendering

        spec = check_rendering(spec, keys, problems)
    if problems.found:
        raise SpecError(problems.found)
    return spec


def _check_keys(spec: TemplateSpec, keys: Mapping[str, Any], problems: Problems) -> None:
    """Check the keys that depend on what the template makes: a string, or messages."""
    if spec.kind == "base" and spec.bos == "text":
        problems.add(
            ("bos",),
            "text is not possible with kind: base, because the prompt has no text of the template: use engine or none",
        )
    if spec.kind == "chat" or spec.api:
        for key in [key for key in (*TOOL_KEYS, "markers") if key in keys]:
            problems.add((key,), f"has no effect, because this template makes messages; remove {key}")
    elif spec.tools is not None or spec.thinking is not None:
        from metatemplate.files.tools import check_tools

        check_tools(spec, problems)


def _check_markers(markers: FamilyMarkers, problems: Problems) -> None:
    """Check that the tokens have a source, and that no token is a part of ordinary words."""
    known = markers.source != UNKNOWN_SOURCE
    if known and not markers.tokens:
        problems.add(("markers",), f"has no `tokens`: list them, or write source: {UNKNOWN_SOURCE}")
    if not known and markers.tokens:
        problems.add(("markers", "source"), "must name the source of the tokens: write where they are listed")
    for number, token in enumerate(markers.tokens):
        if token and (len(token.strip()) < MIN_TOKEN or token.replace("_", "a").isalnum()):
            problems.add(
                ("markers", "tokens", number),
                f"{shown(token)} can be a part of ordinary text: list only tokens of at least {MIN_TOKEN} characters "
                "with a character such as <, | or [",
            )


# ---------------------------------------------------------------- examples


def _check_examples(spec: TemplateSpec, problems: Problems) -> None:
    """Check that each example has messages, and the expected result. ``run_examples`` renders the examples later."""
    made = "messages, so write `sent`" if spec.makes_messages else "a string, so write `prompt`"
    for number, example in enumerate(spec.examples):
        path: KeyPath = ("examples", number)
        results = {"prompt": example.prompt, "sent": example.sent}
        right, wrong = ("sent", "prompt") if spec.makes_messages else ("prompt", "sent")
        both = spec.kind == "prompter"  # the targets of a model decide which one a prompter makes
        if results[wrong] is not None and not both:
            problems.add((*path, wrong), f"this template makes {made}")
        elif results[right] is None and (results[wrong] is None or not both):
            problems.add(path, f"an example without `{right}` checks nothing: add the expected result")
        if not example.messages:
            problems.add((*path, "messages"), "an example needs `messages`: add at least one {role, content}")
        for place, message in enumerate(example.messages):
            where = (*path, "messages", place)
            if isinstance(message, Mapping) and not problems.has(where):
                _check_message(message, where, problems)


def _check_message(message: Mapping[str, Any], path: KeyPath, problems: Problems) -> None:
    if not isinstance(message.get("role"), str):
        problems.add((*path, "role"), "a message needs a role: user, assistant, system …")
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        for number, part in enumerate(content):
            texts = (part.get("type"), part.get("text", "")) if isinstance(part, Mapping) else (None,)
            if not all(isinstance(text, str) for text in texts):
                problems.add(
                    (*path, "content", number), "a part must be a mapping with `type`, and with `text` for type text"
                )
    elif content is not None and not isinstance(content, str):
        problems.add((*path, "content"), "content must be text or a list of parts: put text in quotes")
