"""Which chat template lies in a model's folder? Read as a reference to compare with, never to serve from.

By the rules of ``transformers``: ``chat_template.jinja`` goes before ``tokenizer_config.json``, whose special tokens
are the template's variables; older folders keep those in ``special_tokens_map.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.config.files import digest
from gateway.core.errors import ConfigError, Problem
from gateway.template.build import build
from gateway.template.check import SpecError, parse_spec
from gateway.template.check_jinja import TOKENIZER, TOKENS
from gateway.template.spec import JinjaSpec, TemplateSpec
from gateway.template.spec_tools import ToolsSpec

TEMPLATES = ("chat_template.jinja", TOKENIZER, "chat_template.json", "processor_config.json")
"""Where a folder may keep its template; the first that has one."""
TOKENS_MAP = "special_tokens_map.json"

MOST_BYTES = 64 * 1024 * 1024
"""Of one file; ``tokenizer_config.json`` may list some thousand added tokens."""


def chat_template_in(folder: Path) -> Path | None:
    """The file of a folder that holds its chat template; None: none does. Raises ``ConfigError``."""
    for name in TEMPLATES:
        path = folder / name
        if path.is_file() and (not name.endswith(".json") or "chat_template" in _object(path)):
            return path
    return None


def read_reference(path: Path, like: JinjaSpec | None, kwargs: Mapping[str, Any]) -> TemplateSpec:
    """The chat template of a file as a spec of ``kind: jinja``. Raises ``ConfigError``.

    ``like``: ours, if it is a chat template too: the same clock, and content and arguments handed over in the same
    form. ``kwargs``: variables for the template.
    """
    read: list[bytes] = []

    def fetch(name: str) -> bytes | None:
        beside = path.parent / name
        if not beside.is_file():
            return None
        data = _kept(beside)
        read.append(data)
        return data

    keys: dict[str, Any] = {"kind": "jinja", "file": path.name, "kwargs": dict(kwargs)}
    if like is not None:
        keys |= {"clock": like.clock or "now", "content": like.content, "tool_arguments": like.tool_arguments}
    try:
        spec = parse_spec(keys, name=path.name, fetch=fetch)
    except SpecError as error:
        raise ConfigError(tuple([Problem(str(path), 0, "", problem.message) for problem in error.problems])) from None
    spec = replace(spec, digest=digest(b"\0".join(read))[:12])
    # How calls are read from an answer is of no matter here; that tools may be written is.
    writes_tools = any("tools" in script.names for script in _scripts(spec))
    return replace(spec, tools=ToolsSpec(parser="json")) if writes_tools else spec


def _scripts(spec: TemplateSpec) -> Any:
    from gateway.template.jinja.template import JinjaTemplate

    template = build(spec)
    assert isinstance(template, JinjaTemplate)
    return template.scripts


def _kept(path: Path) -> bytes:
    """A file's bytes; of a tokenizer's configuration what matters here, for the rest may be long."""
    if path.name != TOKENIZER:
        return _whole(path)
    given = _object(path)
    kept = {name: given[name] for name in ("chat_template", *TOKENS) if given.get(name) is not None}
    beside = path.parent / TOKENS_MAP
    if "added_tokens_decoder" not in given and beside.is_file():
        older = _object(beside)
        kept = {**{name: older[name] for name in TOKENS if older.get(name) is not None}, **kept}
    return json.dumps(kept).encode()


def _object(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(_whole(path))
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise _refusal(path, "holds no JSON object")
    return value


def _whole(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror or error})") from None
    if len(data) > MOST_BYTES:
        raise _refusal(path, f"has more than {MOST_BYTES} bytes")
    return data


def _refusal(path: Path, message: str) -> ConfigError:
    return ConfigError((Problem(str(path), 0, "", message),))
