"""Which ``options`` may a target with ``speaks: embedded`` have?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class Options:
    """The rows of the table in ``docs/embedded.md``."""

    token_delay: float = 0.0
    """Seconds before each token, to watch streaming and hang-ups with a model that is too fast to see."""
    max_model_len: int | None = None
    """Shortens the context; bounds the memory of a sequence."""


def read_options(target: TargetSpec) -> Options:
    """Raises ``ConfigError`` with all problems of the target's options."""
    delay, length = target.options.get("token_delay", 0.0), target.options.get("max_model_len")
    problems = [
        (name, "no such option (known: max_model_len, token_delay)")
        for name in sorted(target.options.keys() - Options.__dataclass_fields__.keys())
    ]
    if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= 60 or math.isnan(delay):
        problems.append(("token_delay", "must be a number of seconds between 0 and 60"))
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
        problems.append(("max_model_len", "must be a whole number of tokens, at least 1"))
    if problems:
        raise ConfigError(tuple(Problem(target.label, 0, f"options.{name}", message) for name, message in problems))
    return Options(float(delay), length)
