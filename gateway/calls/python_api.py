"""Templates, prompts, answers and token counts for programs that use the gateway as a library, without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gateway.config.library import find_template
from gateway.core.call import Call
from gateway.core.errors import as_gateway_error
from gateway.wire.requests import read_chat
from metatemplate.errors import MetaTemplateError
from metatemplate.library import ParsedAnswer, parse_after
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Segment


@dataclass(frozen=True)
class RenderedPrompt:
    """The input of a model for one conversation: a prompt string, or messages."""

    text: str
    """The prompt string. Empty for templates that produce messages."""
    messages: tuple[Mapping[str, Any], ...]
    """The messages that are sent to the engine. Empty for templates that produce a string."""
    segments: tuple[Segment, ...]
    """The parts of ``text`` in order, each with its role, its origin, and whether it is scaffold (template text)."""
    stops: tuple[str, ...]
    """The strings at which an answer ends: first the template's stops, then the stops of the request."""
    stop_token_ids: tuple[int, ...]
    notices: tuple[str, ...]
    """Every change to the conversation, such as the replacement of a role that the template does not have."""


class PromptTemplate:
    """A prompt template, made by ``load_template``. Several threads may use the same object."""

    def __init__(self, template: Template) -> None:
        self._template = template

    @property
    def spec(self) -> TemplateSpec:
        """The content of the template's file."""
        return self._template.spec

    def render(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> RenderedPrompt:
        """Render a conversation. ``fields``: other fields of a chat request (``tools``, ``stop`` …).

        Raises ``GatewayError`` if the server would refuse the same request, such as for an unknown role.
        """
        call, dialogue = self._read(messages, fields)
        try:
            prompt = self._template.render(dialogue)
        except MetaTemplateError as error:
            raise as_gateway_error(error) from None
        segments = prompt.segments or ()
        return RenderedPrompt(
            text="".join(segment.text for segment in segments),
            messages=prompt.messages or (),
            segments=segments,
            stops=prompt.metadata.stops_and(call.stops),
            stop_token_ids=prompt.metadata.stop_token_ids,
            notices=tuple(str(notice) for notice in prompt.metadata.notices),
        )

    def parse(
        self, text: str, messages: Sequence[Mapping[str, Any]], *, finish_reason: str = "stop", **fields: Any
    ) -> ParsedAnswer:
        """Cut and parse the text that a model wrote after ``render(messages, **fields)``.

        Only calls of the tools in ``fields`` are parsed. ``finish_reason``: the reason that the engine sent, such as
        ``length``.
        """
        call, dialogue = self._read(messages, fields)
        try:
            return parse_after(self._template, text, dialogue, call.stops, finish_reason)
        except MetaTemplateError as error:
            raise as_gateway_error(error) from None

    def _read(self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> tuple[Call, Dialogue]:
        body = {**fields, "model": self.spec.name, "messages": list(messages)}
        call = read_chat(body, request_id="library", answered=False)
        assert call.dialogue is not None
        return call, call.dialogue


def load_template(name: str | Path) -> PromptTemplate:
    """Load a template by the path of its file, or by its name in ``./meta_templates`` or in the shipped templates.

    Raises ``ConfigError`` with all problems of the file if the template is not valid.
    """
    return PromptTemplate(build(find_template(str(name))))


def count_tokens(text: str, tokenizer: str | Path, *, special: bool = False) -> int:
    """Return the number of tokens of a text. ``tokenizer``: the path of a ``tokenizer.json`` file or of its folder.

    ``special``: also count the special tokens that the tokenizer adds, such as a BOS. Raises ``ConfigError`` if the
    tokenizer cannot be read.
    """
    try:
        return len(_tokenizer(Path(tokenizer)).tokenize(text, special))
    except MetaTemplateError as error:
        raise as_gateway_error(error) from None


_tokenizer = lru_cache(maxsize=8)(Tokenizer)
