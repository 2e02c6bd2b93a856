"""What our parsers do where the reference crashes, and that refusals are ours. The rest is in tests/conformance."""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

import pytest

from gateway.core.errors import TemplateError
from gateway.template.opencompass.api_parser import APIParser
from gateway.template.opencompass.chat_parser import ChatAPIParser, ChatLMParser, to_chat
from gateway.template.opencompass.dialect import AIS_BENCH, DIALECTS
from gateway.template.opencompass.lm_parser import LMParser
from gateway.template.opencompass.prompt_list import PromptList
from gateway.template.opencompass.wrappers import ais_chat_messages, hf_base_text, hf_chat_messages, openai_request
from tests.template.samples import API, API_SYSTEM, PLAIN, RESERVED

Q, A = {"role": "HUMAN", "prompt": "q"}, {"role": "BOT", "prompt": "a"}
S = {"role": "SYSTEM", "prompt": "s", "fallback_role": "HUMAN"}
TEXT_PART = {"type": "text", "text": "t"}


def section(name: str, *items: Any, opens: str = "begin") -> list[Any]:
    return [{"section": name, "pos": opens}, *items, {"section": name, "pos": "end"}]


MENDED: dict[str, tuple[Callable[[], Any], Any]] = {
    "a flat list is one round": (
        lambda: LMParser(PLAIN).parse(PromptList([Q, A]), "ppl"),
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\n",
    ),
    "a flat list is one round for an API": (
        lambda: APIParser(API).parse(PromptList([Q, A])),
        [{"role": "HUMAN", "prompt": "q"}],
    ),
    "the end section opens as the datasets write it": (
        lambda: LMParser(PLAIN).parse(
            PromptList([*section("round", Q, A), *section("end", "x", Q, opens="end")]), "ppl"
        ),
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\nx<HUMAN>: q<eoh>\n",
    ),
    "a reserved role in the round is spoken there": (
        lambda: LMParser(RESERVED).parse(PromptList(section("round", S, Q, A))),
        "<SYSTEM>: s<eosys>\n<HUMAN>: q<eoh>\n<BOT>: ",
    ),
    "a missing role in the round falls back there": (
        lambda: LMParser(PLAIN).parse(PromptList(section("round", Q, A, S, Q, A)), "ppl"),
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\n<HUMAN>: s<eoh>\n<HUMAN>: q<eoh>\n<BOT>: a<eob>\n",
    ),
    "generate in begin is ignored for an API": (
        lambda: APIParser(API).parse(PromptList([*section("begin", {**A}), *section("round", Q, A)])),
        [{"role": "BOT", "prompt": "a"}, {"role": "HUMAN", "prompt": "q"}],
    ),
    "text before parts becomes a part": (
        lambda: APIParser(API_SYSTEM, AIS_BENCH).parse(
            PromptList([*section("begin", Q), *section("round", {"role": "HUMAN", "prompt_mm": [TEXT_PART]}, A)])
        ),
        [{"role": "HUMAN", "prompt": [{"type": "text", "text": "q"}, TEXT_PART]}],
    ),
    "an empty string is no message": (lambda: to_chat(PromptList(["", Q])), [{"role": "user", "content": "q"}]),
    "an empty string is no chat message": (lambda: hf_chat_messages(["", Q]), [{"role": "user", "content": "q"}]),
    "an empty string is no service message": (lambda: ais_chat_messages(["", Q]), [{"role": "user", "content": "q"}]),
    "an empty string is no base text": (lambda: hf_base_text(["", Q]), "q"),
    "an empty string is no OpenAI message": (
        lambda: openai_request(["", Q]).messages,
        [{"role": "user", "content": "q"}],
    ),
}


@pytest.mark.parametrize(("do", "result"), MENDED.values(), ids=MENDED)
def test_a_crash_of_the_reference_is_mended(do: Callable[[], Any], result: Any) -> None:
    assert do() == result


