"""LazyLLM's lookup of a model's tokens by its name (``docs/spec/lazyllm.md`` 11.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metatemplate.prompters.dialects import CURRENT, PrompterDialect
from metatemplate.prompters.tokens import family, family_of_model
from metatemplate.values.dialogue import EMPTY_MAPPING

TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))


def tokens_for(model: str, dialect: PrompterDialect = CURRENT) -> Mapping[str, Any]:
    """The family's entry for a model's name or path; empty for an unknown model."""
    name = family_of_model(model, dialect)
    return family(name, dialect) if name else EMPTY_MAPPING
