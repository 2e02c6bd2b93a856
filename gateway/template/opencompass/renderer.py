"""How would OpenCompass itself render this dialogue? (``kind: meta``, ``turns: opencompass``)

The dialogue becomes the PromptList a dataset would give: leading system messages as
the ``begin`` section with HUMAN to fall back on, the rest as one round, and the LM
parser of ``lm_parser.py`` renders it, byte for byte as the reference does. That
includes empty turns between neighbours of one role, and losing what stands after the
generate point; the latter is told in a notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import InvalidValue
from gateway.core.prompt import Notice, Pieces, Prompt, Segment
from gateway.template.messages import FALLBACKS, SYSTEM, Speakers, check_dialogue, content_of, role_names, unread_fields
from gateway.template.meta.renderer import fallback_notice, origin_of
from gateway.template.opencompass.lm_parser import LMParser, Piece
from gateway.template.spec.template import RoleSpec, TemplateSpec
from gateway.template.stops import manner_of


class OpenCompassTemplate:
    """Renders dialogues into segments with the reference's own walk."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._speakers = Speakers(spec)
        self._names = role_names(spec)
        self._parser = LMParser(as_meta_template(spec))
        self._manner = manner_of(spec)

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``."""
        check_dialogue(dialogue)
        texts = [content_of(message, i, self.spec.media) for i, message in enumerate(dialogue.messages)]
        items, numbers = as_prompt_list(dialogue.messages, texts, self._names, self._speakers)
        pieces = self._parser.pieces(items)
        segments = [as_segment(piece, numbers) for piece in pieces]
        if dialogue.continue_final:
            segments = self._continued(segments, texts[-1], len(texts) - 1)
        said = tuple([segment.text for segment in segments])
        marks = tuple([(segment.role, segment.origin, segment.scaffold) for segment in segments])
        manner = replace(self._manner, notices=self._notices(dialogue, segments, texts))
        return Prompt("".join(said), manner, Pieces(said, marks))

    def _continued(self, segments: list[Segment], text: str, number: int) -> list[Segment]:
        """The generating role's begin, now the beginning of the last message, and what it has said so far."""
        role = self._speakers["assistant"].role
        if role != self.spec.generating:
            raise InvalidValue(
                "in this template another role than the assistant's generates; a message cannot be continued",
                param="continue_final_message",
            )
        origin = origin_of(number)
        opened = Segment(segments[-1].text, role.role, origin, True)
        return [*segments[:-1], opened, Segment(text, role.role, origin, False)]

    def _notices(self, dialogue: Dialogue, segments: Sequence[Segment], texts: Sequence[str]) -> tuple[Notice, ...]:
        notices: list[Notice] = []
        spoken = {segment.origin for segment in segments}
        for number, message in enumerate(dialogue.messages):
            speaker = self._speakers[message.role]
            if speaker.fallback_for:
                notices.append(fallback_notice(speaker.fallback_for, speaker.role, number))
            if texts[number] and origin_of(number) not in spoken:
                notices.append(Notice("dropped_turn", f"messages[{number}]: after the generate point"))
            notices.extend(unread_fields(message, number))
        return tuple(notices)


def as_prompt_list(
    messages: Sequence[Message], contents: Sequence[Any], names: Mapping[str, str], speakers: Speakers
) -> tuple[list[Any], list[int]]:
    """The dialogue as a dataset would write it, and for each item the message it came from (-1: none).

    Raises RoleNotSupported.
    """
    items: list[Any] = []
    numbers: list[int] = []
    leading = True
    for number, (message, content) in enumerate(zip(messages, contents, strict=True)):
        if message.role not in speakers:
            raise speakers.refuse(message.role, number)
        name = names[message.role]
        if leading and name != SYSTEM:
            leading = False
            _switch(items, numbers, number > 0)
        if not items:
            items.append({"section": "begin", "pos": "begin"})
            numbers.append(-1)
        turn = {"role": name, "prompt": content}
        if name in FALLBACKS:
            turn["fallback_role"] = FALLBACKS[name]
        items.append(turn)
        numbers.append(number)
    if leading:
        _switch(items, numbers, bool(items))
    items.append({"section": "round", "pos": "end"})
    return items, [*numbers, -1]


def _switch(items: list[Any], numbers: list[int], opened: bool) -> None:
    """From the begin section, if there is one, to the round."""
    markers = [{"section": "begin", "pos": "end"}] if opened else []
    markers.append({"section": "round", "pos": "begin"})
    items += markers
    numbers += [-1] * len(markers)


def as_meta_template(spec: TemplateSpec) -> dict[str, Any]:
    """The spec as the plain dict that the parsers take."""
    return {
        "begin": spec.begin,
        "end": spec.end,
        "round": [entry if isinstance(entry, str) else _as_role(entry) for entry in spec.round],
        "reserved_roles": [_as_role(entry) for entry in spec.reserved_roles],
    }


def _as_role(role: RoleSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": role.role, "begin": role.begin, "end": role.end, "generate": role.generate}
    if role.prompt is not None:
        entry["prompt"] = role.prompt
    if role.api_role is not None:
        entry["api_role"] = role.api_role
    return entry


def as_segment(piece: Piece, numbers: Sequence[int]) -> Segment:
    """A piece with its origin; ``numbers`` as ``as_prompt_list`` gave them."""
    number = -1 if piece.item is None else numbers[piece.item]
    if piece.kind == "generate":
        return Segment(piece.text, piece.role, "generate", True)
    content = piece.kind == "prompt" and number >= 0
    return Segment(piece.text, piece.role, origin_of(number) if number >= 0 else "template", not content)
