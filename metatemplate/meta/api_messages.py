"""Templates of ``kind: meta`` whose roles have ``api_role``. These templates make OpenAI messages.

``docs/spec/opencompass.md`` 5 has the rules. Each turn becomes a message with the ``api_role`` of the template role,
and with begin and end around the content. Adjacent turns of one role become one message, joined by a line break. With
``turns: natural`` the messages keep their order. ``turns: opencompass`` also adds the empty messages of the API parser.

The meta ``begin`` becomes a system message at the start. (OpenCompass makes a bare string, which cannot be sent.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from metatemplate.errors import InvalidInput
from metatemplate.meta.renderer import fallback_notice
from metatemplate.meta.turn_order import NaturalOrder
from metatemplate.opencompass.parsers import APIParser, ParserMode
from metatemplate.opencompass.prompt_lists import dropped_items, origin_of_item, role_errors
from metatemplate.opencompass.renderer import meta_template, prompt_list
from metatemplate.templates.chat.messages import check_generates, check_open_turn
from metatemplate.templates.chat.passthrough import as_sent
from metatemplate.templates.roles import API_ROLES, FALLBACK_FIELD, RoleMap, mapping_of, role_names
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.templates.stops import prompt_metadata
from metatemplate.values.dialogue import DATASET_PARAM, Dialogue, Message
from metatemplate.values.prompt import Notice, Prompt

CONSUMED = frozenset({"role", "content", FALLBACK_FIELD})
"""The fields of a message that decide the role and the content of the sent message. Other fields are sent unchanged."""
Content = str | list[Any]
Numbered = tuple[tuple[int, ...], dict[str, Any]]
"""(numbers of messages in the dialogue, the message that is made of these messages)."""


class ApiTemplate:
    """Renders dialogues into OpenAI messages, which may have media and tool calls."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._roles = RoleMap(spec)
        self._names = role_names(spec)
        self._order = NaturalOrder(spec, self._roles)
        self._parser = APIParser(meta_template(spec))
        self._begin: list[Numbered] = [((), {"role": "system", "content": spec.begin})] if spec.begin else []
        self._metadata = prompt_metadata(spec)

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``."""
        check_open_turn(dialogue)
        check_generates(self.spec.generating, whole=dialogue.options.whole)
        turns = self._parsed(dialogue) if self.spec.turns == "opencompass" else self._natural(dialogue)
        merged = _merged(turns)
        if not merged:
            raise InvalidInput("no message comes before the model's answer; add a user message", param="messages")
        metadata = replace(self._metadata, notices=tuple(self._notices(dialogue, merged)))
        return Prompt("", metadata, tuple(message for _, message in [*self._begin, *merged]))

    def write(self, items: str | list[Any], mode: ParserMode = "gen") -> Prompt:
        """Return the messages for a prompt list (``prompt_lists.py``). A text becomes one user message."""
        if isinstance(items, str):
            return Prompt("", self._metadata, ({"role": "user", "content": items},))
        check_generates(self.spec.generating, whole=mode == "ppl", param=DATASET_PARAM)
        for position, item in enumerate(items):
            if isinstance(item, str) and item.strip():
                raise InvalidInput(
                    f"{origin_of_item(items, position)} of the dataset prompt is a text without a role, which "
                    "cannot be sent as a message; give the text a role",
                    param=DATASET_PARAM,
                )
        with role_errors(items, self.spec.name):
            turns = [
                (positions, {"role": API_ROLES[message["role"]], "content": message["prompt"]})
                for positions, message in self._parser.messages(items, mode)
            ]
        merged = _merged(turns)
        if not merged:
            raise InvalidInput(
                "the dataset prompt has no turn before the model's turn; add a turn", param=DATASET_PARAM
            )
        sent = {position for positions, _ in turns for position in positions}
        metadata = replace(self._metadata, notices=dropped_items(items, sent))
        return Prompt("", metadata, tuple(message for _, message in [*self._begin, *merged]))

    def _natural(self, dialogue: Dialogue) -> Iterator[Numbered]:
        for mapping, entry, number in self._order.turns(dialogue):
            assert isinstance(entry, RoleSpec)  # the validation refuses bare strings in an API template
            if mapping is None:
                yield (), _api_message(entry, entry.prompt or "", {}, entry.end)
                continue
            message = dialogue.messages[number]
            is_open = dialogue.options.continue_final and number == len(dialogue.messages) - 1
            further = {key: value for key, value in as_sent(message).items() if key not in CONSUMED}
            yield (number,), _api_message(entry, _content(message), further, "" if is_open else entry.end)

    def _parsed(self, dialogue: Dialogue) -> Iterator[Numbered]:
        contents = [_content(message) for message in dialogue.messages]
        texts = [content if isinstance(content, str) else "" for content in contents]
        items, numbers = prompt_list(dialogue.messages, texts, self._names, self._roles)
        for positions, message in self._parser.messages(items, "ppl" if dialogue.options.whole else "gen"):
            sources = tuple(numbers[position] for position in positions)
            has_parts = sources and not isinstance(contents[sources[0]], str)
            content = contents[sources[0]] if has_parts else message["prompt"]
            yield sources, {"role": API_ROLES[message["role"]], "content": content}

    def _notices(self, dialogue: Dialogue, merged: Iterable[Numbered]) -> Iterator[Notice]:
        sent: set[int] = set()
        for numbers, _ in merged:
            sent.update(numbers)
            if len(numbers) > 1:
                yield Notice("merged_turns", f"messages[{numbers[0]}] to messages[{numbers[-1]}]")
        for number, message in enumerate(dialogue.messages):
            mapping = mapping_of(self._roles, message, number)
            if number not in sent:
                yield Notice(
                    "dropped_turn", f"messages[{number}]: the role is not in the round, or comes after the answer"
                )
            elif mapping.fallback_for:
                yield fallback_notice(mapping, number)


def _content(message: Message) -> Content:
    """Return the content as a text, or as the list of parts if a part is not text."""
    if all(part.kind == "text" for part in message.parts):
        return message.text
    return list(message.raw["content"])


def _api_message(role: RoleSpec, content: Content, further: Mapping[str, Any], end: str) -> dict[str, Any]:
    if isinstance(content, str):
        content = f"{role.begin}{content}{end}"
    else:
        content = [*_text_parts(role.begin), *content, *_text_parts(end)]
    return {"role": API_ROLES[role.api_role or ""], "content": content, **further}


def _merged(turns: Iterable[Numbered]) -> list[Numbered]:
    """Join adjacent messages of one role into one message, except messages with fields other than role and content."""
    groups: list[list[Numbered]] = []
    for turn in turns:
        last = groups[-1][-1][1] if groups else {}
        if last.get("role") == turn[1]["role"] and len(last) == len(turn[1]) == 2:
            groups[-1].append(turn)
        else:
            groups.append([turn])
    return [group[0] if len(group) == 1 else _as_one(group) for group in groups]


def _as_one(group: list[Numbered]) -> Numbered:
    """Join messages into one. Texts are joined by line breaks. If there are media, the result is one list of parts."""
    contents: list[Content] = [message["content"] for _, message in group]
    texts = [content for content in contents if isinstance(content, str)]
    joined: Content = "\n".join(texts)
    if len(texts) < len(contents):
        joined = [part for content in contents for part in _text_parts(content)]
    return tuple([number for numbers, _ in group for number in numbers]), {**group[0][1], "content": joined}


def _text_parts(content: Content) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []
