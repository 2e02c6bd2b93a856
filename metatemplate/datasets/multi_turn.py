"""Dialogues of several turns, with one request for each answer (``docs/spec/opencompass.md`` 8 and 9)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from metatemplate.datasets.prompt_list import ColumnValues, mapped, marker
from metatemplate.errors import TemplateFailure

if TYPE_CHECKING:
    from metatemplate.datasets.template import DatasetTemplate

InferMode = Literal["every", "every_with_gt", "last"]
"""``every``: the history contains the model's answers. ``every_with_gt``: the history contains the dataset's answers.
``last``: only the last turn is requested, and the history contains the dataset's answers."""
INFER_MODES: tuple[InferMode, ...] = get_args(InferMode)
QUESTION, ANSWER = "question", "answer"
"""The columns of a dialogue. Each contains a list with one text for each turn."""
ANSWERING = frozenset({"BOT", "assistant"})
"""The model's role: ``BOT`` in the turns of a dataset, ``assistant`` in messages."""


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


def turn_requests(dialogue: list[Any], mode: InferMode, start: int = 0) -> Generator[list[Any], str | None, None]:
    """Yield the prompt of each request. ``send`` the model's answer to get the next prompt.

    Send None to keep the dataset's answer. ``dialogue``: a list of ``multi_turn_dialogue``, or messages. The model
    answers the turns of its role from the index ``start`` on. Raises ``TemplateFailure`` for an unknown mode.
    """
    if mode not in INFER_MODES:
        raise TemplateFailure(f"{mode!r} is not a mode of a dialogue; use one of {', '.join(INFER_MODES)}")
    end = dialogue.index(marker("round", "end")) if marker("round", "end") in dialogue else len(dialogue)
    turns, after = list(dialogue[:end]), dialogue[end:]
    roles = [turn.get("role") if isinstance(turn, Mapping) else None for turn in turns]
    places = [place for place, role in enumerate(roles) if place >= start and role in ANSWERING]
    for place in places[-1:] if mode == "last" else places:
        answer = yield [*turns[:place], *after]
        if mode == "every" and answer is not None:
            turn = turns[place]
            turns[place] = {**turn, ("prompt" if "prompt" in turn else "content"): answer}
