"""Checks the keys of a template file of ``kind: jinja``; the model's folder is read by ``huggingface/folder``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import GatewayError, TemplateError
from gateway.core.prompt import Bos
from gateway.template.huggingface.folder.chat_template import ChatFiles, read_chat_files
from gateway.template.huggingface.folder.named_templates import DEFAULT, TOOL_USE
from gateway.template.huggingface.folder.reader import Fetch, Names
from gateway.template.huggingface.folder.special_tokens import NAME, OURS, TOKENS
from gateway.template.spec.template import JinjaSpec, TemplateSpec
from gateway.template.validation.examples import read_examples
from gateway.template.validation.keys import stop_texts, token_id
from gateway.template.validation.problems import Path, Problems, as_name, as_names, shown, suggestion
from gateway.template.validation.tools import KEYS as TOOL_KEYS
from gateway.template.validation.tools import check_forced, read_thinking, read_tools

JINJA_KEYS = (
    "kind", "description", "file", "template", "variant", "sha256", "special_tokens", "kwargs", "request_kwargs",
    "clock", "content", "tool_arguments", "stop", "eos_token_id", "bos", "examples", *TOOL_KEYS,
)  # fmt: skip

FIXED_DAY = "2024-07-26"
"""The day of ``strftime_now`` unless the file sets ``clock``: the one that common templates fall back to."""
NOW = "now"

SHA256 = re.compile(r"[0-9a-f]{64}")

PROBES = (
    (Message("user", "x"),),
    (Message("system", "x"), Message("user", "x")),
)
"""Conversations that nearly every template accepts."""


def read_jinja(keys: Mapping[str, Any], name: str, problems: Problems, fetch: Fetch, names: Names) -> TemplateSpec:
    """The spec of a file's keys; mistakes are added to ``problems``."""
    problems.keys(keys, JINJA_KEYS, ())
    if ("file" in keys) == ("template" in keys):
        problems.add((), "kind jinja needs exactly one of `file`, the chat template's file, and `template`, its text")
    files = _read_files(keys, fetch, names, problems)
    sources, choice = _choose_sources(files, keys, problems)
    tokens = _special_tokens(keys, files, problems)
    content = problems.choice(keys.get("content", "text"), ("content",), ("text", "parts"), "text")
    arguments = problems.choice(keys.get("tool_arguments", "object"), ("tool_arguments",), ("object", "text"), "object")
    spec = TemplateSpec(
        name=name,
        kind="jinja",
        description=problems.text(keys.get("description", ""), ("description",)),
        eos_token_id=token_id(keys, problems),
        stop=stop_texts(keys, problems),
        jinja=JinjaSpec(
            sources=sources,
            special_tokens=tokens,
            kwargs=_kwargs(keys, problems),
            request_kwargs=_request_kwargs(keys, problems),
            clock=_clock(keys, problems),
            clock_given="clock" in keys,
            content=cast(Any, content),
            tool_arguments=cast(Any, arguments),
            ends=tuple(dict.fromkeys([text for text in (tokens.get("eos_token", ""), *files.ends) if text.strip()])),
            end_ids=files.end_ids,
            files=files.used,
            names=tuple(files.templates),
            disagreements=files.notes,
            choice=choice,
        ),
        tools=read_tools(keys, problems, writes=False),
        thinking=read_thinking(keys, problems),
        examples=read_examples(keys.get("examples", ()), problems, sends_messages=False),
    )
    check_forced(spec, problems)
    return spec if problems.found else _check_rendering(spec, keys, problems)


# ---------------------------------------------------------------- the files


def _read_files(keys: Mapping[str, Any], fetch: Fetch, names: Names, problems: Problems) -> ChatFiles:
    """The named file and those beside it, or the text in the template's own file."""
    name = problems.word(keys["file"], ("file",)) if "file" in keys else ""
    if "sha256" in keys:
        _check_sha256(keys, name, fetch, problems)
    files = read_chat_files(name, fetch, names, problems) if name else ChatFiles()
    if "template" in keys:
        files = replace(files, templates={DEFAULT: problems.word(keys["template"], ("template",))})
    return files


def _check_sha256(keys: Mapping[str, Any], name: str, fetch: Fetch, problems: Problems) -> None:
    expected = problems.text(keys["sha256"], ("sha256",)).lower()
    if not SHA256.fullmatch(expected):
        problems.add(("sha256",), "must be the 64 hex digits of the file's SHA-256")
        return
    if not name:
        problems.add(("sha256",), "is the digest of a `file`, but the template is written in this file: remove it")
        return
    with suppress(TemplateError):  # becomes a problem when the file is read
        data = fetch(name)
        if data is not None and (actual := hashlib.sha256(data).hexdigest()) != expected:
            problems.add(("sha256",), f"{name} has changed: check the file, then write its SHA-256, {actual}")


