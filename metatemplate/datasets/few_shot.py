"""Few-shot prompts: examples of a dataset before the question (``docs/spec/opencompass.md`` 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metatemplate.datasets.prompt_list import ColumnValues, PromptItems, joined
from metatemplate.datasets.template import DatasetTemplate
from metatemplate.errors import TemplateFailure


class FewShotPrompt:
    """The templates of the question and of its examples. OpenCompass calls the examples ``ice``."""

    def __init__(
        self,
        template: DatasetTemplate,
        shot_template: DatasetTemplate | None,
        *,
        separator: str,
        end: str,
        output_column: str | None,
        mask_text: str,
        has_examples: bool,
    ) -> None:
        """Create the prompt. ``template`` writes the question, and ``shot_template`` writes the examples.

        The two templates may be the same object. Examples that are texts are joined with ``separator``, and ``end``
        follows the last example. ``output_column`` is the column of the answer. In a prompt that the model continues,
        ``mask_text`` replaces the answer. ``has_examples``: False if there are never examples. Then no template needs
        an ``ice_token``.
        """
        self._main = template
        self._shot_template = shot_template
        self._separator, self._end = separator, end
        self._output_column, self._mask_text = output_column, mask_text
        if has_examples and shot_template is not None and not template.ice_token:
            name = "ice_template" if template is shot_template else "prompt_template"
            raise TemplateFailure(f"{name} requires an ice_token, which marks the place of the examples")

    def shots(self, rows: Iterable[ColumnValues]) -> PromptItems:
        """Return the examples as one text or list, followed by ``end``. Without examples, return only ``end``."""
        template, samples = self._shot_template, list(rows)
        if template is None:
            if samples:
                raise TemplateFailure("examples need a template: write ice_template, or leave the examples out")
            return self._end
        separator, end = ("", "") if template.is_dialogue else (self._separator, self._end)
        items = [template.shot(sample, sample.get(self._output_column or "")) for sample in samples]
        if all(isinstance(item, str) for item in items):
            return separator.join(map(str, items)) + end
        shots: list[Any] = []
        for item in items:
            shots = [*joined(shots, item), *([separator] if separator else [])]
        return [*shots, end]

    def generation(self, sample: ColumnValues, shots: PromptItems = "") -> PromptItems:
        """Return the prompt that the model continues. The answer of the row is left out."""
        return self._main.generation(sample, shots, mask=self._output_column, mask_text=self._mask_text)

    def candidates(
        self, sample: ColumnValues, labels: Iterable[Any], shots: PromptItems = ""
    ) -> dict[Any, PromptItems]:
        """Return a dict from each label to the prompt that is scored for this label."""
        return {label: self._main.candidate(label, sample, shots) for label in labels}
