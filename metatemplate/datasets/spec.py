"""The keys of a prompt file, as frozen dataclasses with checked values.

OpenCompass's and AISBench's keys keep their names, so that ``infer_cfg`` and ``reader_cfg`` can be pasted into a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from metatemplate.datasets.prompt_list import columns_in
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.kinds import NonEmpty, Switch, TextOr, Texts, WholeNumber

RetrieverKind = Literal["zero", "fixed", "random"]
PromptEntries = tuple[TextOr[Mapping[str, Any]], ...]
"""Turns or messages, and texts between them."""


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """The value of ``prompt_template`` or ``ice_template``. Either ``template`` or ``messages`` is given."""

    template: TextOr[Mapping[Any, Any]] | None = None
    """A text; a dialogue (``begin``, ``round``, ``end``); or a text or dialogue for each label."""
    messages: PromptEntries = ()
    """OpenAI messages, ``{expand_column: NAME}`` and the ``ice_token``."""
    ice_token: NonEmpty = ""
    """The place of the examples in the text."""
    sep_token: NonEmpty = ""
    """The text between the context and the answer of a scored prompt. It is removed from the prompt."""
    column_token_map: Mapping[str, NonEmpty] = field(default=EMPTY_MAPPING)
    """Column → a text that is replaced with the column's value, in addition to ``{column}``."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns inside the template, in the order of the text; last the columns of tokens."""
        return columns_in(self.template or self.messages, self.column_token_map)


@dataclass(frozen=True, slots=True)
class Retriever:
    """The settings for choosing examples from the rows of ``train``."""

    kind: RetrieverKind = "zero"
    ids: tuple[WholeNumber, ...] = ()
    """The positions of the rows, for ``fixed``."""
    count: WholeNumber = 1
    """The number of rows, for ``random``."""
    seed: WholeNumber = 0
    """The seed of ``random``. The same seed and variables give the same rows."""


@dataclass(frozen=True, slots=True)
class PromptExample:
    """One example in a prompt file, which is rendered when the file is read."""

    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    examples: tuple[Mapping[str, Any], ...] | None = None
    """The rows of the examples; None if the retriever of the prompt file chooses the rows."""
    prompt: TextOr[PromptEntries] | None = None
    """The expected text; or the expected turns or messages, without section markers."""
    labels: Mapping[Any, Any] = field(default=EMPTY_MAPPING)
    """Label → the expected text or turns of this label's prompt."""


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """The content of a file in ``prompts/``."""

    name: str
    digest: str = ""
    """The first 12 hex digits of the file's SHA-256."""
    description: str = ""
    input_columns: Texts = ()
    """The variables that a request must have: a list, or one text with the names, separated by blanks."""
    output_column: NonEmpty = ""
    """The variable of the answer. The value is left out of a prompt that the model continues."""
    gen_field_replace_token: str = ""
    """The text that replaces the answer in a prompt that the model continues."""
    prompt_template: TemplateEntry | None = None
    ice_template: TemplateEntry | None = None
    """The template of the examples. It is also the template of the question if there is no ``prompt_template``."""
    retriever: Retriever = Retriever()
    train: tuple[Mapping[str, Any], ...] = ()
    """The rows from which the retriever chooses."""
    train_file: NonEmpty = ""
    """A JSON Lines file with further rows for ``train``. The path is relative to the prompt file."""
    ice_separator: str | None = None
    """The text between two examples that are texts; None for a line break."""
    ice_eos_token: str | None = None
    """The text after the last example; None for a line break."""
    fill: Literal["once", "opencompass"] = "once"
    """``once``: values are never searched for columns. ``opencompass``: columns inside values are filled too."""
    multi_turn: Switch = False
    """Whether the round is repeated for each question of a list (AISBench's MultiTurnPromptTemplate)."""
    examples: tuple[PromptExample, ...] = ()
