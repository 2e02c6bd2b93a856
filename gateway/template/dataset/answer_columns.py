"""Finds the columns of the answer in a prompt file without ``output_column``, which masks no column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.template.dataset.multi_turn import ANSWERING
from gateway.template.dataset.prompt_list import columns_in
from gateway.template.dataset.spec import PromptSpec


def makes_turns(spec: PromptSpec) -> bool:
    """Return whether the question is written as turns or messages, and not as one text."""
    main = spec.prompt_template or spec.ice_template
    return main is not None and not isinstance(main.template, str)


def columns_of_answer(spec: PromptSpec) -> list[str]:
    """Return the columns that may be the answer's in a file without ``output_column``, which masks no column.

    These are the columns in the model's turn, or the column at the end of a text with further columns. Columns of
    ``input_columns`` are left out. Prompts of labels and dialogues of several turns have no such columns.
    """
    main = spec.prompt_template or spec.ice_template
    if spec.output_column or spec.multi_turn or main is None:
        return []
    tokens, template, found = main.column_token_map, main.template, list[str]()
    if isinstance(template, str):
        ends = {name: (f"{{{name}}}", tokens.get(name, f"{{{name}}}")) for name in main.columns}
        found = [name for name in ends if len(ends) > 1 and template.rstrip().endswith(ends[name])]
    else:
        turns = template.get("round") if isinstance(template, Mapping) else main.messages
        last = turns[-1] if isinstance(turns, list | tuple) and turns else None
        if isinstance(last, Mapping) and last.get("role") in ANSWERING:
            found = columns_in([last.get("prompt"), last.get("content")], tokens)
    return [name for name in found if name not in spec.input_columns]


def note_on_answer(names: Sequence[str]) -> str:
    """Return the warning for a file in which ``columns_of_answer`` finds these columns."""
    return (
        f"is missing, so the prompt contains the value of {shown_columns(names)} if a request sends it; if this is the "
        f"answer, write output_column: {names[0]}, else list the column under input_columns"
    )


def shown_columns(names: Sequence[str]) -> str:
    """Return names of columns as they are written in a template, such as ``{question}, {answer}``."""
    return ", ".join([f"{{{name}}}" for name in names])
