"""Few-shot prompts: examples of a dataset before the question (``docs/spec/opencompass.md`` 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.core.errors import TemplateError
from gateway.template.dataset.prompt_list import PromptItems, Row, joined
from gateway.template.dataset.template import DatasetTemplate


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
        """``template``: for the question; the same object as ``shot_template`` if one template makes both.

        ``separator`` stands between two examples that are texts, ``end`` after the last. ``output_column`` is the
        column of the answer; in a prompt that the model continues, ``mask_text`` stands in its place.
        ``has_examples``: False if there are never examples. Then no template needs a place for them.
        """
        self._main = template
        self._shot_template = shot_template
        self._separator, self._end = separator, end
        self._output_column, self._mask_text = output_column, mask_text
        if has_examples and shot_template is not None and not template.ice_token:
            name = "ice_template" if template is shot_template else "prompt_template"
            raise TemplateError(f"{name} needs an ice_token, which is the place of the examples")

    def shots(self, rows: Iterable[Row]) -> PromptItems:
        """Return the examples as one text or list. ``end`` follows, even without examples."""
        template, samples = self._shot_template, list(rows)
        if template is None:
            if samples:
                raise TemplateError("examples need a template: write ice_template, or leave the examples out")
            return self._end
        separator, end = ("", "") if template.is_dialogue else (self._separator, self._end)
        items = [template.shot(sample, sample.get(self._output_column or "")) for sample in samples]
        if all(isinstance(item, str) for item in items):
            return separator.join(map(str, items)) + end
        shots: list[Any] = []
        for item in items:
            shots = [*joined(shots, item), *([separator] if separator else [])]
        return [*shots, end]

    def generation(self, sample: Row, shots: PromptItems = "") -> PromptItems:
        """Return the prompt that the model continues, without its answer."""
        return self._main.generation(sample, shots, mask=self._output_column, mask_text=self._mask_text)

    def candidates(self, sample: Row, labels: Iterable[Any], shots: PromptItems = "") -> dict[Any, PromptItems]:
        """Return the prompt that is scored, for each label."""
        return {label: self._main.candidate(label, sample, shots) for label in labels}
