"""Reads an answer with tool calls as the gateway reads it, whole or in pieces."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from metatemplate.answers.output_parser import OutputParser, ParserOptions
from metatemplate.answers.output_parsing import OutputParsing
from metatemplate.templates.spec import TemplateSpec, ToolsSpec
from metatemplate.values.answer_markers import Thinking, ToolTokens
from metatemplate.values.dialogue import Dialogue, Message, RenderOptions
from metatemplate.values.events import Delta, Event, Finish
from metatemplate.values.prompt import Prompt, PromptMetadata
from tests.metatemplate.answers.published import FAMILIES, Answer
from tests.stream.slicing import sliced


class Heard(NamedTuple):
    """An answer as a client gets it."""

    content: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    """(name, arguments as ``plain`` writes them)"""
    finish: str


def plain(value: Any) -> str:
    """A value as JSON with sorted keys: equal texts are equal values of equal types."""
    return json.dumps(value, sort_keys=True)


@cache
def _parsing(family: str, thinks: bool) -> OutputParsing:
    row = FAMILIES[family]
    tools = ToolsSpec(row.parser, ToolTokens(**row.tokens or {}))
    thinking = Thinking(**row.thinking) if row.thinking and thinks else None
    return OutputParsing(TemplateSpec(family, "jinja", tools=tools, thinking=thinking))


def options_of(answer: Answer, *, thinks: bool = True) -> ParserOptions:
    """The options for the answer to a request with its tools. ``thinks``: reasoning is separated."""
    dialogue = Dialogue((Message("user", "Question?"),), RenderOptions(tools=answer.tools))
    options = _parsing(answer.family, thinks).of(dialogue, Prompt(answer.prompt, PromptMetadata()))
    assert options is not None
    return options


def events_of(options: ParserOptions, pieces: Iterable[str]) -> list[Event]:
    """The events of an answer that arrives in these pieces, and that the model ended."""
    parser = OutputParser(options, new_id=lambda: "id")
    events = [event for piece in pieces for event in parser.process([Delta(0, piece)])]
    return [*events, *parser.flush([Finish(0, "stop")])]


def heard(events: Iterable[Event]) -> Heard:
    """The whole answer of these events."""
    content, reasoning, finish = "", "", ""
    calls: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, Finish):
            finish = str(event.reason)
        elif isinstance(event, Delta):
            content += event.text
            reasoning += event.fields.get("reasoning", "")
            for call in event.fields.get("tool_calls", ()):
                function = call["function"]
                if "name" in function:
                    calls.append((function["name"], ""))
                else:
                    calls[-1] = calls[-1][0], plain(json.loads(function["arguments"]))
    return Heard(content, reasoning, tuple(calls), finish)


def read(answer: Answer, pieces: Iterable[str] | None = None) -> Heard:
    """The answer, whole or in these pieces."""
    return heard(events_of(options_of(answer), [answer.text] if pieces is None else pieces))


def slicings(text: str, rng: random.Random, *, all_single: bool, multiple: int) -> Iterator[list[str]]:
    """One character at a time, single cuts (all, or two), and ``multiple`` slicings with two to nine cuts."""
    places = range(1, len(text))
    yield list(text)
    for at in places if all_single else rng.sample(places, min(2, len(places))):
        yield sliced(text, [at])
    for _ in range(multiple):
        yield sliced(text, sorted(rng.sample(places, min(len(places), rng.randint(2, 9)))))
