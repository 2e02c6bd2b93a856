"""The parsers where the reference crashes. Everything else about them is in tests/conformance."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.errors import TemplateFailure
from metatemplate.files.template import parse_spec
from metatemplate.opencompass.parsers import APIParser, LMParser
from metatemplate.opencompass.renderer import meta_template
from tests.metatemplate.templates.samples import API, PLAIN, RESERVED

Q, A = {"role": "HUMAN", "prompt": "q"}, {"role": "BOT", "prompt": "a"}
S = {"role": "SYSTEM", "prompt": "s", "fallback_role": "HUMAN"}


def section(name: str, *items: Any) -> list[Any]:
    return [{"section": name, "pos": "begin"}, *items, {"section": name, "pos": "end"}]


def meta(raw: dict[str, Any]) -> dict[str, Any]:
    return meta_template(parse_spec(raw, name="sample"))


TEXTS: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "a reserved role in the round stands where it is": (
        RESERVED,
        section("round", S, Q, A),
        "<SYSTEM>: s<eosys>\n<HUMAN>: q<eoh>\n<BOT>: a<eob>\n",
    ),
    "a missing role in the round falls back where it is": (
        PLAIN,
        section("round", Q, A, S, Q, A),
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\n<HUMAN>: s<eoh>\n<HUMAN>: q<eoh>\n<BOT>: a<eob>\n",
    ),
}


@pytest.mark.parametrize(("raw", "items", "text"), TEXTS.values(), ids=TEXTS)
def test_a_role_outside_the_round_is_written(raw: dict[str, Any], items: list[Any], text: str) -> None:
    assert "".join(piece.text for piece in LMParser(meta(raw)).pieces(items, "ppl")) == text


def test_generate_in_the_begin_section_is_ignored() -> None:
    messages = APIParser(meta(API)).messages([*section("begin", A), *section("round", Q, A)])
    assert [message for _, message in messages] == [{"role": "BOT", "prompt": "a"}, {"role": "HUMAN", "prompt": "q"}]


def test_a_turn_without_a_usable_role_is_an_error_without_its_text() -> None:
    turn = {"role": "X", "fallback_role": "Y", "prompt": "secret"}
    for parse in (LMParser(meta(PLAIN)).pieces, lambda items: list(APIParser(meta(API)).messages(items))):
        with pytest.raises(TemplateFailure) as caught:
            parse(section("round", turn))
        assert 'role "X" or fallback_role "Y"' in caught.value.message
        assert "secret" not in caught.value.message
