"""Dialogues of several turns: one request for each answer (``docs/spec/opencompass.md`` 9)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from gateway.core.errors import TemplateError
from tests.reference.opencompass.dataset.prompt_list import Fill, Values, fill_once, filled, marker
from tests.reference.opencompass.dataset.template import DatasetTemplate

MODES = ("every", "every_with_gt", "last")
"""``every``: each answer of the model joins the history. ``every_with_gt``: the dataset's answer does. ``last``: only
the last turn is requested, after the dataset's answers."""
ANSWERING = frozenset({"BOT", "assistant"})
"""The model's role in a dataset, and in messages."""


def multi_turn_dialogue(template: DatasetTemplate, sample: Values, fill: Fill = fill_once) -> list[Any]:
    """The dialogue with its round once for each pair of ``question`` and ``answer``; the shorter list decides."""
    items = template.encoded()
    if isinstance(items, str):
        raise TemplateError("a dialogue of several turns needs a template with round")
    start, end = items.index(marker("round", "begin")), items.index(marker("round", "end"))
    rounds: list[Any] = []
    for question, answer in zip(sample["question"], sample["answer"], strict=False):
        rounds += filled(items[start + 1 : end], {"question": question, "answer": answer}, fill)
    return [*items[: start + 1], *rounds, *items[end:]]


def turn_requests(dialogue: list[Any], mode: str) -> Generator[list[Any], str, None]:
    """The prompt of each request; ``send`` the model's answer to obtain the next one.

    ``dialogue``: a list of ``multi_turn_dialogue``, or messages. Raises ``TemplateError`` for an unknown mode.
    """
    if mode not in MODES:
        raise TemplateError(f"unknown mode of a dialogue: {mode!r}; there are {', '.join(MODES)}")
    end = dialogue.index(marker("round", "end")) if marker("round", "end") in dialogue else len(dialogue)
    turns, after = list(dialogue[:end]), dialogue[end:]
    places = [at for at, turn in enumerate(turns) if isinstance(turn, Mapping) and turn.get("role") in ANSWERING]
    for place in places[-1:] if mode == "last" else places:
        answer = yield [*turns[:place], *after]
        if mode == "every":
            turn = turns[place]
            turns[place] = {**turn, ("prompt" if "prompt" in turn else "content"): answer}
