"""Is a file of ``kind: jinja`` usable? Its keys, over what ``chat_files.py`` reads in the model's folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, cast

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import GatewayError, TemplateError
from gateway.core.prompt import Bos
from gateway.template.huggingface.folder.chat_template import ChatFiles, read_chat_files
from gateway.template.huggingface.folder.named_templates import DEFAULT
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

TOOL_USE = "tool_use"
"""The named template that ``transformers`` takes when a request brings tools."""

FROZEN = "2024-07-26"
"""The day that ``strftime_now`` tells unless the file says another: the one that common templates fall back to."""
NOW = "now"

HEX = re.compile(r"[0-9a-f]{64}")

PROBES = (
    (Message("user", "x"),),
    (Message("system", "x"), Message("user", "x")),
)
"""Conversations that nearly every template takes, to see how a prompt begins."""


def read_jinja(keys: Mapping[str, Any], name: str, problems: Problems, fetch: Fetch, names: Names) -> TemplateSpec:
    """The template of a file's keys; what is wrong goes to ``problems``."""
    problems.keys(keys, JINJA_KEYS, ())
    if ("file" in keys) == ("template" in keys):
        problems.add((), "kind jinja needs `file`, the chat template's file, or `template`, its text: one of the two")
    files = _files(keys, fetch, names, problems)
    sources, choice = _sources(files, keys, problems)
    tokens = _special_tokens(keys, files, problems)
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
            content=cast(
                Literal["text", "parts"],
                problems.choice(keys.get("content", "text"), ("content",), ("text", "parts"), "text"),
            ),
            tool_arguments=cast(
                Literal["object", "text"],
                problems.choice(
                    keys.get("tool_arguments", "object"), ("tool_arguments",), ("object", "text"), "object"
                ),
            ),
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
    return spec if problems.found else _with_bos(spec, keys, problems)


# ---------------------------------------------------------------- the files


def _files(keys: Mapping[str, Any], fetch: Fetch, names: Names, problems: Problems) -> ChatFiles:
    """What the named file and those beside it say; or the text that stands in the template's own file."""
    name = problems.word(keys["file"], ("file",)) if "file" in keys else ""
    if "sha256" in keys:
        _check_pin(keys, name, fetch, problems)
    files = read_chat_files(name, fetch, names, problems) if name else ChatFiles()
    return (
        replace(files, templates={DEFAULT: problems.word(keys["template"], ("template",))})
        if "template" in keys
        else files
    )


def _check_pin(keys: Mapping[str, Any], name: str, fetch: Fetch, problems: Problems) -> None:
    pinned = problems.text(keys["sha256"], ("sha256",)).lower()
    if not HEX.fullmatch(pinned):
        problems.add(("sha256",), "must be the 64 hex digits of the file's SHA-256")
        return
    if not name:
        problems.add(("sha256",), "pins a file, and the template stands in this one: remove it")
        return
    with suppress(TemplateError):  # told when the file is read
        data = fetch(name)
        if data is not None and (found := hashlib.sha256(data).hexdigest()) != pinned:
            problems.add(("sha256",), f"{name} has changed, it is {found} now: look at it, then write that")


def _sources(
    files: ChatFiles, keys: Mapping[str, Any], problems: Problems
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The templates that requests get, and what a person should know of the choice."""
    named = files.templates
    path: Path = ("template",) if "template" in keys else ("file",)
    wanted = problems.word(keys["variant"], ("variant",)) if "variant" in keys else ""
    if wanted and wanted not in named:
        problems.add(("variant",), f"there is no template {shown(wanted)}{suggestion(wanted, named)}")
        return (), ()
    if not wanted and named and DEFAULT not in named:
        problems.add(
            path,
            f"holds several templates and none called default; choose one by `variant`: {as_names(named)}",
        )
        return (), ()
    sources = tuple([(one, named[one]) for one in ((wanted,) if wanted else (DEFAULT, TOOL_USE)) if one in named])
    for one, text in sources:
        if not text:
            problems.add(
                path, f"the template {as_name(one)} is empty, and would make an empty prompt of any conversation"
            )
    if wanted or len(named) < 2:
        return sources, ()
    other = f", those with tools get {TOOL_USE}" if TOOL_USE in named else ""
    return sources, (
        f"there are several templates, {as_names(named)}: requests get default{other}, as in transformers; "
        "`variant` chooses one for all",
    )


def _special_tokens(keys: Mapping[str, Any], files: ChatFiles, problems: Problems) -> Mapping[str, str]:
    tokens = dict(files.tokens)
    given = problems.mapping(keys.get("special_tokens", {}), ("special_tokens",), "special_tokens")
    for name, text in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in OURS:
            problems.add(("special_tokens", str(name)), "is no name of a token: bos_token, eos_token, image_token …")
        else:
            tokens[name] = problems.text(text, ("special_tokens", name))
    return tokens


# ---------------------------------------------------------------- single keys


def _kwargs(keys: Mapping[str, Any], problems: Problems) -> Mapping[str, Any]:
    given = problems.mapping(keys.get("kwargs", {}), ("kwargs",), "kwargs")
    for name in given:
        _check_name(name, ("kwargs", str(name)), problems)
    return given


def _request_kwargs(keys: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    names = problems.items(keys.get("request_kwargs", ()), ("request_kwargs",))
    for place, name in enumerate(names):
        _check_name(name, ("request_kwargs", place), problems)
    return tuple([str(name) for name in names])


def _check_name(name: Any, path: Path, problems: Problems) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        problems.add(path, f"{shown(name)} is no name of a variable: letters, digits and _")
    elif name in OURS:
        problems.add(path, f"{name} is filled from the request: remove it")
    elif name in TOKENS:
        problems.add(path, f"{name} is a special token: write it under special_tokens")


def _clock(keys: Mapping[str, Any], problems: Problems) -> str:
    value = problems.text(keys.get("clock", FROZEN), ("clock",))
    if value == NOW:
        return ""
    try:
        datetime.fromisoformat(value)
    except ValueError:
        problems.add(("clock",), f"{shown(value)} is no moment: write a day as 2024-07-26, or now")
    return value


def _with_bos(spec: TemplateSpec, keys: Mapping[str, Any], problems: Problems) -> TemplateSpec:
    """The spec, with what a rendering shows of its BOS; a ``bos`` that says otherwise is refused."""
    from gateway.template.huggingface.renderer import JinjaTemplate  # jinja2, only where there is such a template

    assert spec.jinja is not None
    try:
        template = JinjaTemplate(spec)
    except TemplateError as error:
        problems.add(("template",) if "template" in keys else ("file",), error.message)
        return spec
    if spec.tools is not None and not any("tools" in script.names for script in template.scripts):
        problems.add(("tools",), "the chat template never speaks of tools, so none could be written: remove it")
    bos, begins = spec.jinja.special_tokens.get("bos_token", ""), ""
    for probe in PROBES:
        try:
            begins = template.render(Dialogue(probe)).text
        except GatewayError:
            continue  # the template wants another conversation; its examples will show
        break
    writes = bool(bos) and begins.startswith(bos)
    said = problems.choice(keys.get("bos", "text" if writes else "none"), ("bos",), ("none", "text", "engine"), "none")
    if begins and writes != (said == "text"):
        problems.add(
            ("bos",),
            f"the template begins with {shown(bos)}: write text, or leave bos out"
            if writes
            else "the template does not begin with its bos_token: write none or engine, or leave bos out",
        )
    return replace(spec, bos=cast(Bos, said), bos_text=bos if said == "text" else "")
