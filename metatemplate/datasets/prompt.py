"""Renders a prompt file for the variables of a request."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from metatemplate.datasets.answer_columns import possible_answers
from metatemplate.datasets.few_shot import check_ice_token, few_shots
from metatemplate.datasets.messages import MessagesTemplate
from metatemplate.datasets.multi_turn import ANSWER, QUESTION, multi_turn_dialogue
from metatemplate.datasets.multimodal import multimodal_prompt, piece_columns
from metatemplate.datasets.prompt_list import ColumnValues, PromptItems
from metatemplate.datasets.spec import PromptSpec, TemplateEntry
from metatemplate.datasets.template import DatasetTemplate
from metatemplate.datasets.turn_requests import InferMode, turn_requests
from metatemplate.errors import InvalidInput, TemplateFailure
from metatemplate.values.dialogue import MAX_TURNS
from metatemplate.values.json_values import texts_in_values
from metatemplate.values.words import closest, quoted

PARAM = "gateway.prompt.variables"
Examples = Sequence[ColumnValues] | None
"""The rows of the examples; None if the file's retriever chooses the rows."""


class DatasetPrompt:
    """One prompt file. Raises ``TemplateFailure`` if its templates are not valid."""

    def __init__(self, spec: PromptSpec) -> None:
        self.spec = spec
        main = spec.prompt_template or spec.ice_template
        if main is None:
            raise TemplateFailure("a prompt file needs prompt_template or ice_template")
        self.makes_messages = bool(main.messages)
        """Whether the prompt is a list of OpenAI messages. If False, the prompt is a text, or turns with roles such as
        HUMAN."""
        self._is_multimodal = isinstance(main.template, Mapping) and "prompt_mm" in json.dumps(main.template)
        self._piece_columns = piece_columns(main.template) if self._is_multimodal else frozenset()
        self._exact = spec.fill == "opencompass"
        self._columns = frozenset(main.columns) - self._piece_columns
        self._has_place = spec.ice_template is not None and bool(main.ice_token)
        self._possible_answers = frozenset(possible_answers(spec))
        self._shot_columns = frozenset((spec.ice_template or main).columns)
        if self.makes_messages:
            self._messages = _messages_template(spec, main)
            self._shot_messages = None if spec.ice_template is None else _messages_template(spec, spec.ice_template)
            return
        self._template = _template(spec, main)
        ice = spec.ice_template
        self._shot_template = None if ice is None else self._template if ice is main else _template(spec, ice)
        if spec.retriever.kind != "zero":
            check_ice_token(self._template, self._shot_template)
        if len(set(self.labels)) < len(self.labels):
            raise TemplateFailure('two labels have the same text, such as 1 and "1"; give each label a different name')
        for label in self._template.labels or (None,):
            self._template.candidate(label, {})  # raises for a dialogue without round

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the prompt's templates; empty if the prompt does not have a template for each label."""
        return () if self.makes_messages else tuple(map(str, self._template.labels))

    def generation(self, variables: ColumnValues, examples: Examples = None) -> PromptItems:
        """Return the prompt that the model continues. Raises ``InvalidInput`` for missing or wrong variables."""
        self._check(variables)
        if self.labels:
            raise InvalidInput(
                f"prompt {self.spec.name} has a template for each label; send the request to /v1/loglikelihood",
                param="gateway.prompt.id",
            )
        if self.spec.multi_turn:
            raise InvalidInput(
                f"prompt {self.spec.name} has several turns; add gateway.turns, such as {{}}", param="gateway.turns"
            )
        try:
            if self.makes_messages:
                return self._messages.generation(self._masked(variables), self._message_shots(variables, examples))
            if self._is_multimodal:
                return multimodal_prompt(self._template, self._masked(variables))
            mask, mask_text = self.spec.output_column or None, self.spec.gen_field_replace_token
            shots = self._shots(variables, examples)
            return self._template.generation(variables, shots, mask=mask, mask_text=mask_text)
        except TemplateFailure as error:
            raise InvalidInput(error.message, param=PARAM) from None

    def candidates(self, variables: ColumnValues, examples: Examples = None) -> dict[str, PromptItems]:
        """Return the complete prompt of each label. Raises ``InvalidInput`` if the prompt has no labels."""
        self._check(variables)
        if not self.labels:
            raise InvalidInput(
                f"prompt {self.spec.name} has no labels, so there are no candidates; use a prompt with labels",
                param="prompt.id",
            )
        try:
            shots = self._shots(variables, examples)
            return {str(label): self._template.candidate(label, variables, shots) for label in self._template.labels}
        except TemplateFailure as error:
            raise InvalidInput(error.message, param=PARAM) from None

    def turns(self, variables: ColumnValues, mode: InferMode) -> Generator[list[Any], str | None, None]:
        """Return a generator of the prompts of all turns. ``send`` the model's answer to get the next prompt."""
        self._check(variables)
        if not self.spec.multi_turn:
            raise InvalidInput(
                f"prompt {self.spec.name} has only one turn; set multi_turn: true in the prompt file",
                param="gateway.turns",
            )
        questions, answers = variables.get(QUESTION), variables.get(ANSWER)
        if not isinstance(questions, list) or not questions:
            raise InvalidInput(f"the variable {QUESTION} must be a list with one text for each turn", param=PARAM)
        if len(questions) > MAX_TURNS:
            raise InvalidInput(f"a call has at most {MAX_TURNS} turns, not {len(questions)}", param=PARAM)
        answers = [""] * len(questions) if answers is None and mode == "every" else answers
        if not isinstance(answers, list) or len(answers) != len(questions):
            raise InvalidInput(f"the variable {ANSWER} must be a list of the same length as {QUESTION}", param=PARAM)
        return turn_requests(multi_turn_dialogue(self._template, {**variables, ANSWER: answers}), mode)

    def unfilled(self, variables: ColumnValues, examples: Examples = None) -> list[str]:
        """Return the columns that are not filled, because the request or a row of the examples does not have them."""
        lacking = self._columns - variables.keys() - {self.spec.output_column}
        return sorted(lacking.union(*[self._shot_columns - row.keys() for row in examples or ()]))

    def answer_column_in_prompt(self, variables: ColumnValues, examples: Examples = None) -> str:
        """Return the column whose value is, or may be, an answer inside the prompt; empty if there is none.

        The answer is not masked in the prompts of labels. With ``fill: opencompass``, it is masked only in prompts of
        one turn that are a text or a dialogue; in all others, values that contain ``{answer}`` are filled too.
        Without ``output_column`` no column is masked.
        """
        spec, answer = self.spec, self.spec.output_column
        is_unmasked = self._exact and (self.makes_messages or self._is_multimodal or spec.multi_turn)
        if not answer:
            return next((name for name in variables if self._may_show(name, variables, examples)), "")
        if answer not in variables or not (self.labels or is_unmasked):
            return ""
        if answer in self._columns and not spec.multi_turn:  # a dialogue masks the answer of the turn itself
            return answer
        return answer if self._exact and self._is_in_values(answer, variables, examples) else ""

    def lacks_examples(self, examples: Examples) -> bool:
        """Return whether the prompt has a place for examples, but no examples. Returns False for ``examples: []``."""
        retriever = self.spec.retriever
        count = {"zero": 0, "fixed": len(retriever.ids), "random": retriever.count}[retriever.kind]
        return examples is None and self._has_place and not count

    def _check(self, variables: ColumnValues) -> None:
        present = variables.keys() | self._piece_columns
        missing = [column for column in self.spec.input_columns if column not in present]
        if missing:
            raise InvalidInput(
                f"prompt {self.spec.name} needs the variables {', '.join(self.spec.input_columns)}; "
                f"the request lacks {', '.join(missing)}{_misnamed(missing[0], variables.keys() - self._columns)}",
                param=PARAM,
            )

    def _masked(self, variables: ColumnValues) -> ColumnValues:
        """Return the variables without the answer; unchanged for the prompts in which OpenCompass does not mask it."""
        spec = self.spec
        masked = spec.output_column and not self._exact
        return {**variables, spec.output_column: spec.gen_field_replace_token} if masked else variables

    def _may_show(self, name: str, variables: ColumnValues, examples: Examples) -> bool:
        """Return whether a variable may be an answer inside the prompt of a file without ``output_column``."""
        if name in self._possible_answers:
            return True
        is_input = name in self.spec.input_columns
        return self._exact and not is_input and self._is_in_values(name, variables, examples)

    def _is_in_values(self, name: str, variables: ColumnValues, examples: Examples) -> bool:
        """Return whether the value of another variable, or an example, contains ``{name}``.

        An example contains it also where its row has no value for the column.
        """
        rows, column = self._rows(variables, examples), "{" + name + "}"
        if name in self._shot_columns and any(name not in row for row in rows):
            return True
        others = [value for other, value in variables.items() if other != name]
        return any(column in text for text in texts_in_values([others, [list(row.values()) for row in rows]]))

    def _rows(self, variables: ColumnValues, examples: Examples) -> Sequence[ColumnValues]:
        retriever, train = self.spec.retriever, self.spec.train
        if examples is not None:
            return examples
        if retriever.kind == "fixed":
            return [train[number] for number in retriever.ids]
        if retriever.kind == "random":
            seed = f"{retriever.seed} {json.dumps(variables, sort_keys=True, ensure_ascii=False)}"
            return random.Random(seed).sample(train, retriever.count)
        return ()

    def _shots(self, variables: ColumnValues, examples: Examples) -> PromptItems:
        rows = self._rows(variables, examples)
        if rows and not self._template.ice_token:
            raise TemplateFailure("the template has no place for examples: write ice_token, or leave the examples out")
        spec = self.spec
        if not rows and spec.retriever.kind == "zero" and spec.ice_eos_token is None:
            return ""
        return few_shots(
            self._shot_template,
            rows,
            separator="\n" if spec.ice_separator is None else spec.ice_separator,
            end="\n" if spec.ice_eos_token is None else spec.ice_eos_token,
            output_column=spec.output_column or "",
        )

    def _message_shots(self, variables: ColumnValues, examples: Examples) -> list[Any]:
        rows, template = self._rows(variables, examples), self._shot_messages
        if rows and template is None:
            raise TemplateFailure("examples need a template: write ice_template, or leave the examples out")
        return [] if template is None else [message for row in rows for message in template.generation(row)]


def _misnamed(column: str, others: Collection[str]) -> str:
    """Return a phrase about the variable that was probably meant to be ``column``."""
    near = closest(column, others)
    return "" if near is None else f", and has {quoted(near)}; rename it to {column}"


def _template(spec: PromptSpec, entry: TemplateEntry) -> DatasetTemplate:
    if entry.template is None:
        raise TemplateFailure(
            "prompt_template and ice_template must have the same key: either both `messages`, or both `template`"
        )
    return DatasetTemplate(entry.template, sep_token=entry.sep_token, **_settings(spec, entry))


def _messages_template(spec: PromptSpec, entry: TemplateEntry) -> MessagesTemplate:
    if entry.template is not None:
        raise TemplateFailure("prompt_template and ice_template must both have messages, or both have template")
    return MessagesTemplate(entry.messages, **_settings(spec, entry))


def _settings(spec: PromptSpec, entry: TemplateEntry) -> dict[str, Any]:
    exact = spec.fill == "opencompass"
    return {"ice_token": entry.ice_token, "column_tokens": entry.column_token_map, "exact": exact}
