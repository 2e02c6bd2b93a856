"""Content parts from tagged text: AISBench's multimodal templates (``docs/spec/opencompass.md`` 9).

One column of the row contains pieces such as ``<AIS_IMAGE_START>a.png<AIS_CONTENT_TAG>``. For each piece, the
template's content part of the same kind is copied and filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metatemplate.datasets.prompt_list import ColumnValues, columns_in
from metatemplate.datasets.template import DatasetTemplate
from metatemplate.errors import TemplateFailure
from metatemplate.values.json_values import REMOVED, changed

END_TAG = "<AIS_CONTENT_TAG>"
TAGGED_COLUMN = "content"
"""The column of the tagged text in AISBench. Without this column, the first tagged column is used."""
TAG_KINDS = {
    # Start tag → (kind of part, the column that the piece's text fills).
    "<AIS_TEXT_START>": ("text", "question"),
    "<AIS_IMAGE_START>": ("image", "image"),
    "<AIS_VIDEO_START>": ("video", "video"),
    "<AIS_AUDIO_START>": ("audio", "audio"),
}


def multimodal_prompt(template: DatasetTemplate, row: ColumnValues) -> list[Any]:
    """Return the dialogue. Each turn with ``prompt_mm`` gets a list of content parts."""
    items = template.encoded()
    if isinstance(items, str):
        raise TemplateFailure("a multimodal prompt needs a template with round")
    tagged = [name for name, value in row.items() if isinstance(value, str) and END_TAG in value]
    column = TAGGED_COLUMN if TAGGED_COLUMN in row or template.exact else (tagged or [TAGGED_COLUMN])[0]
    if column not in row:
        raise TemplateFailure(
            f"the variable {TAGGED_COLUMN} is missing; send it with tagged text, such as <AIS_TEXT_START>…{END_TAG}"
        )
    return [_with_parts(item, row, str(row[column]), template) for item in items]


def piece_columns(template: Any) -> frozenset[str]:
    """Return the columns that only the pieces of a tagged text fill, so that a row need not have them."""
    columns = {column for _, column in TAG_KINDS.values()}
    outside_parts = changed(template, lambda value, key: REMOVED if key == "prompt_mm" else value)
    return frozenset(columns.difference(columns_in(outside_parts)))


def _with_parts(item: Any, row: ColumnValues, tagged: str, template: DatasetTemplate) -> Any:
    if isinstance(item, str):
        return template.fill(item, row)
    if "prompt_mm" not in item:
        if "prompt" not in item or template.exact:  # AISBench leaves the columns of these turns unfilled
            return item
        return {**item, "prompt": template.fill(item["prompt"], row)}
    if not isinstance(item["prompt_mm"], Mapping):
        raise TemplateFailure("prompt_mm must be a mapping from text, image, video or audio to a content part")
    parts = []
    for piece in tagged.split(END_TAG):
        tag = next((tag for tag in TAG_KINDS if piece.startswith(tag)), None)
        if tag is not None:
            kind, column = TAG_KINDS[tag]
            parts.append(_part(item["prompt_mm"], kind, {column: piece.replace(tag, "")}, row, template))
        elif piece and not template.exact:
            raise TemplateFailure(f"each part of a multimodal text must begin with one of {', '.join(TAG_KINDS)}")
    return {**item, "prompt_mm": parts}


def _part(
    parts: Mapping[str, Any], kind: str, piece: ColumnValues, row: ColumnValues, template: DatasetTemplate
) -> dict[str, Any]:
    if kind not in parts:
        raise TemplateFailure(f"the row has a piece of the kind {kind}, but prompt_mm has no part of this kind")
    part: dict[str, Any] = dict(parts[kind])
    key, values = part["type"], piece if template.exact else {**row, **piece}
    if isinstance(part[key], Mapping):
        part[key] = {**part[key], "url": template.fill(part[key]["url"], values)}
    else:
        part[key] = template.fill(part[key], values)
    return part
