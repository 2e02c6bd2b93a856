"""Checks the keys of template files of ``kind: jinja``. ``chat_templates/folder.py`` reads the model's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from metatemplate.chat_templates.folder import (
    DEFAULT,
    OURS,
    TOKENS,
    TOOL_USE,
    VARIABLE_NAME,
    ChatFiles,
    Fetch,
    Names,
    read_chat_files,
)
from metatemplate.errors import MetaTemplateError, TemplateFailure
from metatemplate.files.file_types import file_type
from metatemplate.files.problems import Problems
from metatemplate.templates.spec import JinjaSpec, TemplateSpec
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.json_values import KeyPath
from metatemplate.values.kinds import NonEmpty
from metatemplate.values.prompt import Bos
from metatemplate.values.words import listed, printable, shown, suggest

JINJA_KEYS = (
    "kind",
    "description",
    "file",
    "template",
    "variant",
    "sha256",
    "special_tokens",
    "kwargs",
    "request_kwargs",
    "clock",
    "content",
    "tool_arguments",
    "stop",
    "eos_token_id",
    "bos",
    "examples",
    "tools",
    "thinking",
    "markers",
)
WORDS = ("file", "template", "variant", "sha256")
JINJA_FILE = file_type(
    "jinja",
    JINJA_KEYS,
    JinjaSpec,
    TemplateSpec,
    **dict.fromkeys(WORDS, NonEmpty),
    special_tokens=Mapping[str, str],
    kwargs=Mapping[str, Any],
)
OWN = ("request_kwargs", "clock", "content", "tool_arguments")
"""The keys that are fields of ``JinjaSpec``."""

FIXED_DAY = "2024-07-26"
"""The time of ``strftime_now`` if the file has no ``clock``. Common templates use this day as a default."""
NOW = "now"

PROBES = ((Message("user", "x"),), (Message("system", "x"), Message("user", "x")))
"""Two conversations. Nearly every template accepts at least one of the two."""


def read_jinja(
    keys: Mapping[str, Any], spec: TemplateSpec, problems: Problems, fetch: Fetch, names: Names
) -> TemplateSpec:
    """Check the keys of ``kind: jinja`` and return the spec. Mistakes are added to ``problems``."""
    if ("file" in keys) == ("template" in keys):
        problems.add((), "write exactly one of the keys `file` (path of the chat template) and `template` (its text)")
    given = {name: keys[name] for name in WORDS if name in keys}
    files = _read_files(given, fetch, names, problems)
    sources, choice = _choose_sources(files, given, problems)
    for number, name in enumerate(keys.get("request_kwargs", ())):
        _check_variable(name, ("request_kwargs", number), problems)
    kwargs = {name: value for name, value in keys.get("kwargs", {}).items() if value is not None}
    for name in kwargs:
        _check_variable(name, ("kwargs", str(name)), problems)
    tokens = _special_tokens(keys, files, problems)
    jinja = JinjaSpec(
        sources=sources,
        special_tokens=tokens,
        kwargs=kwargs,
        clock_given="clock" in keys,
        ends=tuple(dict.fromkeys([text for text in (tokens.get("eos_token", ""), *files.ends) if text.strip()])),
        end_ids=files.end_ids,
        further_special_tokens=files.special,
        files=files.used,
        names=tuple(files.templates),
        disagreements=files.notes,
        choice=choice,
        **{
            **{name: keys[name] for name in OWN if name in keys},
            "clock": _clock(keys.get("clock", FIXED_DAY), problems),
        },
    )
    return replace(spec, jinja=jinja)


def _read_files(given: Mapping[str, str], fetch: Fetch, names: Names, problems: Problems) -> ChatFiles:
    """Read the named file and the other files of the model's folder, or the text in the template file."""
    name = given.get("file", "")
    if "sha256" in given:
        with suppress(TemplateFailure):  # reading the file then adds a problem
            data = fetch(name) if name else given.get("template", "").encode("utf-8", "replace")
            if data is not None and (actual := hashlib.sha256(data).hexdigest()) != given["sha256"].lower():
                changed = name or "the template"
                problems.add(
                    ("sha256",), f"{changed} has changed: check the content, then write the new SHA-256, {actual}"
                )
    files = ChatFiles()
    try:
        files = read_chat_files(name, fetch, names) if name else files
    except TemplateFailure as error:
        problems.add(("file",), error.message)
    return replace(files, templates={DEFAULT: given["template"]}) if "template" in given else files


