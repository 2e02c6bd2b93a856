"""Origins, notices and errors for prompts that are made from a dataset's prompt list."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from metatemplate.datasets.prompt_list import is_marker
from metatemplate.errors import InvalidInput, UnsupportedMedia
from metatemplate.opencompass.parsers import UndefinedRole
from metatemplate.templates.chat.messages import text_only
from metatemplate.values.dialogue import DATASET_PARAM
from metatemplate.values.prompt import Notice


def origin_of_item(items: Sequence[Any], position: int) -> str:
    """Return the origin of an item. ``prompt[2]`` is the third turn or text; markers and empty texts do not count."""
    return f"prompt[{sum(not is_marker(item) and item != '' for item in items[:position])}]"


def dropped_items(items: Sequence[Any], sent: Collection[int | None]) -> tuple[Notice, ...]:
    """Return a notice for each item whose text is not in the prompt, such as a turn after the model's answer.

    ``sent``: the positions of the items whose text is in the prompt.
    """
    lost = [n for n, item in enumerate(items) if n not in sent and not is_marker(item) and _text_of(item)]
    return tuple([Notice("dropped_turn", origin_of_item(items, position)) for position in lost])


def with_texts(items: Sequence[Any], media: str | None) -> list[Any]:
    """Return the prompt list with a text instead of content parts, for a template that makes a string.

    The text ``media`` replaces each part that is not text. Raises UnsupportedMedia if ``media`` is None and a part is
    not text.
    """
    return [
        item if isinstance(item, str) or "prompt_mm" not in item else _with_text(item, media, origin_of_item(items, n))
        for n, item in enumerate(items)
    ]


@contextmanager
def role_errors(items: Sequence[Any], template: str) -> Iterator[None]:
    """A context manager that raises InvalidInput for a turn whose role is not defined in the template."""
    try:
        yield
    except UndefinedRole as error:
        position = next(number for number, item in enumerate(items) if item is error.turn)
        raise InvalidInput(
            f"{origin_of_item(items, position)} of the dataset prompt: {error.message} (template {template}); "
            "add the role, or give the turn another role or a fallback_role",
            param=DATASET_PARAM,
        ) from None


def _with_text(item: Mapping[str, Any], media: str | None, where: str) -> dict[str, Any]:
    texts: list[str] = []
    for part in item["prompt_mm"]:
        text = part["text"] if part["type"] == "text" else media
        if text is None:
            raise UnsupportedMedia(f"{where} of the dataset prompt: {text_only(part['type'])}", param=DATASET_PARAM)
        texts.append(text)
    rest = {key: value for key, value in item.items() if key != "prompt_mm"}
    return {**rest, "prompt": "".join(texts)}


def _text_of(item: Any) -> Any:
    return item if isinstance(item, str) else item.get("prompt_mm") or item.get("prompt")
