"""Templates of ``kind: meta`` with ``turns: natural`` that make a string.

The prompt is the meta ``begin``, every turn as begin + content + end, and the begin of the generating role. A complete
conversation (``RenderOptions.whole``) ends with the meta ``end`` instead of the begin of the generating role.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from metatemplate.meta.turn_order import NaturalOrder
from metatemplate.templates.chat.messages import (
    check_dialogue,
    check_generates,
    content_of,
    has_fields,
    origin_of,
    unread_fields,
)
from metatemplate.templates.layout import MAX_LAYOUT_MESSAGES, MAX_LAYOUTS, PromptLayout, Roles
from metatemplate.templates.roles import RoleMap, RoleMapping
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.templates.stops import prompt_metadata
from metatemplate.values import fast_paths
from metatemplate.values.dialogue import DEFAULT_OPTIONS, EMPTY_MAPPING, Dialogue, Message, PlainMessages
from metatemplate.values.prompt import Notice, Pieces, Prompt, SegmentLabel
from metatemplate.values.words import in_ascii

TEMPLATE_LABEL: SegmentLabel = ("", "template", True)


class MetaTemplate:
    """Renders dialogues into segments. The messages keep their order."""

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self.generating = spec.generating
        self.roles = RoleMap(spec)
        self.order = NaturalOrder(spec, self.roles)
        self.metadata = prompt_metadata(spec, lambda dialogue: self._render_general(dialogue).segments or ())
        self._layouts = lru_cache(maxsize=MAX_LAYOUTS)(self._lay_out)

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt for this dialogue. See ``base.Template``."""
        return (self._fast_render(dialogue) if fast_paths.ENABLED else None) or self._render_general(dialogue)

    def _fast_render(self, dialogue: Dialogue) -> Prompt | None:
        """Return the prompt from a stored layout; None if the dialogue has options, too many messages or media."""
        messages = dialogue.messages
        if dialogue.options is not DEFAULT_OPTIONS or type(messages) is not PlainMessages:
            return None
        if len(messages.roles) > MAX_LAYOUT_MESSAGES:
            return None
        layout = self._layouts(messages.roles)
        return Prompt(layout.fill(messages.texts), layout.metadata, dialogue)

    def _render_general(self, dialogue: Dialogue) -> Prompt:
        check_dialogue(dialogue)
        check_generates(self.generating, whole=dialogue.options.whole)
        return Rendering(self, dialogue).prompt()

    def _lay_out(self, roles: Roles) -> PromptLayout:
        """Make the layout by rendering empty messages with these roles. Raises UnknownRole."""
        messages = PlainMessages(roles, [""] * len(roles), [EMPTY_MAPPING] * len(roles))
        empty = self._render_general(Dialogue(messages))
        words = [""]
        for segment in empty.segments or ():
            if segment.scaffold:
                words[-1] += segment.text
            else:
                words.append("")
        return PromptLayout(words, empty.metadata)


class Rendering:
    """Collects the labelled pieces and the notices of one prompt."""

    def __init__(self, template: MetaTemplate, dialogue: Dialogue) -> None:
        self.template = template
        self.dialogue = dialogue
        self.generating = template.generating
        self.open_number = len(dialogue.messages) - 1 if dialogue.options.continue_final else -1
        """The index of the message that the model continues; -1 if the model writes a new message."""
        self.opened = ""
        """The text at the end of the prompt that is part of the answer. See ``PromptMetadata.opened``."""
        self._texts: list[str] = []
        self._labels: list[SegmentLabel] = []
        self._notices: dict[Notice, None] = {}

    def prompt(self) -> Prompt:
        """Make the whole prompt. This method may be called only once."""
        if self.template.spec.begin:
            self.add(self.template.spec.begin, TEMPLATE_LABEL)
        self.before_turns()
        for mapping, entry, number in self.template.order.turns(self.dialogue):
            if mapping is None:
                self._own_entry(entry)
            else:
                self.turn(mapping, number)
        options = self.dialogue.options
        if options.whole:
            if self.template.spec.end:
                self.add(self.template.spec.end, TEMPLATE_LABEL)
        elif not options.continue_final and self.generating is not None:
            self.add(self.generating.begin, (self.generating.role, "generate", True))
        self.after_turns()
        metadata = self.template.metadata
        if self._notices or self.opened:
            metadata = replace(metadata, notices=tuple(self._notices), opened=self.opened)
        return Prompt("".join(self._texts), metadata, Pieces(tuple(self._texts), tuple(self._labels)))

    def before_turns(self) -> None:
        """Write the text between the meta ``begin`` and the first turn."""

    def after_turns(self) -> None:
        """Write the text after the begin of the generating role."""

    def turn(self, mapping: RoleMapping, number: int) -> None:
        """Write the turn of ``messages[number]``."""
        role = mapping.role
        self.write_turn(mapping, number, role.begin, "" if number == self.open_number else role.end)

    def write_turn(self, mapping: RoleMapping, number: int, begin: str, end: str) -> None:
        """Write the content of ``messages[number]`` between ``begin`` and ``end``."""
        message, role, origin = self.dialogue.messages[number], mapping.role.role, origin_of(number)
        if begin:
            self.add(begin, (role, origin, True))
        self.content(message, number, (role, origin, False))
        if end:
            self.add(end, (role, origin, True))
        if mapping.fallback_for:
            self._notices[fallback_notice(mapping, number)] = None
        if has_fields(message):
            self._notices.update(dict.fromkeys(unread_fields(message, number)))

    def content(self, message: Message, number: int, label: SegmentLabel) -> None:
        """Write the content of ``messages[number]`` with the given label."""
        self.add(content_of(message, number, self.template.spec.media), label)

    def add(self, text: str, label: SegmentLabel) -> None:
        """Add a piece with a label."""
        self._texts.append(text)
        self._labels.append(label)

    def _own_entry(self, entry: RoleSpec | str) -> None:
        """Write an entry of the round for which there is no message."""
        if isinstance(entry, str):
            self.add(entry, TEMPLATE_LABEL)
            return
        for text in (entry.begin, entry.prompt, entry.end):
            if text:
                self.add(text, (entry.role, "template", True))
        self._notices[Notice("default_prompt", in_ascii(entry.role))] = None


def fallback_notice(mapping: RoleMapping, number: int) -> Notice:
    """Return the notice that ``messages[number]`` is written with a fallback role."""
    return Notice(
        "fallback_role", f"messages[{number}]: {mapping.fallback_for} written as {in_ascii(mapping.role.role)}"
    )
