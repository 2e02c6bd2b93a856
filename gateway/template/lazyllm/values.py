"""Which value goes into which slot? The request's variables, and the last user message where its place is.

A slot without a value and a value without a slot are mistakes that the client can mend, so both are told by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.core.errors import InvalidValue
from gateway.template.lazyllm.request import Asked
from gateway.template.spec.prompter import PrompterSpec

PARAM = "gateway.variables"


class Values(NamedTuple):
    """What fills the slots, and what remains to be said in a turn of its own."""

    slots: Mapping[str, str]
    rest: Any
    """Text, or tool results as messages; ``""`` when the user's message has gone into a slot."""
    input_slot: str = ""
    """The slot that the user's message has filled."""
    bare: bool = False
    """True: the message alone fills the only slot, which the reference does in its own way."""


def values_of(asked: Asked, variables: Mapping[str, Any], slots: tuple[str, ...], spec: PrompterSpec) -> Values:
    """The values. Raises InvalidValue that names what is missing, unexpected or no text."""
    for name, value in variables.items():
        if name not in slots:
            raise InvalidValue(f"{_takes(slots)}; {name[:32]!a} is none of them", param=PARAM)
        if not isinstance(value, str):
            raise InvalidValue(f"{PARAM}.{name} must be text", param=f"{PARAM}.{name}")
    bare = len(slots) == 1 and not variables and not spec.input_slot
    into = slots[0] if bare else spec.input_slot
    if not into:
        return Values(_complete(variables, slots), _rest(asked, spec, into))
    if into in variables:
        raise InvalidValue(
            f"the last user message fills the slot {into}; leave {into} out of {PARAM}", param=f"{PARAM}.{into}"
        )
    if asked.text is None:
        raise InvalidValue(
            f"the last user message fills the slot {into}, and the conversation ends with tool results: "
            "end it with a user message",
            param="messages",
        )
    return Values(_complete({**variables, into: asked.text}, slots), "", into, bare)


def _complete(values: Mapping[str, str], slots: tuple[str, ...]) -> Mapping[str, str]:
    missing = [name for name in slots if name not in values]
    if missing:
        raise InvalidValue(f"{_takes(slots)}; {', '.join(missing)} missing", param=PARAM)
    return values


def _rest(asked: Asked, spec: PrompterSpec, into: str) -> Any:
    if spec.form == "alpaca":
        # The checks leave this way only: the only slot is given as a variable.
        raise InvalidValue(
            "this model's template writes the user message into its only slot; leave the variable out", param=PARAM
        )
    return asked.text if asked.text is not None else [dict(turn.item) for turn in asked.input]


def _takes(slots: tuple[str, ...]) -> str:
    if not slots:
        return "this model's template has no slots and takes no variables"
    return f"this model's template takes the variables {', '.join(slots)}"
