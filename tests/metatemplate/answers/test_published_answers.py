"""What published templates write as tool calls is read back to the same calls: whole, in pieces, and broken."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest

from metatemplate.values.events import Delta, Event
from tests.metatemplate.answers.losses import LOSSES, UNTYPED, losses, strings
from tests.metatemplate.answers.published import FAMILIES, Answer, Writer, broken, function
from tests.metatemplate.answers.read_back import events_of, heard, options_of, plain, read, slicings
from tests.stream.slicing import sliced

every_family = pytest.mark.parametrize("name", FAMILIES)


@cache
def answers(name: str) -> tuple[Answer, ...]:
    writer = Writer(name)
    return tuple([writer.answer() for _ in range(200)])


@every_family
def test_the_calls_that_a_template_writes_are_read_back(name: str) -> None:
    whole = 0
    for answer in answers(name):
        found = read(answer)
        assert found.reasoning.strip() == answer.reasoning, answer.text
        if losses(answer):
            continue
        whole += 1
        assert found.calls == tuple((called, plain(arguments)) for called, arguments in answer.calls), answer.text
        assert found.content.strip() == answer.content, answer.text
        assert found.finish == "tool_calls"
    assert whole >= 160


@pytest.mark.parametrize("reason", LOSSES)
def test_a_format_cannot_carry(reason: str) -> None:
    """Each reason is real: in each of its formats it changes the arguments of an answer, but it causes no error."""
    formats, _ = LOSSES[reason]
    changed = set()
    for name, row in FAMILIES.items():
        for answer in answers(name) if row.parser in formats else ():
            if losses(answer) == {reason}:
                found = read(answer)
                if found.calls != tuple((called, plain(arguments)) for called, arguments in answer.calls):
                    changed.add(row.parser)
    assert changed == set(formats)


def test_the_recipient_may_follow_the_channel() -> None:
    """The models of OpenAI write the recipient there; the published template writes it before the channel."""
    for answer in answers("gpt-oss"):
        (name, _), *_ = answer.calls
        header, other = f" to=functions.{name}<|channel|>commentary json", f"<|channel|>commentary to=functions.{name} "
        assert header in answer.text
        assert read(answer, [answer.text.replace(header, f"{other}<|constrain|>json")]) == read(answer)


TOOL = function("f", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
CALLS = (("f", '{"a": 1}'),)


def short(name: str) -> Answer:
    """An answer that is only the call ``CALLS``."""
    return Writer(name).written([TOOL], [("f", {"a": 1})], "")


# ---------------------------------------------------------------- in pieces


@every_family
def test_pieces_of_an_answer_are_read_as_the_whole(name: str) -> None:
    """All slicings of four answers, and some of the others. ``fuzz-tool-formats --slices`` tries all of all."""
    rng = random.Random(name)
    for number, answer in enumerate(answers(name)):
        whole = read(answer)
        for pieces in slicings(answer.text, rng, all_single=number < 4, multiple=50 if number < 4 else 1):
            assert read(answer, pieces) == whole, pieces


@every_family
def test_every_pair_of_cuts_in_a_short_answer_changes_nothing(name: str) -> None:
    answer = short(name)
    options, text = options_of(answer, thinks=False), answer.said
    whole = heard(events_of(options, [text]))
    assert whole.calls == CALLS
    for places in combinations(range(1, len(text)), 2):
        assert heard(events_of(options, sliced(text, places))) == whole, places


# ---------------------------------------------------------------- broken

ONLY_AT_THE_BEGINNING = ("json", "llama3_json")
"""Formats without a marker: calls behind other text are text."""
VERBATIM = (*UNTYPED, "deepseek_v32", "deepseek_v4")
"""Formats in which a string is not quoted, so that one without an end takes the next call into itself."""
HEADER = re.compile(r"\A[^<]+(?=<\|channel)|<\|(?:start|channel)\|>[^<]*(?=<)|<\|(?:message|end|call)\|>")
"""What ``harmony`` drops of messages that are no calls."""


def is_complete(text: str, events: Iterable[Event], dropped: re.Pattern[str] | None = None) -> bool:
    """Whether content and reasoning are all of the text, except for places of calls and for what may be dropped."""
    runs, called = [""], False
    for event in events:
        if isinstance(event, Delta):
            called = called or "tool_calls" in event.fields
            if said := event.text or event.fields.get("reasoning", ""):
                runs += [""] * called
                runs[-1] += said
                called = False
    if dropped is None or called or len(runs) > 1:
        return re.fullmatch("(?s:.+?)".join(map(re.escape, runs)) + "(?s:.+)" * called, text) is not None
    parts = enumerate(re.split(f"({dropped.pattern})", text))
    pattern = "".join(f"({re.escape(part)}){'?' * (at % 2)}" for at, part in parts)
    return re.fullmatch(pattern, runs[0]) is not None


@every_family
def test_a_broken_answer_loses_no_text_and_no_later_call(name: str) -> None:
    row, rng, later, taken = FAMILIES[name], random.Random(name), short(name).said, 0
    if row.parser == "harmony":
        later = f"{row.end}<|start|>assistant{later}"
    for answer in answers(name):
        text = broken(answer.said, rng)
        options = options_of(replace(answer, tools=(*answer.tools, TOOL)), thinks=False)
        events = events_of(options, [text])
        assert is_complete(text, events, HEADER if row.parser == "harmony" else None), text
        pieces = sliced(text, sorted(rng.sample(range(len(text) + 1), min(len(text), 6))))
        assert heard(events_of(options, pieces)) == heard(events), pieces
        if row.parser not in ONLY_AT_THE_BEGINNING:
            found = heard(events_of(options, [text + later]))
            places = [found.content, *strings([json.loads(arguments) for _, arguments in found.calls[-1:]])]
            is_taken = row.parser in VERBATIM and any(later[:20].strip() in place for place in places)
            assert found.calls[-1:] == CALLS or is_taken, text + later
            taken += found.calls[-1:] != CALLS
    assert taken <= 25  # of 200
