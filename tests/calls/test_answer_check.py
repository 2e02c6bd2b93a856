"""``AnswerCheck``: what an answer must be, in every slicing of its text, behind the parser of tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.calls.answer.answer_check import AnswerCheck, AnswerRule
from gateway.calls.answer.response import ResponseStream
from gateway.calls.timeline import CallTimeline
from gateway.core.errors import GatewayError
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.checker import SchemaChecker
from metatemplate.answers.output_parser import OutputParser, ParserOptions
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.values.answer_markers import ToolTokens
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Begun, Delta, Event, Finish
from tests.calls.test_response import ScriptedEvents
from tests.policy.responses import exchange

SUM = AnswerFormat(schema={"type": "object", "properties": {"sum": {"enum": [3]}}, "required": ["sum"]})
CALL = '{"name": "add", "arguments": {"sum": 3}}'
IGNORED, NOT_FOLLOWED = "upstream_ignored_parameter", "tool_choice_not_followed"
FREE, ANY_CALL = AnswerRule(SUM, may_call=True), AnswerRule(forced_tool="")


@pytest.fixture(scope="module")
def checker() -> Iterator[SchemaChecker]:
    one = SchemaChecker()
    yield one
    one.close()


def passed(
    checker: SchemaChecker, rule: AnswerRule, events: list[Event], parser: str = "", stops: frozenset[str] = frozenset()
) -> tuple[str, list[str], str | None, list[str]]:
    """The text, the names of the calls, the code of the error, and the notices of an answer."""

    async def run() -> tuple[str, list[str], str | None, list[str]]:
        notices: list[str] = []
        options = ParserOptions(calls=FORMATS[parser](ToolTokens(), ["add"]), tools={"add": {}}) if parser else None
        response = ResponseStream(
            exchange(stream=True),
            ScriptedEvents([[Begun("m/0")], *[[event] for event in events]], None),
            CallTimeline("chat", "req_1", 0.0),
            None,
            None if options is None else OutputParser(options),
            answer_check=AnswerCheck(rule, checker, notices, stops),
        )
        out: list[Event] = []
        code = None
        try:
            while batch := await response.next_batch():
                out += batch
        except GatewayError as error:
            code = error.code
            out += await response.take_pending()
        deltas = [event for event in out if isinstance(event, Delta)]
        calls = [one["function"] for delta in deltas for one in delta.fields.get("tool_calls", ())]
        names = [call["name"] for call in calls if "name" in call]
        return "".join(delta.text for delta in deltas), names, code, notices

    return asyncio.run(run())


Row = tuple[AnswerRule, str, str, str, list[str], str | None]
ANSWERS: dict[str, Row] = {
    # The rule, the parser, the model's text, and what the client gets: the text, the calls, the code of the error.
    "a call instead of the form": (FREE, "hermes", f"<tool_call>{CALL}</tool_call>", "", ["add"], None),
    "text before a call": (FREE, "hermes", f"I add.<tool_call>{CALL}</tool_call>", "I add.", ["add"], None),
    "the form": (FREE, "hermes", '{"sum": 3}', '{"sum": 3}', [], None),
    "another form": (FREE, "hermes", '{"sum": 4}', '{"sum": 4}', [], IGNORED),
    "prose": (FREE, "hermes", "It is 3.", "It is 3.", [], IGNORED),
    "a broken call": (FREE, "hermes", "<tool_call>add(3)", "<tool_call>add(3)", [], IGNORED),
    "JSON that is a call": (FREE, "json", CALL, "", ["add"], None),
    "JSON that is the form": (FREE, "json", '{"sum": 3}', '{"sum": 3}', [], None),
    "JSON of another tool": (FREE, "json", '{"name": "sub"}', '{"name": "sub"}', [], IGNORED),
    "a forced call": (ANY_CALL, "hermes", f"<tool_call>{CALL}", "", ["add"], None),
    "a forced call of its tool": (AnswerRule(forced_tool="add"), "json", CALL, "", ["add"], None),
    "a forced call of another tool": (AnswerRule(forced_tool="sub"), "json", CALL, "", ["add"], NOT_FOLLOWED),
    "no forced call": (ANY_CALL, "hermes", "It is 3.", "It is 3.", [], NOT_FOLLOWED),
    "an empty answer to a forced call": (ANY_CALL, "hermes", "", "", [], NOT_FOLLOWED),
    "an empty answer in a form": (AnswerRule(SUM), "", "", "", [], IGNORED),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_judged_alike_in_every_slicing(checker: SchemaChecker, case: str) -> None:
    rule, parser, text, *wanted = ANSWERS[case]
    for size in range(1, len(text) + 1) if text else [1]:
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        events: list[Event] = [*[Delta(0, piece) for piece in pieces], Finish(0, "stop")]
        assert passed(checker, rule, events, parser) == (*wanted, []), size


def test_the_text_of_a_possible_call_is_held_only_until_it_can_be_no_call(checker: SchemaChecker) -> None:
    events: list[Event] = [Delta(0, "{"), Delta(0, '"sum": '), Delta(0, "3}"), Delta(0, " "), Finish(0, "stop")]
    sent: list[str] = []

    async def run() -> None:
        parser = OutputParser(ParserOptions(calls=FORMATS["json"](ToolTokens(), ["add"]), tools={"add": {}}))
        check = AnswerCheck(FREE, checker, [])
        for event in events:
            batch = await check.read(parser.process([event]))
            sent.append("".join(one.text for one in batch if isinstance(one, Delta)))

    asyncio.run(run())
    assert sent[:3] == ["", "", '{"sum": 3}']


def fields(**values: Any) -> Delta:
    return Delta(0, fields=values)


UNCHECKED: dict[str, tuple[AnswerRule, list[Event], str]] = {
    "an answer at the token limit": (AnswerRule(SUM), [Delta(0, "{"), Finish(0, "length")], "length"),
    "a forced call at the token limit": (ANY_CALL, [Delta(0, "{"), Finish(0, "length")], "length"),
    "a filtered answer": (AnswerRule(SUM), [Finish(0, "content_filter")], "content_filter"),
    "a refusal": (AnswerRule(SUM), [fields(refusal="I "), fields(refusal="won't."), Finish(0, "stop")], "refusal"),
    "a refusal to call": (ANY_CALL, [fields(refusal="No."), Finish(0, "stop")], "refusal"),
}


@pytest.mark.parametrize("case", UNCHECKED)
def test_what_is_not_checked_has_a_notice(checker: SchemaChecker, case: str) -> None:
    rule, events, reason = UNCHECKED[case]
    _, _, code, notices = passed(checker, rule, events)
    assert (code, notices) == (None, [f"answer_unchecked: choices[0]={reason}"])


CALLED = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": ""}}
FRAGMENTS: dict[str, tuple[Any, str | None]] = {
    "a call": ({"tool_calls": [CALLED]}, None),
    "a custom call": ({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": "add"}}]}, None),
    "a call in the old form": ({"function_call": {"name": "add", "arguments": ""}}, None),
    "no list": ({"tool_calls": {"0": CALLED}}, NOT_FOLLOWED),
    "a list of texts": ({"tool_calls": ["add"]}, NOT_FOLLOWED),
    "no call": (EMPTY_MAPPING, NOT_FOLLOWED),
}


@pytest.mark.parametrize("case", FRAGMENTS)
def test_calls_of_a_provider_may_have_any_form(checker: SchemaChecker, case: str) -> None:
    values, wanted = FRAGMENTS[case]
    check = AnswerCheck(ANY_CALL, checker, [])
    asyncio.run(check.read([Delta(0, "", fields=values), Finish(0, "stop")]))
    assert (None if check.failure is None else check.failure.code) == wanted


@pytest.mark.parametrize("rule", [None, AnswerRule(SUM), ANY_CALL], ids=["no rule", "a form", "a forced call"])
def test_only_a_rule_takes_a_stream_from_the_direct_path(checker: SchemaChecker, rule: AnswerRule | None) -> None:
    check = None if rule is None else AnswerCheck(rule, checker, [])
    events = ScriptedEvents([[Begun("m/0")]], None)
    timeline = CallTimeline("chat", "req_1", 0.0)
    assert ResponseStream(exchange(stream=True), events, timeline, None, answer_check=check).can_forward == (
        rule is None
    )


def test_each_choice_must_have_its_forced_call(checker: SchemaChecker) -> None:
    check = AnswerCheck(ANY_CALL, checker, [])
    events: list[Event] = [fields(tool_calls=[CALLED]), Delta(1, "3"), Finish(0, "stop"), Finish(1, "stop")]
    assert asyncio.run(check.read(events)) == events[:3]
    assert check.failure is not None
    assert check.failure.code == NOT_FOLLOWED


def test_a_stop_of_the_client_may_have_cut_a_forced_call(checker: SchemaChecker) -> None:
    events: list[Event] = [Delta(0, "3"), Finish(0, "stop")]
    _, _, code, notices = passed(checker, ANY_CALL, events, stops=frozenset({"!"}))
    assert (code, notices) == (None, ["answer_unchecked: choices[0]=may have been cut by a stop of the client"])


def test_an_empty_answer_may_have_been_cut_by_a_stop_of_the_client(checker: SchemaChecker) -> None:
    _, _, code, notices = passed(checker, AnswerRule(SUM), [Delta(0, " "), Finish(0, "stop")], stops=frozenset({"!"}))
    assert (code, notices) == (None, ["answer_unchecked: choices[0]=may have been cut by a stop of the client"])


@pytest.mark.parametrize("lenient", [True, False])
def test_an_answer_that_takes_too_long_to_check(checker: SchemaChecker, lenient: bool) -> None:
    slow = AnswerFormat(schema={"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}})
    text = '{"a": "' + "a" * 40 + '!"}'
    _, _, code, notices = passed(checker, AnswerRule(slow, lenient=lenient), [Delta(0, text), Finish(0, "stop")])
    if lenient:
        assert (code, notices) == (None, ["answer_unchecked: choices[0]=the check takes too long"])
    else:
        assert (code, notices) == ("invalid_value", [])
