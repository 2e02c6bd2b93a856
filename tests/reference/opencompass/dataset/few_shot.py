"""Few-shot prompts: examples of a dataset before the question (``docs/spec/opencompass.md`` 3)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.core.errors import TemplateError
from tests.reference.opencompass.dataset.prompt_list import DatasetPrompt, Values, joined
from tests.reference.opencompass.dataset.template import DatasetTemplate


def random_ids(size: int, count: int, seed: int) -> list[int]:
    """``count`` different positions below ``size``; the same for the same seed."""
    return random.Random(seed).sample(range(size), min(count, size))


class FewShotPrompt:
    """The templates of question and shots."""

    def __init__(
        self,
        template: DatasetTemplate | None,
        shot_template: DatasetTemplate | None = None,
        *,
        separator: str = "\n",
        end: str = "\n",
        output_column: str | None = None,
        mask_text: str = "",
    ) -> None:
        """``template``: None if the shots' template, which then holds the ice token, makes the prompt too.

        ``separator`` stands between two shots of text, ``end`` behind the last. ``output_column`` holds the answer;
        prompts that are to be continued have ``mask_text`` in its place.
        """
        if template is None and shot_template is None:
            raise TemplateError("a dataset prompt needs a template: prompt_template or ice_template")
        self._main = template if template is not None else shot_template
        self._shot_template = shot_template
        self._separator, self._end = separator, end
        self._output_column, self._mask_text = output_column, mask_text
        assert self._main is not None
        if shot_template is not None and not self._main.ice_token:
            name = "prompt_template" if template is not None else "ice_template"
            raise TemplateError(f"{name} needs an ice_token: the place of the shots")

    def shots(self, samples: Iterable[Values]) -> DatasetPrompt:
        """The shots as one text or list; ``end`` stands behind them even if there are none."""
        template, written = self._shot_template, list(samples)
        if template is None:
            if written:
                raise TemplateError("shots need a template: give ice_template, or take no shots")
            return self._end
        separator, end = ("", "") if template.is_dialogue else (self._separator, self._end)
        items = [template.shot(sample, sample.get(self._output_column or "")) for sample in written]
        if all(isinstance(item, str) for item in items):
            return separator.join(map(str, items)) + end
        shots: list[Any] = []
        for item in items:
            shots = [*joined(shots, item), *([separator] if separator else [])]
        return [*shots, end]

    def generation(self, sample: Values, shots: DatasetPrompt = "") -> DatasetPrompt:
        """The prompt to be continued, without its answer."""
        assert self._main is not None
        return self._main.generation(sample, shots, mask=self._output_column, mask_text=self._mask_text)

    def labels(self, samples: Sequence[Values] = ()) -> tuple[Any, ...]:
        """The labels of a choice: those of a template, or the distinct answers of ``samples``, in their order."""
        for template in (self._main, self._shot_template):
            if template is not None and isinstance(template.template, Mapping):
                return tuple(template.template)
        answers = [sample.get(self._output_column or "") for sample in samples]
        if not all(isinstance(answer, str | int | float) for answer in answers):
            raise TemplateError(f"the labels in the column {self._output_column} must be text or numbers")
        return tuple(dict.fromkeys(answers))

    def candidates(self, sample: Values, labels: Iterable[Any], shots: DatasetPrompt = "") -> dict[Any, DatasetPrompt]:
        """For each label, the prompt to be scored."""
        assert self._main is not None
        return {label: self._main.candidate(label, sample, shots) for label in labels}
