"""What does an ordinary whole answer say? The same as ``answers.py`` would find in it, in one straight line.

Nearly every answer that is no stream holds one choice of text, why it ended, and the counts; all else in it is null.
"""

from __future__ import annotations

from gateway.backend.openai.events import ANSWER_KEYS, COUNTS, MAX_COUNT, Shape
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.events import Begun, Delta, Event, Finish, Usage
from gateway.stream.finish_reason import FINISH_REASONS


def ordinary_whole(answer: object, shape: Shape, target: str, notices: tuple[str, ...]) -> list[Event] | None:
    """The events of a whole answer that holds one finished choice of text, and counts; None: ``Answer`` has to look.

    For answers without lone surrogates, and exactly what ``Answer`` would give.
    """
    if type(answer) is not dict or answer.get("object") == "error":
        return None
    for key in answer.keys() - ANSWER_KEYS:
        if answer[key] is not None:
            return None
    choices, counts = answer.get("choices"), answer.get("usage")
    if type(choices) is not list or len(choices) != 1 or type(counts) is not dict:
        return None
    for key in counts.keys() - COUNTS:
        if counts[key] is not None:
            return None
    choice = choices[0]
    if type(choice) is not dict or choice.get("logprobs") is not None:
        return None
    for key in choice.keys() - shape.keys:
        if choice[key] is not None:
            return None
    index, ended = choice.get("index", 0), choice.get("finish_reason")
    if type(index) is not int or index or type(ended) is not str or (reason := FINISH_REASONS.get(ended)) is None:
        return None
    text = choice.get("text") if shape.whole_text is None else shape.whole_text(choice)
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens", 0)
    if type(text) is not str or not text or type(prompt) is not int or type(completion) is not int:
        return None
    if not (0 <= prompt <= MAX_COUNT and 0 <= completion <= MAX_COUNT):
        return None
    return [Begun(target, 1, EMPTY_MAPPING, notices), Delta(0, text), Finish(0, reason), Usage(prompt, completion)]
