"""Templates of ``kind: base``: the messages joined by line breaks, for base models (``docs/spec/opencompass.md`` 4.7).

OpenCompass writes this prompt for a model without a meta template. The roles are not in the prompt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metatemplate.datasets.prompt_list import is_marker
from metatemplate.opencompass.parsers import ParserMode
from metatemplate.opencompass.prompt_lists import origin_of_item, with_texts
from metatemplate.templates.chat.messages import check_dialogue, content_of, has_fields, origin_of, unread_fields
from metatemplate.templates.spec import TemplateSpec
from metatemplate.templates.stops import prompt_metadata
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Notice, Prompt, Segment

LINE_BREAK = Segment("\n", "", "template", True)


class JoinedTemplate:
    """Joins the texts of the messages."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self._metadata = prompt_metadata(spec)

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``.

        Empty messages are left out. The first message has no line break before its text. As in OpenCompass, the second
        message has a line break even if the first message is empty.
        """
        check_dialogue(dialogue)
        segments, notices = list[Segment](), list[Notice]()
        for number, message in enumerate(dialogue.messages):
            if text := content_of(message, number, self.spec.media):
                segments += [LINE_BREAK] if number else []
                segments.append(Segment(text, message.role, origin_of(number), False))
            if has_fields(message):
                notices += unread_fields(message, number)
        return Prompt.of(segments, replace(self._metadata, notices=tuple(notices)) if notices else self._metadata)

    def write(self, items: str | list[Any], mode: ParserMode = "gen") -> Prompt:
        """Return the prompt for a prompt list or for a text. The answer's turn is included. ``mode`` is ignored."""
        listed = [items] if isinstance(items, str) else with_texts(items, self.spec.media)
        segments = list[Segment]()
        for position, item in enumerate(listed):
            text = "" if is_marker(item) else item if isinstance(item, str) else item.get("prompt", "")
            if not text:
                continue
            if not all(is_marker(earlier) for earlier in listed[:position]):
                segments.append(LINE_BREAK)
            segments.append(Segment(text, "", origin_of_item(listed, position), False))
        return Prompt.of(segments, self._metadata)
