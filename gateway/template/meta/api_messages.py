"""How does a dialogue become messages for an API model? (``kind: meta`` with ``api_role``)

The rules of the API parser (``specs/opencompass.md`` 5): each turn is spoken by its
``api_role``, begin and end around it; neighbours of one role become one message,
joined by a line break. ``turns: natural`` keeps message order and invents nothing;
``turns: opencompass`` lets the parser itself walk, empty turns included.

Meta ``begin``, which the reference hands on as a bare string that no wrapper can
send, is a system message of its own in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING, Dialogue, Message
from gateway.core.errors import InvalidValue
from gateway.core.prompt import Notice, Prompt, PromptMetadata
from gateway.template.messages import Speakers, check_open_turn, role_names
from gateway.template.meta.renderer import fallback_notice
from gateway.template.meta.turn_order import NaturalOrder
from gateway.template.opencompass.api_parser import APIParser
from gateway.template.opencompass.renderer import as_meta_template, as_prompt_list
from gateway.template.opencompass.wrappers import AIS_WIRE_ROLES
from gateway.template.passthrough import as_sent
from gateway.template.spec.template import RoleSpec, TemplateSpec
from gateway.template.stops import stop_strings, stop_token_ids

API_ROLES = AIS_WIRE_ROLES
"""``api_role`` → OpenAI role."""

BASIC = frozenset({"role", "content"})
"""What every message has."""

Content = str | list[Any]
Said = tuple[tuple[int, ...], dict[str, Any]]
"""The numbers of the messages that went in, and what comes out."""


class ApiTemplate:
    """Renders dialogues into OpenAI messages."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._speakers = Speakers(spec)
        self._names = role_names(spec)
        self._order = NaturalOrder(spec, self._speakers)
        self._parser = APIParser({**as_meta_template(spec), "begin": ""})
        self._opening: tuple[Said, ...] = (((), {"role": "system", "content": spec.begin}),) if spec.begin else ()
        self._manner = PromptMetadata(stop_strings(spec), stop_token_ids(spec))

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``; media and tool calls pass, because messages can carry them."""
        check_open_turn(dialogue)
        said = list(self._parsed(dialogue) if self.spec.turns == "opencompass" else self._natural(dialogue))
        merged = [*self._opening, *_merged(said)]
        if len(merged) == len(self._opening):
            raise InvalidValue("no message to send: nothing is said before the model's turn", param="messages")
        manner = replace(self._manner, notices=tuple(self._notices(dialogue, merged)))
        return Prompt("", manner, tuple(message for _, message in merged))

    def _natural(self, dialogue: Dialogue) -> Iterator[Said]:
        for speaker, entry, number in self._order.turns(dialogue):
            if isinstance(entry, str):
                continue  # the checks refuse bare strings in an API template
            if speaker is None:
                yield (), _spoken(entry, entry.prompt or "", {})
                continue
            message = dialogue.messages[number]
            open_turn = dialogue.continue_final and number == len(dialogue.messages) - 1
            yield (number,), _spoken(entry, _content(message), _further(message), end=not open_turn)

    def _parsed(self, dialogue: Dialogue) -> Iterator[Said]:
        contents = [_content(message) for message in dialogue.messages]
        texts = [content if isinstance(content, str) else "" for content in contents]
        items, numbers = as_prompt_list(dialogue.messages, texts, self._names, self._speakers)
        for sources, message in self._parser.messages(items):
            told = tuple(numbers[source] for source in sources)
            role = API_ROLES[message["role"]]
            if told and not isinstance(contents[told[0]], str):
                yield told, {"role": role, "content": contents[told[0]]}
            else:
                yield told, {"role": role, "content": message["prompt"]}

    def _notices(self, dialogue: Dialogue, merged: Iterable[Said]) -> Iterator[Notice]:
        sent: set[int] = set()
        for numbers, _ in merged:
            sent.update(numbers)
            if len(numbers) > 1:
                yield Notice("merged_turns", f"messages[{numbers[0]}] to messages[{numbers[-1]}]")
        for number, message in enumerate(dialogue.messages):
            speaker = self._speakers[message.role]
            if number not in sent:
                yield Notice("dropped_turn", f"messages[{number}]: not in the round, or after the generate point")
            elif speaker.fallback_for:
                yield fallback_notice(speaker.fallback_for, speaker.role, number)


def _content(message: Message) -> Content:
    """Text as text; a content with media keeps its parts."""
    if not message.parts or all(part.kind == "text" for part in message.parts):
        return message.text
    return list(message.raw["content"])


def _further(message: Message) -> Mapping[str, Any]:
    """Everything else the message carries: ``name``, ``tool_calls``, ``tool_call_id`` …"""
    if len(message.raw) <= 2 and message.raw.keys() <= BASIC:
        return EMPTY_MAPPING
    return {key: value for key, value in as_sent(message).items() if key not in ("role", "content")}


def _spoken(role: RoleSpec, content: Content, further: Mapping[str, Any], *, end: bool = True) -> dict[str, Any]:
    closing = role.end if end else ""
    if isinstance(content, str):
        content = f"{role.begin}{content}{closing}"
    else:
        content = [*_parts(role.begin), *content, *_parts(closing)]
    message: dict[str, Any] = {"role": API_ROLES[role.api_role or ""], "content": content}
    if further:
        message.update(further)
    return message


def _merged(said: Iterable[Said]) -> list[Said]:
    """Neighbours of one role as one message; one with further fields stays alone, so that they keep their meaning."""
    merged: list[tuple[list[int], list[Content], dict[str, Any]]] = []
    for numbers, message in said:
        last = merged[-1][2] if merged else {}
        if last.get("role") == message["role"] and len(last) == len(message) == 2:
            merged[-1][0].extend(numbers)
            merged[-1][1].append(message["content"])
        else:
            merged.append(([*numbers], [message["content"]], message))
    for _, contents, message in merged:
        if len(contents) > 1:
            message["content"] = _joined(contents)
    return [(tuple(numbers), message) for numbers, _, message in merged]


def _joined(contents: list[Content]) -> Content:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n".join(texts)
    return [part for content in contents for part in (_parts(content) if isinstance(content, str) else content)]


def _parts(text: str) -> list[Any]:
    return [{"type": "text", "text": text}] if text else []
