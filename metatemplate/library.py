"""The calls that a program makes: load a template, render a conversation, cut and parse an answer, compare prompts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metatemplate.answers.stops.stop_cutter import StopCutter
from metatemplate.errors import InvalidFile, InvalidInput, Problem
from metatemplate.files.reader import Files
from metatemplate.files.template_file import BUILT_IN, presets, read_template
from metatemplate.templates.base import Template
from metatemplate.templates.registry import SHOWN, build, first_difference, output_parsing
from metatemplate.values.dialogue import Dialogue, read_messages, render_options
from metatemplate.values.events import Delta, Event, Finish
from metatemplate.values.prompt import Prompt
from metatemplate.values.words import quoted, suggest


@dataclass(frozen=True)
class ParsedAnswer:
    """A model's answer, cut at the first stop string and parsed."""

    content: str
    reasoning: str
    """The model's reasoning. Empty for templates without ``thinking``."""
    tool_calls: tuple[Mapping[str, Any], ...]
    """The tool calls in OpenAI's form: ``{"id", "type", "function": {"name", "arguments"}}``."""
    finish_reason: str
    """``stop``, ``tool_calls``, or the reason of the engine."""


def load(name: str | Path) -> Template:
    """Load a template by the path of its YAML file, or by the name of a shipped template, such as ``sft-demo``.

    Raises ``InvalidFile`` with all problems of the file. Several threads may use the template.
    """
    if name == BUILT_IN.name:
        return build(BUILT_IN)
    is_path = isinstance(name, Path) or name.endswith((".yaml", ".yml")) or os.sep in name
    path = Path(name).absolute() if is_path else presets() / f"{name}.yaml"
    if not is_path and not path.is_file():
        hint = suggest(str(name), {one.stem for one in presets().glob("*.yaml")})
        raise InvalidFile((Problem(str(name), 0, "", f"no template {quoted(str(name))}{hint}"),))
    files = Files(path.parent)
    spec = read_template(files, path, path.stem, files.add_problem(path))
    if spec is None:
        raise InvalidFile(files.in_order())
    return build(spec)


def render(template: Template, messages: Sequence[Mapping[str, Any]], **options: Any) -> Prompt:
    """Return the exact prompt of a conversation in OpenAI's form.

    ``options``: fields of ``RenderOptions``, such as ``tools``, ``tool_choice``, ``variables`` and ``continue_final``.
    ``prompt.text`` is the string, ``prompt.segments`` its parts with their origins, and ``prompt.metadata.stops`` the
    strings at which the answer ends. ``prompt.messages`` is set in place of the text for templates of API models.
    Raises ``InputError`` if the template cannot write the conversation; ``param`` names the place.
    """
    return template.render(_dialogue(messages, options))


def cut(text: str, stops: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    return "".join([one.text for one in _cut(text, stops, "stop") if isinstance(one, Delta)])


def parse_answer(
    template: Template,
    text: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    stops: Sequence[str] = (),
    finish_reason: str = "stop",
    **options: Any,
) -> ParsedAnswer:
    """Cut and parse the text that a model wrote after ``render(template, messages, **options)``.

    ``stops``: stop strings beside those of the template. ``finish_reason``: the reason that the engine sent, such as
    ``length``. Only calls of the tools in ``options`` are parsed. Raises ``InputError`` as ``render`` does.
    """
    return parse_after(template, text, _dialogue(messages, options), tuple(stops), finish_reason)


def parse_after(
    template: Template, text: str, dialogue: Dialogue, stops: tuple[str, ...], finish_reason: str
) -> ParsedAnswer:
    """Cut and parse the text that a model wrote after a conversation. See ``parse_answer``."""
    from metatemplate.answers.output_parser import OutputParser  # a server without parsed answers does not need them

    prompt = template.render(dialogue)
    events: Sequence[Event] = _cut(text, prompt.metadata.stops_and(stops), finish_reason)
    parsing = output_parsing(template.spec)
    parser = None if parsing is None else parsing.of(dialogue, prompt, stops)
    events = events if parser is None else OutputParser(parser).flush(events)
    content, reasoning, calls = "", "", dict[int, dict[str, Any]]()
    for event in events:
        if isinstance(event, Finish):
            finish_reason = event.reason
        elif isinstance(event, Delta):
            content += event.text
            reasoning += next((value for key, value in event.fields.items() if key.startswith("reasoning")), "")
            for part in event.fields.get("tool_calls", ()):
                if "id" in part:
                    calls[part["index"]] = {key: part[key] for key in ("id", "type", "function")}
                else:
                    calls[part["index"]]["function"] = {**calls[part["index"]]["function"], **part["function"]}
    return ParsedAnswer(content, reasoning, tuple(calls.values()), finish_reason)


def diff(expected: str, found: str) -> str:
    """Return the first difference of two prompts: its position, and what follows in both. Empty if they are equal."""
    if expected == found:
        return ""
    at = first_difference(expected, found)
    return f"position {at}: expected {expected[at : at + SHOWN]!r}, found {found[at : at + SHOWN]!r}"


def _cut(text: str, stops: Sequence[str], finish_reason: str) -> Sequence[Event]:
    return StopCutter(tuple(stops)).flush([Delta(0, text), Finish(0, finish_reason)])


def _dialogue(messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Dialogue:
    for number, one in enumerate(messages):
        if not isinstance(one, Mapping) or not isinstance(one.get("role"), str):
            raise InvalidInput(f"messages[{number}] must be a mapping with a role", param=f"messages[{number}]")
        if not isinstance(one.get("content"), (str, list, tuple, type(None))):
            raise InvalidInput(
                f"messages[{number}].content must be text or a list of parts", param=f"messages[{number}]"
            )
    if not messages:
        raise InvalidInput("messages is empty", param="messages")
    if "tools" in options:
        options = {**options, "tools": tuple(options["tools"])}
    return Dialogue(read_messages(list(messages)), render_options(**options))
