"""Content parts from tagged text: AISBench's multimodal templates (``docs/spec/opencompass.md`` 9).

The sample's column ``content`` holds pieces such as ``<AIS_IMAGE_START>a.png<AIS_CONTENT_TAG>``; each becomes a copy of
the template's part of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.errors import TemplateError
from tests.reference.opencompass.dataset.prompt_list import Fill, Values, fill_once
from tests.reference.opencompass.dataset.template import DatasetTemplate

END_TAG = "<AIS_CONTENT_TAG>"
KINDS = {
    # Start tag → (kind of part, the field of the template's part that the piece's text fills).
    "<AIS_TEXT_START>": ("text", "question"),
    "<AIS_IMAGE_START>": ("image", "image"),
    "<AIS_VIDEO_START>": ("video", "video"),
    "<AIS_AUDIO_START>": ("audio", "audio"),
}


def multimodal_prompt(template: DatasetTemplate, sample: Values, fill: Fill = fill_once) -> list[Any]:
    """The dialogue with content parts in its turns with ``prompt_mm``; the other turns stay as they are written."""
    items = template.encoded()
    if isinstance(items, str):
        raise TemplateError("a multimodal prompt needs a template with round")
    if "content" not in sample:
        raise TemplateError("a multimodal prompt needs the column content: text with tags such as <AIS_TEXT_START>")
    return [_with_parts(item, sample, fill) for item in items]


def _with_parts(item: Any, sample: Values, fill: Fill) -> Any:
    if isinstance(item, str):
        return fill(item, sample)
    if "prompt_mm" not in item:
        return item
    if not isinstance(item["prompt_mm"], Mapping):
        raise TemplateError("prompt_mm is a mapping from text, image, video or audio to a content part")
    parts = []
    for piece in str(sample["content"]).split(END_TAG):
        tag = next((tag for tag in KINDS if piece.startswith(tag)), None)
        if tag is not None:
            parts.append(_part(item["prompt_mm"], *KINDS[tag], piece.replace(tag, ""), fill))
    return {**item, "prompt_mm": parts}


def _part(kinds: Mapping[str, Any], kind: str, field: str, text: str, fill: Fill) -> dict[str, Any]:
    if kind not in kinds:
        raise TemplateError(f"the sample holds {kind}, for which prompt_mm has no part")
    part: dict[str, Any] = dict(kinds[kind])
    key = part["type"]
    value = part[key]
    if isinstance(value, Mapping):
        part[key] = {**value, "url": fill(value["url"], {field: text})}
    else:
        part[key] = fill(value, {field: text})
    return part
