"""Is a file of ``kind: jinja`` usable, and what lies beside it? The chat template, its tokens, and where answers end.

Reads what Hugging Face folders hold, by the rules of ``transformers``: ``chat_template.jinja``, or the key
``chat_template`` of ``tokenizer_config.json``, ``chat_template.json`` and ``processor_config.json``; special tokens
from ``tokenizer_config.json``; the ids that end an answer from ``generation_config.json``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from posixpath import dirname, join
from typing import Any, Literal, cast

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import GatewayError, TemplateError
from gateway.core.prompt import Bos
from gateway.template.check_examples import read_examples
from gateway.template.check_keys import stop_texts, token_id
from gateway.template.check_tools import KEYS as TOOL_KEYS
from gateway.template.check_tools import check_forced, read_thinking, read_tools
from gateway.template.problems import Path, Problems, shown, suggestion
from gateway.template.spec import JinjaSpec, TemplateSpec

Fetch = Callable[[str], bytes | None]
"""A file's bytes, by its path beside the template; None: there is none. Raises ``TemplateError`` if it may not be."""

JINJA_KEYS = (
    "kind", "description", "file", "template", "variant", "sha256", "special_tokens", "kwargs", "request_kwargs",
    "clock", "content", "tool_arguments", "stop", "eos_token_id", "bos", "examples", *TOOL_KEYS,
)  # fmt: skip

TOKENIZER = "tokenizer_config.json"
GENERATION = "generation_config.json"

TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The tokens that ``transformers`` hands to a template."""
OURS = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template")
"""Variables that the gateway fills."""

FROZEN = "2024-07-26"
"""The day that ``strftime_now`` tells unless the file says another: the one that common templates fall back to."""
NOW = "now"

MOST_BYTES = 1024 * 1024
"""Of one file; a tokenizer's configuration with thousands of added tokens has a third of that."""
HEX = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

PROBES = (
    (Message("user", "x"),),
    (Message("system", "x"), Message("user", "x")),
)
"""Conversations that nearly every template takes, to see how a prompt begins."""


class _Folder:
    """The files of a model, as far as the template needs them."""

    def __init__(self, keys: Mapping[str, Any], fetch: Fetch, problems: Problems) -> None:
        self._fetch = fetch
        self._problems = problems
        self.name = problems.word(keys["file"], ("file",)) if "file" in keys else ""
        self.data = self._file(self.name, needed=True) if self.name else None
        pinned = problems.text(keys["sha256"], ("sha256",)) if "sha256" in keys else ""
        if pinned:
            self._check_pin(pinned.lower())
        is_json = self.name.endswith(".json")
        self.own = self._object(self.name, self.data) if is_json and self.data is not None else {}
        is_tokenizer = self.name.endswith(TOKENIZER)
        there = self.data is not None  # a file that is not there has none beside it, and one complaint is enough
        self.tokenizer = self.own if is_tokenizer or not there else self._beside(TOKENIZER)
        self.generation = self._beside(GENERATION) if there else {}

    def source(self) -> Any:
        """What the file says the template is: a text, or several with names."""
        if self.data is None:
            return None
        if self.name.endswith(".json"):
            if "chat_template" not in self.own:
                self._problems.add(("file",), f"{self.name} has no chat_template: name the file that holds it")
            return self.own.get("chat_template")
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            self._problems.add(("file",), f"{self.name} is not UTF-8 at byte {error.start}")
            return None

    def _beside(self, name: str) -> Mapping[str, Any]:
        path = join(dirname(self.name), name)
        data = self._file(path, needed=False)
        return {} if data is None else self._object(path, data)

    def _file(self, name: str, *, needed: bool) -> bytes | None:
        try:
            data = self._fetch(name)
        except TemplateError as error:
            self._problems.add(("file",), error.message)
            return None
        if data is None and needed:
            self._problems.add(("file",), f"there is no {name} beside the template: the path begins at its folder")
        if data is not None and len(data) > MOST_BYTES:
            self._problems.add(("file",), f"{name} has more than {MOST_BYTES} bytes: copy what is needed into another")
            return None
        return data

    def _object(self, name: str, data: bytes) -> Mapping[str, Any]:
        try:
            value = json.loads(data)
        except ValueError as error:
            self._problems.add(("file",), f"{name} is no JSON: {error}")
            return {}
        if not isinstance(value, dict):
            self._problems.add(("file",), f"{name} holds no JSON object")
            return {}
        return value

    def _check_pin(self, pinned: str) -> None:
        if not HEX.fullmatch(pinned):
            self._problems.add(("sha256",), "must be the 64 hex digits of the file's SHA-256")
        elif not self.name:
            self._problems.add(("sha256",), "pins a file, and the template stands in this one: remove it")
        elif self.data is not None and (found := hashlib.sha256(self.data).hexdigest()) != pinned:
            self._problems.add(("sha256",), f"{self.name} has changed, it is {found} now: look at it, then write that")


