"""Finds the answer in the text of a model as LazyLLM's ``get_response`` does (``docs/spec/lazyllm.md`` 9)."""

from __future__ import annotations

from metatemplate.values.frozen import dataclass


@dataclass(frozen=True, slots=True)
class AnswerExtraction:
    """The texts that may come before the answer in the text of a model."""

    prompt: str
    """The prompt, which some engines repeat before the answer."""
    marker: str
    """The template's text before an answer; empty if the template has no such text."""

    def answer(self, text: str) -> str:
        """Return the text after the repeated prompt, otherwise after the last marker, otherwise the whole text."""
        if self.prompt and text.startswith(self.prompt):
            return text[len(self.prompt) :]
        return text.rpartition(self.marker)[2] if self.marker else text
