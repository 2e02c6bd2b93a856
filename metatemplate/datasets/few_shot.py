"""Few-shot prompts: examples of a dataset before the question (``docs/spec/opencompass.md`` 3)."""

from __future__ import annotations

from collections.abc import Iterable

from metatemplate.datasets.prompt_list import ColumnValues, PromptItems, joined
from metatemplate.datasets.template import DatasetTemplate
from metatemplate.errors import TemplateFailure


def few_shots(
    template: DatasetTemplate | None, rows: Iterable[ColumnValues], *, separator: str, end: str, output_column: str
) -> PromptItems:
    """Return the examples as one text or list, followed by ``end``. Without examples, return only ``end``.

    OpenCompass calls the examples ``ice``. Examples that are texts are joined with ``separator``. ``output_column`` is
    the column of the answer, which selects the template if each label has a template.
    """
    samples = list(rows)
    if template is None:
        if samples:
            raise TemplateFailure("examples need a template: write ice_template, or leave the examples out")
        return end
    if template.is_dialogue:
        separator = end = ""
    items = [template.shot(sample, sample.get(output_column)) for sample in samples]
    if all(isinstance(item, str) for item in items):
        return separator.join(map(str, items)) + end
    shots: PromptItems = []
    for item in items:
        shots = [*joined(shots, item), *([separator] if separator else [])]
    return [*shots, end]


def check_ice_token(template: DatasetTemplate, shot_template: DatasetTemplate | None) -> None:
    """Raise ``TemplateFailure`` for a prompt with examples whose template has no place for them."""
    if shot_template is not None and not template.ice_token:
        name = "ice_template" if template is shot_template else "prompt_template"
        raise TemplateFailure(f"{name} requires an ice_token, which marks the place of the examples")
