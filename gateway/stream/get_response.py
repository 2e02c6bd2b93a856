"""Finds the answer in the text of a model as LazyLLM's ``get_response`` does (``docs/spec/lazyllm.md`` 9)."""

from __future__ import annotations

from gateway.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class AnswerExtraction:
    """What precedes an answer in the text of a model."""

    prompt: str
    """The prompt, which some engines repeat before the answer."""
    marker: str
    """The text before an answer in a prompt of this template; empty: there is none."""

    def answer(self, text: str) -> str:
        """The text after the repeated prompt, or else after the last marker. Without both, the text itself."""
        if self.prompt and text.startswith(self.prompt):
            return text[len(self.prompt) :]
        return text.rpartition(self.marker)[2] if self.marker else text
