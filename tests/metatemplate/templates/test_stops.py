from __future__ import annotations

from typing import Any

import pytest

from metatemplate.files.template import parse_spec
from metatemplate.templates.stops import stop_strings, stop_token_ids
from tests.metatemplate.templates.samples import API, HUMAN, PLAIN


def ending(end: str, *after: Any, first: Any = HUMAN, **keys: Any) -> dict[str, Any]:
    return {"round": [first, {"role": "BOT", "begin": "B:", "end": end, "generate": True}, *after], **keys}


STOPS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "the end, stripped": (PLAIN, ("<eob>",)),
    "blank: the next role's begin": (ending("\n\n"), ("<HUMAN>:",)),
    "nothing: the next role's begin": (ending(""), ("<HUMAN>:",)),
    "the next in the round comes before its start": (ending("", {"role": "NOTE", "begin": " N: "}), ("N:",)),
    "text in the round counts too": (ending("", "\n===\n"), ("===",)),
    "nothing to hold on to": (ending("\n", first={"role": "HUMAN", "begin": " "}), ()),
    "further stops follow": (ending("<e>", stop=["###", "<e>", "###"]), ("<e>", "###")),
    "an API model needs none": (API, ()),
    "an API model's own end counts": (
        {"round": [API["round"][0], {**API["round"][1], "end": "</s>\n"}], "stop": ["x"]},
        ("</s>", "x"),
    ),
    "chat has only what it says": ({"kind": "chat", "stop": ["x"]}, ("x",)),
}


@pytest.mark.parametrize(("raw", "stops"), STOPS.values(), ids=STOPS)
def test_the_template_owns_its_stops(raw: dict[str, Any], stops: tuple[str, ...]) -> None:
    assert stop_strings(parse_spec(raw, name="t")) == stops


def test_the_eos_token_travels_as_an_id() -> None:
    assert stop_token_ids(parse_spec({**PLAIN, "eos_token_id": 0}, name="t")) == (0,)
    assert stop_token_ids(parse_spec(PLAIN, name="t")) == ()
