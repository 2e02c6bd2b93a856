"""LazyLLM's lookup of a model's tokens by its name (``docs/spec/lazyllm.md`` 11.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.template.lazyllm.dialects import CURRENT, PrompterDialect
from gateway.template.lazyllm.tokens import family, family_names

TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))


def tokens_for(model: str, dialect: PrompterDialect = CURRENT) -> Mapping[str, Any]:
    """The family's entry for a model's name or path; empty for an unknown model.

    A path that ends in a slash has no last part, so it is unknown, as in LazyLLM. Releases before 0.2 list whole names.
    """
    name = model.rsplit("/", 1)[-1].lower()
    if not dialect.modern:
        listed = TABLE["names_0_1"].get(name)
        return family(listed, dialect) if listed is not None else EMPTY_MAPPING
    # LazyLLM compares the lowered name with the list as it is spelled: two capitalised names never match.
    if name in TABLE["exact_names_without_tokens"] or not name.startswith(tuple(TABLE["name_prefixes"])):
        return EMPTY_MAPPING
    within = [key for key in family_names() if key in name]
    return family(max(within, key=len)) if within else EMPTY_MAPPING
