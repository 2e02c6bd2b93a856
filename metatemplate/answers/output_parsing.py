"""Chooses how an answer is parsed, from the prompt template and the client's request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from metatemplate.answers.get_response import AnswerExtraction
from metatemplate.answers.output_parser import ParserOptions
from metatemplate.answers.tool_calls.format import Format
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.errors import InvalidInput
from metatemplate.prompters.assembly import answer_marker
from metatemplate.templates.spec import TemplateSpec
from metatemplate.templates.tools import choice_of, name_of
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt


class OutputParsing:
    """Makes the options of the output parser for the requests to a model with one template."""

    def __init__(self, spec: TemplateSpec) -> None:
        thinking, self._tools = spec.thinking, spec.tools
        self._default_tools = spec.prompter.default_tools if spec.prompter is not None else ()
        prompter = spec.prompter
        self._marker = answer_marker(prompter) if prompter is not None and prompter.get_response else None
        """The text after which an answer begins. None if the whole text of the model is the answer."""
        self._auto = thinking is not None and thinking.open == "auto"
        self._thinking = thinking and replace(thinking, open=thinking.open is True)
        tokens = () if spec.markers is None else spec.markers.tokens
        tokens = tokens if spec.jinja is None else (*tokens, *spec.jinja.further_special_tokens)
        self._special = thinking is not None and any(token in thinking.begin + thinking.end for token in tokens)
        """True: a marker of the reasoning contains a special token."""

    @property
    def parser(self) -> str:
        """The name of the tool-call format that the template declares. Empty if the template declares no format."""
        return "" if self._tools is None else self._tools.parser

    def of(self, dialogue: Dialogue, prompt: Prompt, stops: Sequence[str] = ()) -> ParserOptions | None:
        """Return the parser options for one request, or None if all text is content. ``stops``: the client's stops.

        Raises ``InvalidInput`` if the tool-call format does not allow the name of a tool.
        """
        if self._default_tools and not dialogue.options.tools:
            dialogue = replace(dialogue, options=replace(dialogue.options, tools=self._default_tools))
        extraction = None if self._marker is None else AnswerExtraction(prompt.text, self._marker)
        choice = choice_of(dialogue)
        thinking = self._thinking
        if thinking is not None and dialogue.options.continue_final:
            thinking = _continued(thinking, dialogue.messages[-1].text)
        elif thinking is not None and self._auto:
            thinking = replace(thinking, open=prompt.text.rstrip().endswith(thinking.begin))
        tools = {
            name_of(tool): _parameters(tool)
            for tool in dialogue.options.tools
            if choice.mode != "none" and choice.name in ("", name_of(tool))
        }
        format_ = None if self._tools is None else FORMATS[self._tools.parser](self._tools.tokens, tools)
        if format_ is None or not (tools or format_.channels):
            if not thinking and not extraction:
                return None
            return ParserOptions(thinking, keep_special=self._special, extraction=extraction)
        self._check_names(dialogue, format_, tools)
        return ParserOptions(
            thinking=thinking,
            calls=format_,
            tools=tools,
            keep_special=True,
            extraction=extraction,
            one_call=not dialogue.options.parallel_calls,
            opened=prompt.metadata.opened,
            foreign_stops=frozenset(stops) - frozenset(prompt.metadata.stops),
        )

    def _check_names(self, dialogue: Dialogue, format_: Format, names: Collection[str]) -> None:
        for number, tool in enumerate(dialogue.options.tools):
            name = name_of(tool)
            if name in names and not format_.can_name(name):
                raise InvalidInput(
                    f"tools[{number}].function.name: the tool-call format {self.parser} of this model does not allow "
                    f'the name "{name}"; use letters, digits and underscores, and no Python keyword',
                    param=f"tools[{number}].function.name",
                )


def _parameters(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the parameters of a tool; empty if the tool has none that can be used."""
    parameters = tool["function"].get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}


def _continued(thinking: Thinking, text: str) -> Thinking | None:
    """Return the reasoning markers for a message that the model continues. ``text``: the message so far.

    None if the rest of the message contains no reasoning.
    """
    stripped = text.lstrip()
    if thinking.open or stripped.startswith(thinking.begin):
        return None if thinking.end in text else replace(thinking, open=True)
    return None if stripped else thinking
