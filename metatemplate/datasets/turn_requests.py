"""One request for each turn of a dialogue that the model answers (``docs/spec/opencompass.md`` 8 and 9)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Literal, get_args

from metatemplate.errors import TemplateFailure

InferMode = Literal["every", "every_with_gt", "last"]
"""``every``: the history contains the model's answers. ``every_with_gt``: the history contains the dataset's answers.
``last``: only the last turn is requested, and the history contains the dataset's answers."""
INFER_MODES: tuple[InferMode, ...] = get_args(InferMode)
ANSWERING = frozenset({"BOT", "assistant"})
"""The model's role: ``BOT`` in the turns of a dataset, ``assistant`` in messages."""
ROUND_END = {"section": "round", "pos": "end"}
"""The section marker after the turns of a dataset prompt. Messages have none."""


def turn_requests(dialogue: list[Any], mode: InferMode, start: int = 0) -> Generator[list[Any], str | None, None]:
    """Yield the prompt of each request. ``send`` the model's answer to get the next prompt.

    Send None to keep the dataset's answer. ``dialogue``: a list of ``multi_turn_dialogue``, or messages. The model
    answers the turns of its role from the index ``start`` on. Raises ``TemplateFailure`` for an unknown mode.
    """
    if mode not in INFER_MODES:
        raise TemplateFailure(f"{mode!r} is not a mode of a dialogue; use one of {', '.join(INFER_MODES)}")
    end = dialogue.index(ROUND_END) if ROUND_END in dialogue else len(dialogue)
    turns, after = list(dialogue[:end]), dialogue[end:]
    roles = [turn.get("role") if isinstance(turn, Mapping) else None for turn in turns]
    places = [place for place, role in enumerate(roles) if place >= start and role in ANSWERING]
    for place in places[-1:] if mode == "last" else places:
        answer = yield [*turns[:place], *after]
        if mode == "every" and answer is not None:
            turn = turns[place]
            turns[place] = {**turn, ("prompt" if "prompt" in turn else "content"): answer}