def _choose_sources(
    files: ChatFiles, given: Mapping[str, str], problems: Problems
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return (name, source) of the templates in use, and a note on the choice if there are several templates."""
    named = files.templates
    path: KeyPath = ("template",) if "template" in given else ("file",)
    variant = given.get("variant", "")
    if variant and variant not in named:
        problems.add(("variant",), f"the file has no template {shown(variant)}{suggest(variant, named)}")
        return (), ()
    if not variant and named and DEFAULT not in named:
        problems.add(path, f"has no template named default; set `variant` to one of its templates: {listed(named)}")
        return (), ()
    sources = tuple([(name, named[name]) for name in ((variant,) if variant else (DEFAULT, TOOL_USE)) if name in named])
    for name, source in sources:
        if not source:
            problems.add(path, f"the template {printable(name)} is empty, so every prompt would be empty")
    if variant or len(named) < 2:
        return sources, ()
    with_tools = f", and requests with tools use {TOOL_USE}" if TOOL_USE in named else ""
    return sources, (
        f"there are several templates ({listed(named)}): requests use default{with_tools}, as in transformers; "
        "to use one template for all requests, set `variant`",
    )


def _special_tokens(keys: Mapping[str, Any], files: ChatFiles, problems: Problems) -> Mapping[str, str]:
    given = keys.get("special_tokens", {})
    for name in [name for name in given if not VARIABLE_NAME.fullmatch(name) or name in OURS]:
        problems.add(
            ("special_tokens", name),
            "is not a valid token name: use a name such as bos_token, eos_token or image_token",
        )
    return {**files.tokens, **given}


def _check_variable(name: Any, path: KeyPath, problems: Problems) -> None:
    if not isinstance(name, str) or not VARIABLE_NAME.fullmatch(name):
        problems.add(path, f"{shown(name)} is not a valid variable name: use letters, digits and _")
    elif name in OURS:
        problems.add(path, f"the gateway sets the variable {name} itself; remove it")
    elif name in TOKENS:
        problems.add(path, f"{name} is a special token: write it under special_tokens")


def _clock(value: str, problems: Problems) -> str:
    if value == NOW:
        return ""
    try:
        datetime.fromisoformat(value)
    except ValueError:
        problems.add(("clock",), f"{shown(value)} is not a valid time: write a day such as 2024-07-26, or now")
    return value


def check_rendering(spec: TemplateSpec, keys: Mapping[str, Any], problems: Problems) -> TemplateSpec:
    """Return the spec with the BOS that a rendered text begins with. A contradicting ``bos`` is a problem."""
    from metatemplate.chat_templates.renderer import JinjaTemplate  # this imports jinja2, which few gateways need

    assert spec.jinja is not None
    try:
        template = JinjaTemplate(spec)
    except TemplateFailure as error:
        problems.add(("template",) if "template" in keys else ("file",), error.message)
        return spec
    if spec.tools is not None and not any("tools" in compiled.names for compiled in template.compiled):
        problems.add(
            ("tools",), "the chat template does not use the variable tools, so it cannot write tools: remove this key"
        )
    bos, text = spec.jinja.special_tokens.get("bos_token", ""), ""
    for probe in PROBES:
        with suppress(MetaTemplateError):  # the template refuses this conversation
            text = template.render(Dialogue(probe)).text
            break
    writes_bos = bool(bos) and text.startswith(bos)
    chosen: Bos = spec.bos if "bos" in keys else "text" if writes_bos else "none"
    if text and writes_bos != (chosen == "text"):
        problems.add(
            ("bos",),
            f"the template begins with {shown(bos)}: set bos to text, or remove bos"
            if writes_bos
            else "the template does not begin with its bos_token: set bos to none or engine, or remove bos",
        )
    jinja = replace(spec.jinja, failures=template.notes)
    return replace(spec, bos=chosen, bos_text=bos if chosen == "text" else "", jinja=jinja)
