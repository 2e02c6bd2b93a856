"""Checks the content of a prompt file, and reports all mistakes together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, get_args

from metatemplate.datasets.answer_columns import certain_answers, shown_columns
from metatemplate.datasets.multi_turn import ANSWER, QUESTION
from metatemplate.datasets.prompt import DatasetPrompt
from metatemplate.datasets.prompt_list import without_markers
from metatemplate.datasets.spec import PromptExample, PromptSpec, RetrieverKind, TemplateEntry
from metatemplate.datasets.template import SECTIONS
from metatemplate.errors import MetaTemplateError, TemplateFailure
from metatemplate.files.file_types import file_type
from metatemplate.files.problems import Problems, SpecError
from metatemplate.values.json_values import KeyPath, not_one_of
from metatemplate.values.words import closest, counted, listed, printable, quoted, shown

PROMPT_KEYS = tuple([field.name for field in fields(PromptSpec) if field.name not in ("name", "digest")])
PROMPT_FILE = file_type("prompt", PROMPT_KEYS, PromptSpec)
DATASET_TEMPLATES = ("prompt_template", "ice_template")
TEMPLATE_KEYS = tuple([field.name for field in fields(TemplateEntry)])
TURN_KEYS = ("role", "fallback_role", "prompt", "prompt_mm", "begin", "end", "generate", "api_role")
ELSEWHERE = {
    **dict.fromkeys(TEMPLATE_KEYS, "is a key of prompt_template and ice_template; write it there"),
    **dict.fromkeys(
        ("reader_cfg", "infer_cfg", "eval_cfg", "datasets"),
        "is a key of an OpenCompass config; convert the config with gateway import FILE --kind dataset",
    ),
}
"""Keys that are not allowed here → the error message."""
META_ROLES = {"user": "HUMAN", "assistant": "BOT", "system": "SYSTEM"}
"""Role of a message → the usual name of this role in a turn."""
RETRIEVERS: tuple[str, ...] = get_args(RetrieverKind)

Rows = Callable[[str], tuple[Mapping[str, Any], ...]]
"""Reads the rows of a JSON Lines file. Raises ``TemplateFailure``."""


def parse_prompt(raw: Mapping[str, Any], *, name: str, rows: Rows) -> PromptSpec:
    """Check the content of a prompt file and render its examples. Raises ``SpecError`` with all problems.

    ``rows``: a function that reads the file of ``train_file``.
    """
    problems = Problems()
    keys = problems.mapping(raw, ())
    if isinstance(columns := keys.get("input_columns"), str):
        keys = {**keys, "input_columns": columns.split()}  # as OpenCompass's DatasetReader does
    for key in keys.keys() & ELSEWHERE.keys():
        problems.add((key,), ELSEWHERE[key])
    misspelt = {key: near for key in keys.keys() - {*PROMPT_KEYS, *ELSEWHERE} if (near := _key_of_a_template(key))}
    for key, near in misspelt.items():
        problems.add((key,), f"unknown key (did you mean {quoted(near)}?); {near} {ELSEWHERE[near]}")
    known = {key: one for key, one in keys.items() if key not in ELSEWHERE and key not in misspelt}
    if reason := _other_retriever(keys.get("retriever")):
        problems.add(("retriever", "kind"), reason)
        del known["retriever"]
    spec = PromptSpec(name=name, **problems.read(PROMPT_FILE, known))
    for key in DATASET_TEMPLATES:
        entry: TemplateEntry | None = getattr(spec, key)
        if entry is not None and (entry.template is None) == (not entry.messages):
            problems.add((key,), without_template(keys[key]))
        elif entry is not None:
            _check_template(entry.template, (key, "template"), problems)
    if spec.train_file and not problems.found:
        try:
            spec = replace(spec, train=spec.train + rows(spec.train_file))
        except TemplateFailure as error:
            problems.add(("train_file",), error.message)
    if not problems.found:
        _check_retriever(spec, problems)
    _check_columns(spec, problems)
    if spec.multi_turn and not {QUESTION, ANSWER} >= {*spec.input_columns, spec.output_column or ANSWER}:
        problems.add(
            ("multi_turn",), f"allows only the columns {QUESTION} and {ANSWER}, which are lists; remove others"
        )
    main = spec.prompt_template or spec.ice_template
    if spec.multi_turn and (main is None or not isinstance(main.template, Mapping) or "round" not in main.template):
        problems.add(("multi_turn",), "needs a template that is a dialogue with the key round")
    if not problems.found:
        _check_rendering(spec, problems)
    if problems.found:
        raise SpecError(problems.found)
    return spec


def _key_of_a_template(key: object) -> str | None:
    """Return the key of ``prompt_template`` that was probably meant by an unknown key of the file."""
    near = closest(str(key), (*PROMPT_KEYS, *ELSEWHERE))
    return near if near in TEMPLATE_KEYS else None


def _other_retriever(retriever: Any) -> str:
    """Return the message for a kind of retriever that only other tools have. Empty for all others."""
    kind = retriever.get("kind") if isinstance(retriever, Mapping) else None
    if not isinstance(kind, str) or kind in RETRIEVERS or closest(kind, RETRIEVERS) is not None:
        return ""
    return (
        f"{not_one_of(RETRIEVERS, kind)}; the gateway does not search for similar examples: write "
        "{kind: fixed, ids: [0, 1]} or {kind: random, count: 4}, or send the examples with each request"
    )


def without_template(entry: Any) -> str:
    """Return what is wrong with a ``prompt_template`` or ``ice_template`` without a template."""
    others = [str(key) for key in entry if key not in TEMPLATE_KEYS] if isinstance(entry, Mapping) else []
    if len(others) > 1 and "messages" not in entry:
        return f"has no key template; write the labels {listed(others)} below `template`"
    return "needs either template (a text, a dialogue or labels) or messages"


def _check_columns(spec: PromptSpec, problems: Problems) -> None:
    """Check the names of the columns, and that no value of the answer gets into a prompt by accident."""
    entries = [entry for entry in (spec.prompt_template, spec.ice_template) if entry is not None]
    columns = [column for entry in entries for column in entry.columns]
    listed = {*spec.input_columns, spec.output_column}
    for key, column in (
        *[("input_columns", name) for name in spec.input_columns],
        ("output_column", spec.output_column),
    ):
        near = get_close_matches(column, set(columns) - listed, n=1)
        if near and column not in columns:  # a misspelt name would stay in the prompt, or leave the answer there
            other = f"the template's {{{near[0]}}} is not a column"
            problems.add((key,), f"no template has {{{column}}}, and {other}; use the same name in both")
    if spec.fill == "once" and (answers := certain_answers(spec)):
        problems.add(
            ("output_column",),
            f"is missing, and the model answers where the template has {shown_columns(answers)}; write output_column: "
            f"{answers[0]}, so that its value is left out, or list the column under input_columns "
            "if it is not the answer",
        )


def _check_template(template: Any, path: KeyPath, problems: Problems) -> None:
    """Check the entries of a dialogue. For a mapping of labels, check the template of each label."""
    if not isinstance(template, Mapping):
        return
    if template.keys() & set(SECTIONS):
        problems.keys(template, SECTIONS, path)
        for section in SECTIONS:
            entries = template.get(section, [])
            for number, turn in enumerate(entries if isinstance(entries, list) else [entries]):
                if isinstance(turn, Mapping):
                    if "content" in turn:
                        role = str(turn.get("role", "HUMAN"))
                        problems.add(
                            (*path, section, number, "content"),
                            "is a key of messages; in a turn, write a role of the model's template, and prompt: "
                            f"{{role: {printable(META_ROLES.get(role, role))}, prompt: …}}",
                        )
                    problems.keys(turn, (*TURN_KEYS, "content"), (*path, section, number))
                    _check_parts(turn.get("prompt_mm"), (*path, section, number, "prompt_mm"), problems)
                elif not isinstance(turn, str):
                    problems.add((*path, section, number), "must be a text, or a turn such as {role: HUMAN, prompt: …}")
        return
    forms = {type(value) for value in template.values()}
    if not forms <= {str, dict} or len(forms) > 1:
        close = [key for key in template if get_close_matches(str(key), SECTIONS, n=1)]
        hint = f"; {shown(close[0])} is not a section: write begin, round or end" if close else ""
        problems.add(path, f"the templates of labels must all be texts, or all dialogues with round{hint}")
        return
    for label, value in template.items():
        if isinstance(value, Mapping) and not value.keys() & set(SECTIONS):
            problems.add((*path, str(label)), "must be a text, or a dialogue with round")
        else:
            _check_template(value, (*path, str(label)), problems)


def _check_parts(parts: Any, path: KeyPath, problems: Problems) -> None:
    """Check the content parts of a multimodal turn."""
    for kind, part in parts.items() if isinstance(parts, Mapping) else ():
        key = part.get("type") if isinstance(part, Mapping) else None
        value = part.get(key) if isinstance(key, str) else None
        if not isinstance(value, str) and not (isinstance(value, Mapping) and isinstance(value.get("url"), str)):
            problems.add((*path, str(kind)), "must be a content part, such as {type: image_url, image_url: {url: …}}")


def _check_retriever(spec: PromptSpec, problems: Problems) -> None:
    retriever, size = spec.retriever, len(spec.train)
    if retriever.kind == "zero" and size:
        problems.add(("train",), "has no effect without a retriever: add retriever: {kind: fixed, ids: [0, 1]}")
    if retriever.kind != "zero" and spec.ice_template is None:
        problems.add(("retriever",), "needs ice_template, which writes the examples")
    outside = [number for number in retriever.ids if number >= size]
    if retriever.kind == "fixed" and outside:
        problems.add(
            ("retriever", "ids"), f"names row {outside[0]}, but train has {counted(size, 'row')}, counted from 0"
        )
    if retriever.kind == "random" and retriever.count > size:
        problems.add(("retriever", "count"), f"is {retriever.count}, but train has {size} rows")


def _check_rendering(spec: PromptSpec, problems: Problems) -> None:
    """Build the templates and render every example of the file."""
    try:
        prompt = DatasetPrompt(spec)
    except TemplateFailure as error:
        only_ice = spec.prompt_template is None and spec.ice_template is not None
        problems.add(("ice_template" if only_ice else "prompt_template",), error.message)
        return
    for number, example in enumerate(spec.examples):
        key, message = "prompt", ""
        try:
            message = _difference(prompt, example)
        except MetaTemplateError as error:
            key, message = "variables", f"this example cannot be rendered: {error.message}"
        if message:
            problems.add(("examples", number, key), message)


def _difference(prompt: DatasetPrompt, example: PromptExample) -> str:
    if example.labels:
        made = prompt.candidates(example.variables, example.examples)
        got: Any = {label: without_markers(items) for label, items in made.items()}
        wanted: Any = {str(label): value for label, value in example.labels.items()}
    else:
        got = without_markers(prompt.generation(example.variables, example.examples))
        wanted = list(example.prompt) if isinstance(example.prompt, tuple) else example.prompt
    return (
        ""
        if got == wanted
        else f"the rendered prompt differs from the example\n  expected {wanted!r}\n  got      {got!r}"
    )
