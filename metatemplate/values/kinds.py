"""The kinds of values in files and requests that Python's types cannot express, as marks for pydantic.

The marks do not import pydantic, because the classes with these kinds are also used where no file is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_args

FORM = "\0(form)"
"""The mark of a form of ``TextOr`` in the place of an error."""
REFUSED_TEXT = type("RefusedText", (str,), {})()
"""The empty text that replaces a text which was refused. It is accepted as every kind of text."""


class _Setting:
    """Changes settings of the schema with which pydantic reads a type."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), **self._settings}


class _NotEmpty:
    """Marks a text that must not be empty."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        text = {**handler(source), "min_length": 1}
        return {"type": "function-wrap", "function": {"type": "no-info", "function": _read_text}, "schema": text}


def _read_text(value: Any, inner: Callable[[Any], Any]) -> Any:
    return value if value is REFUSED_TEXT else inner(value)


class _OneOrMore:
    """Marks a list of texts. A single text is a list of one text."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        texts = handler(source)
        forms = {"type": "union", "choices": [texts["items_schema"][0], texts]}
        function = {"type": "no-info", "function": _listed}
        return {"type": "function-before", "function": function, "schema": texts, "json_schema_input_schema": forms}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class _Forms:
    """Marks a union. Pydantic then writes ``FORM`` into the place of an error, and not the name of a class."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {"type": "union", "choices": [(handler.generate_schema(one), FORM) for one in get_args(source)]}


T = TypeVar("T")
TextOr = Annotated[str | T, _Forms()]
"""A text, or a value of another form."""
NonEmpty = Annotated[str, _NotEmpty()]
"""A text that must not be empty."""
Texts = Annotated[tuple[NonEmpty, ...], _OneOrMore()]
"""Texts that must not be empty, or a single text."""
Switch = Annotated[bool, _Setting(strict=True)]
WholeNumber = Annotated[int, _Setting(strict=True, ge=0)]
SwitchOrAuto = Annotated[Switch | Literal["auto"], _Setting(custom_error_type="bool_type")]