ROUND = PromptList(section("round", Q, A))

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no round": (lambda: LMParser({"begin": "x"}), "round is required"),
    "a list as meta template": (lambda: LMParser([PLAIN]), "is a mapping"),  # type: ignore[arg-type]
    "a round that is no list": (lambda: LMParser({"round": "x"}), "round of a meta template is a list"),
    "a number in the round": (lambda: LMParser({"round": [1]}), "holds strings and roles, not int"),
    "a role without name": (lambda: LMParser({"round": [{}]}), "has no `role`"),
    "a list as name": (lambda: LMParser({"round": [{"role": []}]}), "name is a string"),
    "a role twice": (lambda: LMParser({"round": [Q, Q]}), "defined twice"),
    "a token list": (lambda: LMParser({"round": [{"role": "HUMAN", "end": []}]}), "token lists are not supported"),
    "an empty round": (lambda: LMParser({"round": []}).parse(ROUND), "round is empty"),
    "an empty round for an API": (lambda: APIParser({"round": []}).parse(ROUND), "round is empty"),
    "a meta begin that is no text": (lambda: LMParser({**PLAIN, "begin": ["x"]}).parse(ROUND), "begin must be text"),
    "a mode of its own": (lambda: LMParser(PLAIN).parse("x", "other"), "mode is gen or ppl"),
    "a prompt that is none": (lambda: LMParser(PLAIN).parse(5), "a prompt is a string"),
    "a number as item": (lambda: LMParser(PLAIN).parse(PromptList([*ROUND, 5]), "ppl"), "strings and dicts, not int"),
    "a number without a template": (lambda: LMParser().parse(PromptList([5])), "strings and dicts, not int"),
    "a turn outside sections": (lambda: LMParser(PLAIN).parse(PromptList([Q, *ROUND])), "outside every section"),
    "sections that cross": (
        lambda: LMParser(PLAIN).parse(
            PromptList([{"section": "begin", "pos": "begin"}, {"section": "round", "pos": "end"}])
        ),
        "closed by the end of",
    ),
    "an end without begin": (
        lambda: LMParser(PLAIN).parse(PromptList([{"section": "round", "pos": "end"}])),
        "ends before it began",
    ),
    "a section of no name": (lambda: LMParser(PLAIN).parse(PromptList(section("x"))), "a section is one of"),
    "a position of no name": (lambda: LMParser(PLAIN).parse(PromptList(section("round", opens="x"))), "has pos"),
    "a role of no name": (lambda: LMParser(PLAIN).parse(PromptList(section("round", {}))), "has no `role`"),
    "nobody to speak": (
        lambda: LMParser(PLAIN).parse(PromptList(section("begin", {"role": "X", "prompt": "secret"}))),
        'role "X" and no fallback_role',
    ),
    "nobody to fall back on": (
        lambda: APIParser(API).parse(PromptList(section("round", {"role": "X", "fallback_role": "Y"}))),
        'role "X" and fallback_role "Y"',
    ),
    "no api_role": (lambda: APIParser(PLAIN).parse(ROUND), "has no api_role"),
    "nothing at all": (lambda: APIParser(API).parse(PromptList([])), "no message to send"),
    "text in an api round": (lambda: APIParser({"round": ["x", *API["round"]]}).parse(ROUND), "cannot be spoken"),
    "a number as api begin": (
        lambda: APIParser({"round": [{"role": "HUMAN", "api_role": "H", "begin": 5}]}).parse(
            PromptList(section("round", Q))
        ),
        "cannot be appended",
    ),
    "no prompt for AISBench": (
        lambda: APIParser(API, AIS_BENCH).parse(PromptList(section("round", {"role": "HUMAN"}))),
        "neither prompt nor prompt_mm",
    ),
    "a message list for AISBench": (lambda: APIParser([{"role": "user", "content": ""}], AIS_BENCH), "not a list"),
    "a message list of strange roles": (lambda: APIParser([{"role": "x", "content": ""}]), "system, user or assistant"),
    "a list template with a dialogue": (
        lambda: APIParser([{"role": "user", "content": ""}]).parse(ROUND),
        "only a list of messages",
    ),
    "a list template with strings": (
        lambda: APIParser([{"role": "user", "content": ""}]).parse(["role content"]),
        "only a list of messages",
    ),
    "a chat that is none": (lambda: ChatLMParser(PLAIN).parse("x"), "a chat is a list"),
    "a chat message without role": (lambda: ChatLMParser(PLAIN).parse([{"content": "x"}]), "no `role`"),
    "a chat without BOT": (lambda: ChatLMParser({"round": [Q]}).parse([{"role": "user"}]), "no BOT role"),
    "a chat with text in the round": (lambda: ChatLMParser({"round": ["x"]}), "roles only"),
    "a chat of numbers": (lambda: ChatLMParser().parse([{"content": 5}]), "content must be text"),
    "a chat with strange entries": (lambda: ChatAPIParser({"round": 5}), "round of a meta template is a list"),
    "a chat with a strange template": (lambda: ChatAPIParser([1]), "is a mapping"),  # type: ignore[arg-type]
    "a chat without api_role": (lambda: ChatAPIParser(PLAIN).parse([{"role": "user"}]), "has no api_role"),
    "a turn without prompt as message": (lambda: to_chat([{"role": "BOT"}]), "has no prompt"),
    "a number as message": (lambda: to_chat([5]), "strings and dicts, not int"),
    "nothing as chat": (lambda: to_chat(None), "a string or a PromptList"),  # type: ignore[arg-type]
    "a bare string for a chat wrapper": (lambda: hf_chat_messages(["x"]), "a bare string cannot be sent"),
    "a strange role for a chat wrapper": (lambda: hf_chat_messages([{"role": "X", "prompt": "x"}]), "is none of"),
    "parts for a base model": (lambda: hf_base_text([{"role": "HUMAN", "prompt": []}]), "text only"),
    "a number for OpenAI": (lambda: openai_request([{"role": "HUMAN", "prompt": 5}]), "counts text, not int"),
    "too long": (lambda: openai_request("xxxx", max_seq_len=3), "4 tokens, 3 are allowed"),
    "no room": (lambda: openai_request("x", max_seq_len=101), "no room for an answer"),
    "a list before a PromptList": (lambda: add([1], PromptList(["a"])), "make it a PromptList first"),
    "a tuple after a PromptList": (lambda: add(PromptList(["a"]), (1,)), "not tuple"),
    "a list into a turn": (lambda: PromptList([Q]).replace("q", PromptList(["x"])), "holds text only"),
    "an empty text to replace": (lambda: PromptList(["x"]).replace("", PromptList(["x"])), "is empty"),
    "a number to replace in": (lambda: PromptList([5]).replace("q", "x"), "not int"),
    "a numeric prompt to replace in": (lambda: PromptList([{"prompt": 5}]).replace("q", "x"), "not int"),
    "a number to fill": (lambda: PromptList([5]).format({}), "not int"),
    "a numeric prompt to fill": (lambda: PromptList([{"prompt": 5}]).format({"a": 1}), "not int"),
    "a column named self": (lambda: PromptList([]).format({"self": 1}), "cannot be named"),
    "a column without name": (lambda: PromptList([]).format({1: 1}), "are strings"),  # type: ignore[dict-item]
    "a number as text": (lambda: str(PromptList([5])), "not int"),
    "a numeric prompt as text": (lambda: str(PromptList([{"prompt": 5}])), "not int"),
}


@pytest.mark.parametrize(("do", "part"), REFUSED.values(), ids=REFUSED)
def test_what_breaks_the_rules_is_a_template_error(do: Callable[[], Any], part: str) -> None:
    with pytest.raises(TemplateError) as caught:
        do()
    assert part in caught.value.message
    assert "secret" not in caught.value.message


def test_the_packages_differ_by_a_value() -> None:
    me = PromptList(["a", {"role": "HUMAN", "prompt": 'b"é'}, {"role": "X"}])
    assert {name: me.text(dialect) for name, dialect in DIALECTS.items()} == {
        "opencompass": 'ab"é',
        "ais-bench": 'a"b\\"\\u00e9"',
    }


def test_parsing_leaves_what_it_was_given_alone() -> None:
    items = PromptList(section("round", dict(Q), dict(A)))
    before = str(list(items)), str(PLAIN), str(API)
    LMParser(PLAIN).parse(items)
    APIParser(API).parse(items)
    items.format({"q": "x"}).replace("q", "y")
    assert (str(list(items)), str(PLAIN), str(API)) == before
