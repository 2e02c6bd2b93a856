"""The kinds of settings files, and the type of the content of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from gateway.config.schema.kinds import Section
from gateway.config.snapshot import GatewaySettings, KeySpec, PolicySpec

GATEWAY: Final = "gateway.yaml"
POLICY: Final = "policies/*.yaml"
KEYS_FILE: Final = "keys.yaml"
TEMPLATE: Final = "meta_templates/*.yaml"
PROMPT: Final = "prompts/*.yaml"
FILES: Final[Mapping[str, Any]] = {
    GATEWAY: tuple[Section[GatewaySettings]],
    POLICY: tuple[Section[PolicySpec]],
    KEYS_FILE: tuple[Section[Mapping[str, Section[KeySpec]]]],
}
"""Kind of settings file → the type of its content, in a tuple: pydantic takes no configuration for a class alone."""


@cache
def adapter(file: str, *, with_sentences: bool = False) -> TypeAdapter[Any]:
    """Return what reads the content of one kind of file. Building it takes some milliseconds.

    ``with_sentences``: the JSON Schema then has the text under each field, which pydantic takes from the source.
    """
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, use_attribute_docstrings=with_sentences)
    return TypeAdapter(FILES[file], config=config)


ALIASES: Final = {
    "api_key": "key",
    "api_base": "url",
    "base_url": "url",
    "meta_template": "template",
    "prompt_template": "template",
    "type": "speaks",
    "replicas": "targets",
    "context_length": "max_model_len",
    "retries": "retry",
    "timeouts": "timeout",
    "hash": "sha256",
    "key": "sha256",
}
"""Name of a setting in other tools → name of the same setting in this project, for suggestions."""
