"""The operations of a PromptList: strings, turns and section markers in order (``docs/spec/opencompass.md`` 1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from metatemplate.errors import TemplateFailure
from tests.support.reference.opencompass.dialect import OPENCOMPASS, Dialect

_MARKER_KEYS = frozenset({"section", "pos"})
_PYTHON_NAMES = ("self", "input_str")
"""Column names that the reference's own signatures take: it cannot fill them."""


def is_marker(item: Mapping[str, Any]) -> bool:
    """True for a section marker, False for a turn."""
    return item.keys() == _MARKER_KEYS


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Replace every ``{key}`` by ``str(value)``, in the order of ``values``.

    Plain replacement, so a later key is also found inside a value already put in.
    """
    _check_names(values, _PYTHON_NAMES)
    if values and not isinstance(text, str):
        raise TemplateFailure(f"only strings can be filled, not {type(text).__name__}")
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def _check_names(values: Mapping[str, Any], taken: tuple[str, ...]) -> None:
    for key in values:
        if not isinstance(key, str):
            raise TemplateFailure(f"column names are strings; found one of type {type(key).__name__}")
        if key in taken:
            raise TemplateFailure(f'a column cannot be named "{key}"; rename it in the dataset')


def appended(first: Any, second: Any) -> Any:
    """Text after text; a list takes the text's characters one by one, as Python's ``+=`` does in the reference.

    Raises TemplateFailure for everything else.
    """
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    if isinstance(first, list) and isinstance(second, (str, list)):
        return [*first, *second]
    raise TemplateFailure(f"a {type(second).__name__} cannot be appended to a {type(first).__name__}; write text")


class PromptList(list[Any]):
    """Strings, turns and section markers, in order."""

    def format(self, values: Mapping[str, Any]) -> PromptList:
        """Fill the fields of every string and of every turn's ``prompt``; other keys stay as they are.

        Raises TemplateFailure for an item that is neither string nor dict, and for unusable column names.
        """
        _check_names(values, ("self",))
        return PromptList(self._filled(item, values) for item in self)

    @staticmethod
    def _filled(item: Any, values: Mapping[str, Any]) -> Any:
        if isinstance(item, str):
            return fill(item, values)
        if not isinstance(item, dict):
            raise TemplateFailure(f"a PromptList holds strings and dicts, not {type(item).__name__}")
        copy = deepcopy(item)
        if "prompt" in copy:
            copy["prompt"] = fill(copy["prompt"], values)
        return copy

    def replace(self, src: str, dst: str | Iterable[Any]) -> PromptList:
        """Replace ``src`` by a string, or by the items of a PromptList.

        A string stays where it was, even when it becomes empty. A PromptList splits the
        strings that hold ``src`` and drops empty pieces; a turn cannot be split, so there
        it is an error. A plain list makes string items vanish, as in the reference.
        """
        out = PromptList()
        for item in self:
            if isinstance(item, str):
                out.extend(_replaced_string(item, src, dst))
            else:
                out.append(_replaced_turn(item, src, dst))
        return out

    def __add__(self, other: Any) -> PromptList:
        if not other:
            return PromptList(self)
        if isinstance(other, str):
            return PromptList([*self, other])
        if not isinstance(other, list):
            raise TemplateFailure(f"only strings and lists can be added to a PromptList, not {type(other).__name__}")
        return PromptList(super().__add__(other))

    def __radd__(self, other: Any) -> PromptList:
        if not other:
            return PromptList(self)
        if isinstance(other, str):
            return PromptList([other, *self])
        # The reference recurses without end here. Joining would hide which side decided the type.
        raise TemplateFailure("a plain list cannot be put before a PromptList; make it a PromptList first")

    def __iadd__(self, other: Any) -> PromptList:
        """Extend in place; a dict adds its keys, as Python's ``list.extend`` does."""
        if isinstance(other, str):
            if other:
                self.append(other)
        elif other:
            self.extend(other)
        return self

    def __str__(self) -> str:
        return self.text(OPENCOMPASS)

    def text(self, dialect: Dialect) -> str:
        """Strings and prompts joined with nothing between; markers and prompt-less turns left out."""
        texts: list[str] = []
        for item in self:
            if isinstance(item, str):
                texts.append(item)
            elif not isinstance(item, dict):
                raise TemplateFailure(f"a PromptList holds strings and dicts, not {type(item).__name__}")
            elif "prompt" in item:
                texts.append(_shown(item["prompt"], dialect))
        return "".join(texts)


def _shown(prompt: Any, dialect: Dialect) -> str:
    if dialect.quotes_prompts:
        return json.dumps(prompt)
    if not isinstance(prompt, str):
        raise TemplateFailure(f"a turn's prompt is text, not {type(prompt).__name__}")
    return prompt


def _replaced_string(item: str, src: str, dst: Any) -> list[Any]:
    if isinstance(dst, str):
        return [item.replace(src, dst)]
    if not isinstance(dst, PromptList):
        return []
    if not src:
        raise TemplateFailure("the text to replace is empty; name what the list shall replace")
    out: list[Any] = []
    for number, piece in enumerate(item.split(src)):
        if number:
            out.extend(dst)
        if piece:
            out.append(piece)
    return out


def _replaced_turn(item: Any, src: str, dst: Any) -> Any:
    copy = deepcopy(item)
    if not isinstance(copy, dict):
        raise TemplateFailure(f"a PromptList holds strings and dicts, not {type(item).__name__}")
    if "prompt" in copy:
        if not isinstance(copy["prompt"], (str, list, dict)):
            raise TemplateFailure(f"a turn's prompt is text, not {type(copy['prompt']).__name__}")
        if src not in copy["prompt"]:
            return copy
        if not isinstance(dst, str) or not isinstance(copy["prompt"], str):
            raise TemplateFailure("a turn's prompt holds text only; a list of turns cannot be put into it")
        copy["prompt"] = copy["prompt"].replace(src, dst)
    return copy
