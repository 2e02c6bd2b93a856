"""Templates of ``kind: meta`` with ``turns: opencompass``. The prompt is byte for byte the prompt of OpenCompass.

The prompt also has OpenCompass's empty turns between adjacent messages of one role. If the model's answer comes before
the last messages, these messages are left out and a notice is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from metatemplate.errors import InvalidInput
from metatemplate.meta.renderer import fallback_notice
from metatemplate.opencompass.parsers import LMParser, ParsedPiece, ParserMode
from metatemplate.opencompass.prompt_lists import (
    dropped_items,
    origin_of_item,
    role_errors,
    with_texts,
)
from metatemplate.templates.chat.messages import (
    check_dialogue,
    check_generates,
    content_of,
    origin_of,
    unread_fields,
)
from metatemplate.templates.roles import FALLBACKS, SYSTEM, RoleMap, mapping_of, role_names
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.templates.stops import prompt_metadata
from metatemplate.values.dialogue import DATASET_PARAM, Dialogue, Message
from metatemplate.values.prompt import Notice, Pieces, Prompt, Segment


class OpenCompassTemplate:
    """Renders a dialogue into one text, with OpenCompass's ``LMParser``."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._roles = RoleMap(spec)
        self._names = role_names(spec)
        self._parser = LMParser(meta_template(spec))
        self._metadata = prompt_metadata(spec)

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``."""
        check_dialogue(dialogue)
        texts = [content_of(message, i, self.spec.media) for i, message in enumerate(dialogue.messages)]
        check_generates(self.spec.generating, whole=dialogue.options.whole)
        items, numbers = prompt_list(dialogue.messages, texts, self._names, self._roles)
        pieces = self._parser.pieces(items, "ppl" if dialogue.options.whole else "gen")
        segments = [_segment(piece, lambda item: origin_of(numbers[item])) for piece in pieces]
        if dialogue.options.continue_final:
            segments = self._continued(segments, texts[-1], len(texts) - 1)
        return Prompt.of(segments, replace(self._metadata, notices=self._notices(dialogue, segments, texts)))

    def write(self, items: str | list[Any], mode: ParserMode = "gen") -> Prompt:
        """Return the prompt for a prompt list (``prompt_lists.py``). A text is returned unchanged."""
        if isinstance(items, str):
            return Prompt(items, self._metadata, Pieces((items,), (("", "prompt", False),)))
        check_generates(self.spec.generating, whole=mode == "ppl", param=DATASET_PARAM)
        items = with_texts(items, self.spec.media)
        with role_errors(items, self.spec.name):
            pieces = self._parser.pieces(items, mode)
        sent = {piece.item for piece in pieces if piece.kind == "content"}
        segments = [_segment(piece, lambda item: origin_of_item(items, item)) for piece in pieces]
        return Prompt.of(segments, replace(self._metadata, notices=dropped_items(items, sent)))

    def _continued(self, segments: list[Segment], text: str, number: int) -> list[Segment]:
        """Return the segments of the prompt, with the last message after the begin of the generating role."""
        role = self._roles["assistant"].role
        if role != self.spec.generating:
            raise InvalidInput(
                "this model's template cannot continue an assistant message; leave continue_final_message out",
                param="continue_final_message",
            )
        origin = origin_of(number)
        opened = Segment(segments[-1].text, role.role, origin, True)
        return [*segments[:-1], opened, Segment(text, role.role, origin, False)]

    def _notices(self, dialogue: Dialogue, segments: Sequence[Segment], texts: Sequence[str]) -> tuple[Notice, ...]:
        notices: list[Notice] = []
        written = {segment.origin for segment in segments}
        for number, message in enumerate(dialogue.messages):
            mapping = mapping_of(self._roles, message, number)
            if mapping.fallback_for:
                notices.append(fallback_notice(mapping, number))
            if texts[number] and origin_of(number) not in written:
                notices.append(
                    Notice("dropped_turn", f"messages[{number}]: the message comes after the model's answer")
                )
            notices.extend(unread_fields(message, number))
        return tuple(notices)


def _segment(piece: ParsedPiece, origin_of_piece: Callable[[int], str]) -> Segment:
    """Return a piece as a segment. ``origin_of_piece``: the origin of a piece from its position in the prompt list."""
    origin = "generate" if piece.kind == "generate" else "template"
    origin = origin if piece.item is None else origin_of_piece(piece.item)
    return Segment(piece.text, piece.role, origin, piece.kind != "content")


def prompt_list(
    messages: Sequence[Message], texts: Sequence[str], names: Mapping[str, str], roles: RoleMap
) -> tuple[list[Any], list[int]]:
    """Return the dialogue as a prompt list, and the message number of each item (-1 for a section marker).

    System messages at the start are in the section ``begin``, and all other messages in one section ``round``. Raises
    UnknownRole if the template cannot write a message's role.
    """
    items: list[Any] = []
    numbers: list[int] = []

    def add(item: Mapping[str, Any], number: int = -1) -> None:
        items.append(item)
        numbers.append(number)

    section = ""
    for number, (message, text) in enumerate(zip(messages, texts, strict=True)):
        mapping = mapping_of(roles, message, number)
        name = names.get(message.role, message.role)
        wanted = "begin" if name == SYSTEM and section != "round" else "round"
        if wanted != section:
            if section:
                add({"section": section, "pos": "end"})
            add({"section": wanted, "pos": "begin"})
            section = wanted
        fallback = mapping.role.role if mapping.fallback_for else FALLBACKS.get(name)
        add({"role": name, "prompt": text, **({"fallback_role": fallback} if fallback else {})}, number)
    if section != "round":
        if section:
            add({"section": section, "pos": "end"})
        add({"section": "round", "pos": "begin"})
    add({"section": "round", "pos": "end"})
    return items, numbers


def meta_template(spec: TemplateSpec) -> dict[str, Any]:
    """Return the template as the dict that the parsers require."""
    return {
        "begin": spec.begin,
        "end": spec.end,
        "round": [entry if isinstance(entry, str) else _role(entry) for entry in spec.round],
        "reserved_roles": [_role(entry) for entry in spec.reserved_roles],
    }


def _role(role: RoleSpec) -> dict[str, Any]:
    return {key: value for key, value in asdict(role).items() if value is not None and key != "fallback_role"}
