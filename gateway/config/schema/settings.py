"""The kinds of settings files, and the type of the content of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.config.schema.kinds import Section
from gateway.config.snapshot import GatewaySettings, KeySpec, PolicySpec

GATEWAY: Final = "gateway.yaml"
POLICY: Final = "policies/*.yaml"
KEYS_FILE: Final = "keys.yaml"
TEMPLATE: Final = "meta_templates/*.yaml"
PROMPT: Final = "prompts/*.yaml"
FILES: Final[Mapping[str, Any]] = {
    GATEWAY: Section[GatewaySettings],
    POLICY: Section[PolicySpec],
    KEYS_FILE: Section[Mapping[str, Section[KeySpec]]],
}
"""Kind of settings file → the type of its content."""


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
