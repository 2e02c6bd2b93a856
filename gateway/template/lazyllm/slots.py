"""How does the input get into the instruction? Slots as the reference fills them (``specs/lazyllm.md`` 5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

from gateway.template.lazyllm.dialects import CURRENT, Dialect
from gateway.template.lazyllm.errors import PrompterError, missing_key
from gateway.template.lazyllm.runs import Run, Runs, joined, replaced

SLOT = re.compile(r"\{(\w+)\}")
"""Word characters of any script between braces; the inner braces of ``{{a}}`` count too."""

NAME = re.compile(r"[.\[]")
"""What ends the name in a field of ``str.format``."""


def slots_of(text: str) -> tuple[str, ...]:
    """The names, each once, in the order in which they first appear."""
    return tuple(dict.fromkeys(SLOT.findall(text)))


def fill(instruction: Runs, given: Any, dialect: Dialect = CURRENT) -> tuple[Runs, Any]:
    """The instruction with the input in its slots, and what remains of the input.

    Raises PrompterError with the reference's words; where its choice depends on the order of a set, the slot
    that appears first is taken.
    """
    names = slots_of(joined(instruction))
    if isinstance(given, (str, int)):
        if not names:
            return instruction, given
        if len(names) > 1:
            raise PrompterError("AssertionError")
        return formatted(instruction, {names[0]: given}), ""
    if isinstance(given, dict):
        return _by_name(instruction, names, dict(given), dialect)
    if not dialect.modern:
        raise PrompterError("AssertionError")
    raise PrompterError(
        "AssertionError", f"expected types are str, int and dict, bug get {type(given)}(`{given})`"
    )  # the words are the reference's


def _by_name(instruction: Runs, names: tuple[str, ...], given: dict[str, Any], dialect: Dialect) -> tuple[Runs, Any]:
    values: dict[str, Any] = {}
    for name in names:
        if name not in given:
            raise missing_key(name)
        values[name] = given.pop(name)
    if len(given) > 1:
        raise PrompterError("AssertionError", f"Unexpected keys found in input: {list(given)}")
    rest = next(iter(given.values()), "")
    if dialect.formats and values:
        return formatted(instruction, values), rest
    for name, value in values.items():
        if not isinstance(value, str):
            raise PrompterError("TypeError", f"replace() argument 2 must be str, not {_type_name(value)}")
        instruction = replaced(instruction, f"{{{name}}}", Run(value, f"slot:{name}", True))
    return instruction, rest


def formatted(instruction: Runs, values: Mapping[str, Any]) -> Runs:
    """``str.format(**values)``, field by field, so that what was put in is known.

    Doubled braces become single ones, conversions and format specifications work, and any other
    field raises what ``str.format`` raises.
    """
    found: list[Run] = []
    try:
        for literal, field, spec, conversion in Formatter().parse(joined(instruction)):
            if literal:
                found.append(Run(literal))
            if field is not None:
                written = f"{{{field}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}}}"
                found.append(Run(written.format(**values), f"slot:{NAME.split(field)[0]}", True))
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise PrompterError(type(error).__name__, str(error)) from error
    return tuple(found)


def _type_name(value: Any) -> str:
    return "None" if value is None else type(value).__name__
