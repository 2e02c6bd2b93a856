"""The complete conversation as one text: every turn closed, the meta ``end`` written, as perplexity is scored on it."""

from __future__ import annotations

from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue
from gateway.core.prompt import Segment
from gateway.template.messages import check_dialogue, content_of, origin_of
from gateway.template.opencompass.renderer import OpenCompassTemplate
from gateway.template.spec import TemplateSpec


def full_segments(spec: TemplateSpec, dialogue: Dialogue) -> tuple[Segment, ...]:
    """The segments of the complete conversation (``ppl`` mode, ``docs/spec/opencompass.md`` 4.6).

    A template without roles joins the messages with line breaks (4.7).
    Raises InvalidValue for templates that make messages, and for tools; else what ``Template.render`` raises.
    """
    if spec.kind != "meta" or spec.api:
        raise InvalidValue(
            "the complete conversation can only be rendered with a meta template that makes a string", param="messages"
        )
    if spec.tools is not None and dialogue.options.tools:
        raise InvalidValue("a complete conversation is rendered without tools; leave tools out", param="tools")
    if spec.round or spec.reserved_roles:
        return tuple(OpenCompassTemplate(spec).full_segments(dialogue))
    check_dialogue(dialogue)
    segments: list[Segment] = []
    for number, message in enumerate(dialogue.messages):
        if text := content_of(message, number, spec.media):
            segments += [Segment("\n", "", "template", True)] if number else []
            segments.append(Segment(text, "", origin_of(number), False))
    return tuple(segments)
