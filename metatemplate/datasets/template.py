"""Dataset templates: a string, a dialogue, or one of these for each label (``docs/spec/opencompass.md`` 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metatemplate.datasets.prompt_list import (
    ColumnValues,
    PromptItems,
    filled,
    filled_like_opencompass,
    mapped,
    marker,
    replaced,
    with_shots,
)
from metatemplate.errors import TemplateFailure
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.words import shown

SECTIONS = ("begin", "round", "end")


class DatasetTemplate:
    """One template of a dataset. Raises ``TemplateFailure`` for a template that is not valid."""

    def __init__(
        self,
        template: str | Mapping[str, Any],
        *,
        ice_token: str = "",
        sep_token: str = "",
        column_tokens: Mapping[str, str] = EMPTY_MAPPING,
        exact: bool = False,
    ) -> None:
        """Create the template. ``ice_token``: the place of the examples. ``sep_token``: a text that is removed.

        ``column_tokens``: column → a text that is replaced with the column's value, in addition to ``{column}``.
        ``exact``: the columns are filled as in OpenCompass, also inside values and examples.
        """
        if not isinstance(template, str | Mapping):
            raise TemplateFailure("must be a text, a mapping with begin, round and end, or a mapping of labels")
        self.template = template
        self.ice_token = ice_token
        self.sep_token = sep_token
        self.exact = exact
        self.is_dialogue = isinstance(template, Mapping) and template.keys() <= set(SECTIONS)
        self.labels = () if isinstance(template, str) or self.is_dialogue else tuple(template)
        self._tokens = column_tokens
        parts = {"": template} if isinstance(template, str) else template
        for key, part in parts.items():
            if not isinstance(part, str | list | Mapping):
                raise TemplateFailure(
                    f"a template's part must be a text, a list or a mapping, not {type(part).__name__}"
                )
            if ice_token and isinstance(part, str) and ice_token not in part:
                way = "write the token where the examples belong"
                other = next((name for name, one in parts.items() if ice_token in str(one)), "")
                if key in SECTIONS and other:
                    way = f"the token is in {other}, so write {key} as a list: [{shown(part)}]"
                raise TemplateFailure(f"{part!r} does not contain the ice_token {ice_token!r}; {way}")

    def fill(self, text: str, row: ColumnValues) -> str:
        """Return a text with the values of the row in place of the columns."""
        return (filled_like_opencompass if self.exact else filled)(text, row, self._tokens)

    def generation(
        self, row: ColumnValues, shots: PromptItems = "", *, mask: str | None = None, mask_text: str = ""
    ) -> PromptItems:
        """Return the prompt that the model continues. ``mask_text`` replaces the value of the column ``mask``."""
        label = self.labels[0] if self.labels else None
        return self._filled(label, row if mask is None else {**row, mask: mask_text}, shots, generates=True)

    def candidate(self, label: Any, row: ColumnValues, shots: PromptItems = "") -> PromptItems:
        """Return the prompt that is scored for one label. No column is masked."""
        return self._filled(label, row, shots, generates=False)

    def shot(self, row: ColumnValues, label: Any = None) -> PromptItems:
        """Return one example. ``label`` selects the template if each label has a template."""
        shot = replaced(self._encoded(self._of_label(label), "ice"), self.ice_token, "")
        return mapped(shot, lambda text: self.fill(text, row))

    def encoded(self) -> PromptItems:
        """Return the template as a list with section markers. A string is returned unchanged."""
        return self._encoded(self.template)

    def _of_label(self, label: Any) -> Any:
        if not self.labels or not isinstance(self.template, Mapping):
            return self.template
        if label not in self.labels:
            raise TemplateFailure(
                f"the label {ascii(label)[:40]} has no template; the labels are {', '.join(map(str, self.labels))}"
            )
        return self.template[label]

    def _filled(self, label: Any, row: ColumnValues, shots: PromptItems, *, generates: bool) -> PromptItems:
        prompt = self._encoded(self._of_label(label))
        if not (self.exact and generates):  # OpenCompass removes it from the examples of a generation too
            prompt = replaced(prompt, self.sep_token, "")
        if self.exact:  # the examples are inserted first, so their text is searched for columns too
            prompt = with_shots(prompt, self.ice_token, shots)
            return mapped(
                replaced(prompt, self.sep_token, "") if generates else prompt, lambda text: self.fill(text, row)
            )
        return with_shots(prompt, self.ice_token, shots, lambda text: self.fill(text, row))

    @staticmethod
    def _encoded(template: Any, section: str = "") -> PromptItems:
        """Return a dialogue as a list with section markers. With the section ``ice``, return only the round."""
        if not isinstance(template, Mapping):
            return template if isinstance(template, str) else list(template)
        if "round" not in template:
            raise TemplateFailure("a dialogue needs round: the list of its turns")
        items: list[Any] = []
        for name in ("round",) if section else [name for name in SECTIONS if name in template]:
            content = template[name]
            items += [
                marker(section or name, "begin"),
                *(content if isinstance(content, list) else [content]),
                marker(section or name, "end"),
            ]
        return items
