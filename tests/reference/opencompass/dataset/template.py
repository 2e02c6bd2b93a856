"""Dataset templates: a string, a dialogue, or one of these for each label (``docs/spec/opencompass.md`` 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.errors import TemplateError
from tests.reference.opencompass.dataset.prompt_list import (
    DatasetPrompt,
    Fill,
    Values,
    fill_once,
    filled,
    marker,
    with_shots,
    with_text,
)

SECTIONS = ("begin", "round", "end")


class DatasetTemplate:
    """One template of a dataset; raises ``TemplateError`` for a template that is not valid."""

    def __init__(
        self,
        template: str | Mapping[str, Any],
        *,
        ice_token: str | None = None,
        sep_token: str | None = None,
        column_tokens: Mapping[str, str] | None = None,
        fill: Fill = fill_once,
    ) -> None:
        """``ice_token``: the place of the shots. ``sep_token``: separates context and answer of a scored prompt.

        ``column_tokens``: for a column, a token that stands for its value beside ``{column}``.
        """
        if not isinstance(template, str | Mapping):
            raise TemplateError(
                "a template is a text, or a mapping with begin, round and end, or one template per label"
            )
        self.template = template
        self.ice_token = ice_token
        self.sep_token = sep_token
        self.is_dialogue = isinstance(template, Mapping) and template.keys() <= set(SECTIONS)
        self.labels = () if isinstance(template, str) or self.is_dialogue else tuple(template)
        self._column_tokens = column_tokens or {}
        self._fill = fill
        parts = [template] if isinstance(template, str) else list(template.values())
        for part in parts:
            if not isinstance(part, str | list | Mapping):
                raise TemplateError(f"a part of a template is a text, a list or a mapping, not {type(part).__name__}")
            if ice_token and isinstance(part, str) and ice_token not in part:
                raise TemplateError(f"{ice_token!r} (ice_token) must stand in {part!r}")

    def generation(
        self, sample: Values, shots: DatasetPrompt = "", *, mask: str | None = None, mask_text: str = ""
    ) -> DatasetPrompt:
        """The prompt to be continued. ``mask``: a column whose value is replaced by ``mask_text``."""
        template = (
            self.template[self.labels[0]] if self.labels and isinstance(self.template, Mapping) else self.template
        )
        prompt = with_shots(self._encoded(template), self.ice_token, shots)
        values = sample if mask is None else {**sample, mask: mask_text}
        return self._filled(with_text(prompt, self.sep_token, ""), values)

    def candidate(
        self, label: str, sample: Values, shots: DatasetPrompt = "", *, keep_separator: bool = False
    ) -> DatasetPrompt:
        """The prompt to be scored for one label; nothing is masked."""
        prompt = self._encoded(self._of_label(label))
        if not keep_separator:
            prompt = with_text(prompt, self.sep_token, "")
        return self._filled(with_shots(prompt, self.ice_token, shots), sample)

    def shot(self, sample: Values, label: Any = None) -> DatasetPrompt:
        """One shot; ``label`` chooses the template of a label map."""
        template = self._of_label(label)
        return self._filled(with_text(self._encoded(template, "ice"), self.ice_token, ""), sample)

    def _of_label(self, label: Any) -> Any:
        if not self.labels or not isinstance(self.template, Mapping):
            return self.template
        if label not in self.labels:
            raise TemplateError(f"no template for the label {label!r}; there are {', '.join(map(str, self.labels))}")
        return self.template[label]

    def _filled(self, prompt: DatasetPrompt, values: Values) -> DatasetPrompt:
        for column, token in self._column_tokens.items():
            if column in values:
                prompt = with_text(prompt, token, str(values[column]))
        return filled(prompt, values, self._fill)

    def encoded(self) -> DatasetPrompt:
        """The template as a list with section markers; a string stays."""
        return self._encoded(self.template)

    @staticmethod
    def _encoded(template: Any, section: str = "") -> DatasetPrompt:
        """A dialogue as a list with section markers; ``ice``: its round alone, as a shot."""
        if not isinstance(template, Mapping):
            return template if isinstance(template, str) else list(template)
        if "round" not in template:
            raise TemplateError("a dialogue needs round: the list of its turns")
        names = ("round",) if section else [name for name in SECTIONS if name in template]
        items: list[Any] = []
        for name in names:
            content = template[name]
            items += [
                marker(section or name, "begin" if name != "end" else "end"),
                *(content if isinstance(content, list) else [content]),
                marker(section or name, "end"),
            ]
        return items
