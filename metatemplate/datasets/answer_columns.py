"""Finds the columns of the answer in a prompt file without ``output_column``, which masks no column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metatemplate.datasets.multimodal import piece_columns
from metatemplate.datasets.prompt_list import columns_in
from metatemplate.datasets.spec import PromptSpec, TemplateEntry
from metatemplate.datasets.turn_requests import ANSWERING


def certain_answers(spec: PromptSpec) -> list[str]:
    """Return the columns that are the answer's in a file without ``output_column``.

    These are the columns in the last turn, if it is the model's, or the column in which both a text and its examples
    end. Columns of ``input_columns`` are left out. Dialogues of several turns have no such columns.
    """
    main, shown = spec.prompt_template or spec.ice_template, spec.ice_template
    if spec.output_column or spec.multi_turn or main is None:
        return []
    tokens, template, found = main.column_token_map, main.template, list[str]()
    if isinstance(template, str):
        if shown is not None and isinstance(shown.template, str) and _at_end(shown) == _at_end(main):
            found = _at_end(main) if len(main.columns) > 1 else []
    else:
        turns = template.get("round") if isinstance(template, Mapping) else main.messages
        last = turns[-1] if isinstance(turns, list | tuple) and turns else None
        if isinstance(last, Mapping) and last.get("role") in ANSWERING:
            found = columns_in([last.get("prompt"), last.get("content")], tokens)
    return [name for name in found if name not in spec.input_columns]


def possible_answers(spec: PromptSpec) -> list[str]:
    """Return the columns that may be the answer's in a file without ``output_column``.

    With ``input_columns``, these are all other columns of the template, except those that only the pieces of a tagged
    text fill. Without it, they are ``certain_answers`` and the column at the end of a text with several columns.
    """
    main = spec.prompt_template or spec.ice_template
    if spec.output_column or spec.multi_turn or main is None:
        return []
    if spec.input_columns:
        others = {*spec.input_columns, *piece_columns(main.template or main.messages)}
        return [name for name in main.columns if name not in others]
    if not isinstance(main.template, str):
        return certain_answers(spec)
    return _at_end(main) if len(main.columns) > 1 else []


def _at_end(entry: TemplateEntry) -> list[str]:
    """Return the column at the end of a template that is a text, as a list; empty if it ends otherwise."""
    text, tokens = str(entry.template).rstrip(), entry.column_token_map
    return [name for name in entry.columns if text.endswith((f"{{{name}}}", tokens.get(name, f"{{{name}}}")))]


def note_on_answer(names: Sequence[str]) -> str:
    """Return the warning for a file in which ``possible_answers`` finds these columns."""
    return (
        f"is missing, so the prompt contains the value of {shown_columns(names)} if a request sends it; if this is the "
        f"answer, write output_column: {names[0]}, else list the column under input_columns"
    )


def shown_columns(names: Sequence[str]) -> str:
    """Return names of columns in the form of a template, such as ``{question}, {answer}``."""
    return ", ".join([f"{{{name}}}" for name in names])
