"""LazyLLM's older ``Prompter``: ``str.format`` templates, one for conversations (``docs/spec/lazyllm.md`` 10)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metatemplate.prompters.instruction import slots_of
from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.names import TABLE


@dataclass(frozen=True, slots=True)
class LegacyPrompter:
    """A template with slots, filled by ``str.format``; without a template the input passes."""

    prompt: str | None = None
    response_split: str | None = None
    chat_prompt: str | None = None
    """The template for calls with a history; its slots are the other's and the history's."""
    history_symbol: str = "llm_chat_history"
    eoa: str | None = None
    eoh: str | None = None
    show: bool = False

    def __post_init__(self) -> None:
        if self.chat_prompt is not None:
            wanted = {*slots_of(self.prompt or ""), self.history_symbol}
            if set(slots_of(self.chat_prompt)) != wanted:
                raise PrompterError("AssertionError")

    @classmethod
    def from_dict(cls, texts: Mapping[str, Any], *, show: bool = False) -> LegacyPrompter:
        """The prompter that a dictionary of its keywords describes."""
        return cls(**texts, show=show)

    @classmethod
    def from_template(cls, name: str, *, show: bool = False) -> LegacyPrompter:
        """One of the built-in templates. Raises PrompterError for an unknown name."""
        if name not in TABLE["templates"]:
            raise PrompterError("KeyError", repr(name))
        return cls.from_dict(TABLE["templates"][name], show=show)

    @classmethod
    def from_file(cls, path: str | Path, *, show: bool = False) -> LegacyPrompter:
        """The prompter that a JSON file describes. Raises OSError and ValueError."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")), show=show)

    @classmethod
    def empty(cls) -> LegacyPrompter:
        """The input as it is."""
        return cls()

    def generate_prompt(self, input: Any, history: Any = None, tools: Any = None, label: Any = None) -> Any:
        """The template filled, then the label. Raises PrompterError."""
        if self.prompt is None:
            return input
        if tools is not None:
            raise PrompterError("AssertionError")
        given = input if isinstance(input, Mapping) else {self._only_slot(input): input}
        template = self.prompt
        try:
            if history and self.chat_prompt is not None:
                template = self.chat_prompt
            if self.chat_prompt is not None or self.history_symbol in slots_of(template):
                given = {**given, self.history_symbol: self._turns(history) if history else ""}
            text = template.format(**given)
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise PrompterError(
                "RuntimeError",
                f"Generate prompt failed, and prompt is {self.prompt}; chat-prompt is {self.chat_prompt}; "
                f"input is {given}; history is {history}",
            ) from error
        return text + str(label) if label else text

    def get_response(self, output: str, input: str | None = None) -> str:
        """The answer without the prompt before it."""
        if input and output.startswith(input):
            return output[len(input) :]
        return output if self.response_split is None else output.split(self.response_split)[-1]

    def _turns(self, history: Any) -> str:
        if self.eoa is None or self.eoh is None:
            raise TypeError("a history needs eoa and eoh")  # the reference joins with None
        return self.eoa.join([self.eoh.join(item) for item in history])

    def _only_slot(self, given: Any) -> str:
        names = [name for name in slots_of(self.prompt or "") if name != self.history_symbol]
        if len(names) != 1:
            raise PrompterError("AssertionError", f"invalid prompt `{self.prompt}` for <{type(given)}> input `{given}`")
        return names[0]
