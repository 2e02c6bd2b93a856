"""What is the complete conversation? Every turn closed and meta ``end`` written, as perplexity is scored on it.

The LM parser's ``ppl`` mode (``specs/opencompass.md`` 4.6) on the dialogue a request would bring.
"""

from __future__ import annotations

from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue
from gateway.core.prompt import Segment
from gateway.template.messages import Speakers, check_dialogue, content_of, role_names
from gateway.template.meta.renderer import origin_of
from gateway.template.opencompass.lm_parser import LMParser
from gateway.template.opencompass.renderer import as_meta_template, as_prompt_list, as_segment
from gateway.template.spec.template import TemplateSpec


def whole_segments(spec: TemplateSpec, dialogue: Dialogue) -> tuple[Segment, ...]:
    """The segments of the whole conversation; string templates only. A template without roles is no meta template."""
    if spec.kind != "meta" or spec.api:
        raise InvalidValue(
            "only a meta template that makes a string has a whole conversation to show", param="messages"
        )
    if spec.tools is not None and dialogue.tools:
        raise InvalidValue(
            "a whole conversation is shown without tools, as it is scored; leave them out", param="tools"
        )
    check_dialogue(dialogue)
    texts = [content_of(message, number, spec.media) for number, message in enumerate(dialogue.messages)]
    if not spec.round and not spec.reserved_roles:
        # No meta template: the reference joins whatever is said with line breaks, whoever says it.
        pieces = LMParser().pieces([{"prompt": text} for text in texts])
        return tuple(
            Segment(piece.text, "", "template" if piece.item is None else origin_of(piece.item), piece.item is None)
            for piece in pieces
        )
    items, numbers = as_prompt_list(dialogue.messages, texts, role_names(spec), Speakers(spec))
    return tuple(as_segment(piece, numbers) for piece in LMParser(as_meta_template(spec)).pieces(items, "ppl"))
