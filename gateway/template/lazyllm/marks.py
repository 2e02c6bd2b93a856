"""Which special tokens stand around the turns? Thirteen texts, bound to a prompter and never changed in place.

The reference writes them into a shared prompter, so that the last model wins (``specs/lazyllm.md`` 2);
here binding makes a new value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gateway.template.lazyllm.dialects import CURRENT, Dialect
from gateway.template.lazyllm.errors import PrompterError


@dataclass(frozen=True, slots=True)
class SpecialMarks:
    """The tokens of a model; None: not configured, which is not the same as empty."""

    system: str = ""
    """The system sentence that comes with the model; no token, but configured like one."""
    sos: str = ""
    """Start of the system turn; ``eos`` is its end, and so on for human, assistant and environment."""
    soh: str = ""
    soa: str = ""
    eos: str = ""
    eoh: str = ""
    eoa: str = ""
    soe: str | None = None
    eoe: str | None = None
    tool_start_token: str | None = None
    tool_end_token: str | None = None
    tool_args_token: str | None = None

    def bound(self, changes: Mapping[str, Any], dialect: Dialect = CURRENT) -> SpecialMarks:
        """These marks with a model's; None leaves one as it is. Raises PrompterError for an unknown name."""
        known = NAMES if dialect.modern else EARLY_NAMES
        for name in changes:
            if name not in known and name not in UNUSED:
                raise PrompterError(
                    "TypeError",
                    f"LazyLLMPrompterBase._set_model_configs() got an unexpected keyword argument {name!r}",
                )
        return replace(self, **{name: text for name, text in changes.items() if name in known and text is not None})

    @property
    def tool_tokens(self) -> tuple[tuple[str, str | None], ...]:
        """The three tokens of a call in the order in which the reference fills them in."""
        return (
            ("tool_start_token", self.tool_start_token),
            ("tool_args_token", self.tool_args_token),
            ("tool_end_token", self.tool_end_token),
        )


NAMES = frozenset(field.name for field in fields(SpecialMarks))
TOOL_TOKENS = frozenset({"tool_start_token", "tool_end_token", "tool_args_token"})
EARLY_NAMES = NAMES - TOOL_TOKENS
UNUSED = frozenset({"separator", "plugin", "interpreter", "stop_words"})
"""Names of the table that no prompter reads."""
