"""The kinds of backend that a target can have, one row each.

A new kind needs one file in ``gateway/backend/``, a row here with its settings, and a row in
``gateway/backend/kinds.py``, which constructs the backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class BackendKind:
    """The settings of one kind of backend."""

    name: str
    """The value of the setting ``speaks``."""
    form: Literal["text", "messages"] | None
    """The form of prompt that this kind of backend accepts: one string, or messages. None if both are accepted."""
    required: tuple[str, ...]
    """The settings that a target of this kind must have."""
    optional: tuple[str, ...] = ()
    """The settings that a target of this kind may have. Any other setting is refused."""
    options: tuple[str, ...] | None = None
    """The names allowed in the setting ``options``. None if targets of this kind have no ``options``."""
    file_setting: str = ""
    """The setting that names the target's file or folder. Problems with the file are reported at this setting."""
    openai_server: bool = False
    """Whether the target is a server with OpenAI's API. Such a server can be probed, and may have a tokenizer."""
    in_process: bool = False
    """Whether the model runs in this process. If so, the model's folder contains the tokenizer and context length."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Every setting that a target of this kind may have, except ``speaks``."""
        return (*self.required, *self.optional)


_SERVER_SETTINGS = ("model", "engine", "key", "proxy", "proxy_auth", "ca")

_ROWS = (
    BackendKind(
        name="completions",
        form="text",
        required=("url",),
        optional=(*_SERVER_SETTINGS, "adds_bos", "prompt"),
        openai_server=True,
    ),
    BackendKind(
        name="chat",
        form="messages",
        required=("url",),
        optional=_SERVER_SETTINGS,
        openai_server=True,
    ),
    BackendKind(
        name="litellm",
        form="messages",
        required=("model",),
        optional=("url", "key", "options"),
        # LiteLLM accepts any option name. A wrong name would be ignored, or would make each call fail.
        options=(
            "api_version",
            "aws_bedrock_runtime_endpoint",
            "aws_profile_name",
            "aws_region_name",
            "aws_role_name",
            "aws_session_name",
            "extra_body",
            "organization",
            "region_name",
            "safety_settings",
            "thinking",
            "vertex_location",
            "vertex_project",
        ),
    ),
    BackendKind(
        name="embedded",
        form="text",
        required=("path",),
        optional=("adds_bos", "prompt", "options"),
        options=("token_delay", "max_model_len"),
        file_setting="path",
        in_process=True,
    ),
    BackendKind(
        name="scripted",
        form=None,
        required=("script",),
        optional=("model", "prompt"),
        file_setting="script",
    ),
    BackendKind(
        name="replay",
        form=None,
        required=("file",),
        optional=("engine", "pace", "prompt"),
        file_setting="file",
    ),
)

BACKEND_KINDS: Mapping[str, BackendKind] = MappingProxyType({row.name: row for row in _ROWS})
"""Value of the setting ``speaks`` → the kind of backend."""
