"""Templates of ``kind: base``: the messages joined by line breaks, for base models (``docs/spec/opencompass.md`` 4.7).

OpenCompass writes this prompt for a model without a meta template. The roles are not in the prompt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Notice, Pieces, Prompt, Segment, SegmentLabel
from gateway.template.dataset.prompt_list import is_marker
from gateway.template.messages import check_dialogue, content_of, has_fields, origin_of, unread_fields
from gateway.template.opencompass.parsers import Mode
from gateway.template.opencompass.prompt_lists import origin_of_item, with_texts
from gateway.template.spec import TemplateSpec
from gateway.template.stops import prompt_metadata


class JoinedTemplate:
    """Joins the texts of the messages."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._metadata = prompt_metadata(spec)

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``."""
        segments = joined_segments(self.spec, dialogue)
        texts = tuple([segment.text for segment in segments])
        labels = tuple([(segment.role, segment.origin, segment.scaffold) for segment in segments])
        metadata, notices = self._metadata, _notices(dialogue)
        if notices:
            metadata = replace(metadata, notices=notices)
        return Prompt("".join(texts), metadata, Pieces(texts, labels))

    def write(self, items: str | list[Any], mode: Mode = "gen") -> Prompt:
        """The prompt of a prompt list, or of a text. The answer's turn is in the prompt too, without its value."""
        listed = [items] if isinstance(items, str) else with_texts(items, self.spec.media)
        texts, labels = list[str](), list[SegmentLabel]()
        for position, item in enumerate(listed):
            text = "" if is_marker(item) else item if isinstance(item, str) else item.get("prompt", "")
            if not text:
                continue
            if not all(is_marker(earlier) for earlier in listed[:position]):
                texts.append("\n")
                labels.append(("", "template", True))
            texts.append(text)
            labels.append(("", origin_of_item(listed, position), False))
        return Prompt("".join(texts), self._metadata, Pieces(tuple(texts), tuple(labels)))


def joined_segments(spec: TemplateSpec, dialogue: Dialogue) -> tuple[Segment, ...]:
    """The text of each message, with a line break before each except the first. An empty text adds nothing.

    As in OpenCompass, an empty first message leaves the line break before the second message.
    """
    check_dialogue(dialogue)
    segments: list[Segment] = []
    for number, message in enumerate(dialogue.messages):
        if text := content_of(message, number, spec.media):
            segments += [Segment("\n", "", "template", True)] if number else []
            segments.append(Segment(text, message.role, origin_of(number), False))
    return tuple(segments)


def _notices(dialogue: Dialogue) -> tuple[Notice, ...]:
    messages = enumerate(dialogue.messages)
    return tuple([notice for number, message in messages if has_fields(message)
                  for notice in unread_fields(message, number)])  # fmt: skip