def read_jinja(keys: Mapping[str, Any], name: str, problems: Problems, fetch: Fetch) -> TemplateSpec:
    """The template of a file's keys; what is wrong goes to ``problems``."""
    problems.keys(keys, JINJA_KEYS, ())
    if ("file" in keys) == ("template" in keys):
        problems.add((), "kind jinja needs `file`, the chat template's file, or `template`, its text: one of the two")
    folder = _Folder(keys, fetch, problems)
    source = problems.word(keys["template"], ("template",)) if "template" in keys else folder.source()
    tokens = _special_tokens(keys, folder, problems)
    spec = TemplateSpec(
        name=name,
        kind="jinja",
        description=problems.text(keys.get("description", ""), ("description",)),
        eos_token_id=token_id(keys, problems),
        stop=stop_texts(keys, problems),
        jinja=JinjaSpec(
            sources=_sources(source, keys, problems),
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
            ends=_ends(tokens, folder),
            end_ids=_end_ids(folder),
        ),
        tools=read_tools(keys, problems, writes=False),
        thinking=read_thinking(keys, problems),
        examples=read_examples(keys.get("examples", ()), problems, sends_messages=False),
    )
    check_forced(spec, problems)
    return spec if problems.found else _with_bos(spec, keys, problems)


# ---------------------------------------------------------------- the template's text


def _sources(source: Any, keys: Mapping[str, Any], problems: Problems) -> tuple[tuple[str, str], ...]:
    path: Path = ("template",) if "template" in keys else ("file",)
    named = _named(source, path, problems)
    wanted = problems.word(keys["variant"], ("variant",)) if "variant" in keys else ""
    if wanted:
        if wanted in named:
            return ((wanted, named[wanted]),)
        problems.add(("variant",), f"there is no template {shown(wanted)}{suggestion(wanted, named)}")
        return ()
    if not named or "default" in named:
        return tuple([(one, named[one]) for one in ("default", "tool_use") if one in named])
    problems.add(path, f"holds several templates and none called default; choose one by `variant`: {', '.join(named)}")
    return ()


def _named(source: Any, path: Path, problems: Problems) -> dict[str, str]:
    """The templates by name; a single one is the default."""
    if isinstance(source, str):
        return {"default": source} if source else {}
    if isinstance(source, dict):
        source = [{"name": one, "template": text} for one, text in source.items()]
    named: dict[str, str] = {}
    for entry in source if isinstance(source, list) else ():
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "template")):
            problems.add(path, "chat_template must be a text, or a list of {name, template}")
            return {}
        named[entry["name"]] = entry["template"]
    return named


# ---------------------------------------------------------------- tokens


def _special_tokens(keys: Mapping[str, Any], folder: _Folder, problems: Problems) -> Mapping[str, str]:
    tokens = {name: text for name in TOKENS if (text := _text_of(folder.tokenizer.get(name)))}
    given = problems.mapping(keys.get("special_tokens", {}), ("special_tokens",), "special_tokens")
    for name, text in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in OURS:
            problems.add(("special_tokens", str(name)), "is no name of a token: bos_token, eos_token, image_token …")
        else:
            tokens[name] = problems.text(text, ("special_tokens", name))
    return tokens


def _text_of(token: Any) -> str:
    """A token as tokenizers write it: its text, or an object with ``content``."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _end_ids(folder: _Folder) -> tuple[int, ...]:
    value = folder.generation.get("eos_token_id")
    return tuple([one for one in (value if isinstance(value, list) else [value]) if type(one) is int and one >= 0])


def _ends(tokens: Mapping[str, str], folder: _Folder) -> tuple[str, ...]:
    """The text of eos_token, and of each id that ends an answer."""
    added = folder.tokenizer.get("added_tokens_decoder")
    texts = [_text_of(added.get(str(one))) for one in _end_ids(folder)] if isinstance(added, dict) else []
    return tuple(dict.fromkeys([text for text in (tokens.get("eos_token", ""), *texts) if text.strip()]))


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
    from gateway.template.jinja.template import JinjaTemplate  # jinja2, only where there is such a template

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
