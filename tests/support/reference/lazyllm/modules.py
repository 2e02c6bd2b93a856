"""The prompter of a local model, as ``module.prompt(…)`` chooses it (``docs/spec/lazyllm.md`` 11)."""

from __future__ import annotations

from typing import Any

from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.names import tokens_for
from tests.support.reference.lazyllm.prompter import Prompter, chat, empty

DROP_SYSTEM = "drop_builtin_system"
"""A key of a dict prompt: the built-in system sentence stays away."""


def prompter_of(prompt: Any, history: Any = None) -> Prompter:
    """Nothing → empty, a prompter → itself, text or parts → chat. Raises PrompterError."""
    if prompt is None or isinstance(prompt, Prompter):
        if history:
            raise PrompterError("AssertionError", "history is not supported in EmptyPrompter" if prompt is None else "")
        return empty() if prompt is None else prompt
    if isinstance(prompt, (str, dict)):
        return chat(prompt, history=history)
    raise PrompterError("TypeError", f"{prompt} type is not supported.")


def local_prompter(model: str, prompt: Any = "", history: Any = None) -> Prompter:
    """The prompter of a local model: its tokens looked up by name and bound."""
    made, tokens = prompter_of(prompt, history), tokens_for(model.rstrip("/"))
    if tokens and isinstance(prompt, dict) and prompt.get(DROP_SYSTEM):
        # Emptied first, and then the family's own system must not come back.
        return made.bound({**tokens, "system": ""})
    return made.bound(tokens)
