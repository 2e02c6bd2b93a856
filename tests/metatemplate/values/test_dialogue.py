"""The shared empty mapping, and messages in columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from metatemplate.values import fast_paths
from metatemplate.values.dialogue import EMPTY_MAPPING, Dialogue, Message, plain_messages

WRITES: dict[str, Callable[[Any], object]] = {
    "an item": lambda nothing: nothing.__setitem__("a", 1),
    "a default": lambda nothing: nothing.setdefault("a", 1),
    "an update": lambda nothing: nothing.update(a=1),
    "a union in place": lambda nothing: nothing.__ior__({"a": 1}),
}


@pytest.mark.parametrize("name", WRITES)
def test_nothing_stays_empty(name: str) -> None:
    with pytest.raises(TypeError, match="cannot be changed"):
        WRITES[name](EMPTY_MAPPING)
    assert (dict(EMPTY_MAPPING), hash(EMPTY_MAPPING), isinstance(EMPTY_MAPPING, Mapping)) == ({}, 0, True)


RAWS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "r"}]


@pytest.mark.skipif(not fast_paths.ENABLED, reason="fast paths are off")
def test_columns_are_messages() -> None:
    columns = plain_messages(RAWS)
    assert columns is not None
    messages = tuple([Message(raw["role"], raw["content"], (), raw) for raw in RAWS])
    assert (tuple(columns), columns[1], columns[-2:], len(columns)) == (messages, messages[1], messages[-2:], 3)
    assert columns == messages
    assert columns == plain_messages([dict(raw) for raw in RAWS])
    assert columns != plain_messages(RAWS[:2])
    assert repr(columns) == repr(messages)
    assert [*Dialogue(columns).texts] == [*Dialogue(messages).texts] == ["q", "", "r"]


NOT_PLAIN: dict[str, Any] = {
    "a third key": {"role": "user", "content": "q", "name": "n"},
    "no content": {"role": "assistant", "tool_calls": []},
    "null": {"role": "assistant", "content": None},
    "parts": {"role": "user", "content": [{"type": "text", "text": "q"}]},
    "another role": {"role": "tool", "content": "q"},
    "a role that is no text": {"role": ["user"], "content": "q"},
    "a text": "user",
    "a number": 1,
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_one_message_that_is_more_makes_no_columns(name: str) -> None:
    assert plain_messages([RAWS[0], NOT_PLAIN[name]]) is None
