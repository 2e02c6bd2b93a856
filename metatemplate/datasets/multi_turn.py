"""Dialogues of several turns, from lists of questions and answers (``docs/spec/opencompass.md`` 8 and 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metatemplate.datasets.prompt_list import ColumnValues, mapped, marker
from metatemplate.errors import TemplateFailure

if TYPE_CHECKING:
    from metatemplate.datasets.template import DatasetTemplate

QUESTION, ANSWER = "question", "answer"
"""The columns of a dialogue. Each contains a list with one text for each turn."""


def multi_turn_dialogue(template: DatasetTemplate, row: ColumnValues) -> list[Any]:
    """Return the dialogue. The round is repeated for each pair of a question and an answer.

    If the lists of questions and answers have different lengths, the rest of the longer list is ignored.
    """
    items = template.encoded()
    if isinstance(items, str):
        raise TemplateFailure("a dialogue of several turns needs a template with round")
    start, end = items.index(marker("round", "begin")), items.index(marker("round", "end"))
    rounds: list[Any] = []
    for question, answer in zip(row[QUESTION], row[ANSWER], strict=False):
        turn = {**({} if template.exact else row), QUESTION: question, ANSWER: answer}
        rounds += mapped(items[start + 1 : end], lambda text, turn=turn: template.fill(text, turn))  # type: ignore[misc]
    before, after = items[: start + 1], items[end:]
    if not template.exact:  # OpenCompass leaves the columns of these sections unfilled
        outside = {**row, ANSWER: ""}
        before, after = [list(mapped(part, lambda text: template.fill(text, outside))) for part in (before, after)]
    return [*before, *rounds, *after]