def _choose_sources(
    files: ChatFiles, keys: Mapping[str, Any], problems: Problems
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """(name, source) of the templates that requests get, and a note on the choice where there are several."""
    named = files.templates
    path: Path = ("template",) if "template" in keys else ("file",)
    variant = problems.word(keys["variant"], ("variant",)) if "variant" in keys else ""
    if variant and variant not in named:
        problems.add(("variant",), f"there is no template {shown(variant)}{suggestion(variant, named)}")
        return (), ()
    if not variant and named and DEFAULT not in named:
        problems.add(
            path, f"has several templates and none called default; choose one with `variant`: {as_names(named)}"
        )
        return (), ()
    sources = tuple([(name, named[name]) for name in ((variant,) if variant else (DEFAULT, TOOL_USE)) if name in named])
    for name, source in sources:
        if not source:
            problems.add(path, f"the template {as_name(name)} is empty, so every prompt would be empty")
    if variant or len(named) < 2:
        return sources, ()
    with_tools = f", requests with tools get {TOOL_USE}" if TOOL_USE in named else ""
    return sources, (
        f"there are several templates, {as_names(named)}: requests get default{with_tools}, as in transformers; "
        "`variant` chooses one for all",
    )


def _special_tokens(keys: Mapping[str, Any], files: ChatFiles, problems: Problems) -> Mapping[str, str]:
    tokens = dict(files.tokens)
    given = problems.mapping(keys.get("special_tokens", {}), ("special_tokens",), "special_tokens")
    for name, text in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in OURS:
            problems.add(
                ("special_tokens", str(name)),
                "is not a valid token name: use a name such as bos_token, eos_token or image_token",
            )
        else:
            tokens[name] = problems.text(text, ("special_tokens", name))
    return tokens


# ---------------------------------------------------------------- single keys


def _kwargs(keys: Mapping[str, Any], problems: Problems) -> Mapping[str, Any]:
    given = problems.mapping(keys.get("kwargs", {}), ("kwargs",), "kwargs")
    for name in given:
        _check_variable(name, ("kwargs", str(name)), problems)
    return given


def _request_kwargs(keys: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    names = problems.items(keys.get("request_kwargs", ()), ("request_kwargs",))
    for number, name in enumerate(names):
        _check_variable(name, ("request_kwargs", number), problems)
    return tuple([str(name) for name in names])


def _check_variable(name: Any, path: Path, problems: Problems) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        problems.add(path, f"{shown(name)} is not a valid variable name: use letters, digits and _")
    elif name in OURS:
        problems.add(path, f"{name} is set from the request: remove it")
    elif name in TOKENS:
        problems.add(path, f"{name} is a special token: write it under special_tokens")


def _clock(keys: Mapping[str, Any], problems: Problems) -> str:
    value = problems.text(keys.get("clock", FIXED_DAY), ("clock",))
    if value == NOW:
        return ""
    try:
        datetime.fromisoformat(value)
    except ValueError:
        problems.add(("clock",), f"{shown(value)} is not a valid time: write a day such as 2024-07-26, or now")
    return value


# ---------------------------------------------------------------- the rendered text


def _check_rendering(spec: TemplateSpec, keys: Mapping[str, Any], problems: Problems) -> TemplateSpec:
    """The spec with its BOS, which shows in a rendered text; a ``bos`` that contradicts it is a problem."""
    from gateway.template.huggingface.renderer import JinjaTemplate  # imports jinja2, which few gateways need

    assert spec.jinja is not None
    try:
        template = JinjaTemplate(spec)
    except TemplateError as error:
        problems.add(("template",) if "template" in keys else ("file",), error.message)
        return spec
    if spec.tools is not None and not any("tools" in compiled.names for compiled in template.compiled):
        problems.add(
            ("tools",), "the chat template does not use the variable tools, so it cannot write tools: remove this key"
        )
    bos, text = spec.jinja.special_tokens.get("bos_token", ""), ""
    for probe in PROBES:
        with suppress(GatewayError):  # the template refuses this conversation
            text = template.render(Dialogue(probe)).text
            break
    writes_bos = bool(bos) and text.startswith(bos)
    chosen = problems.choice(
        keys.get("bos", "text" if writes_bos else "none"), ("bos",), ("none", "text", "engine"), "none"
    )
    if text and writes_bos != (chosen == "text"):
        problems.add(
            ("bos",),
            f"the template begins with {shown(bos)}: write text, or leave bos out"
            if writes_bos
            else "the template does not begin with its bos_token: write none or engine, or leave bos out",
        )
    return replace(spec, bos=cast(Bos, chosen), bos_text=bos if chosen == "text" else "")
