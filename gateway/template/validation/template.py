"""From the content of a template file to its checked form; every mistake is reported at once.

The keys of OpenCompass keep their names, so that a ``meta_template`` can be pasted. Files on which the reference
crashes later are refused here (``docs/spec/opencompass.md`` 12). ``null`` means absent, as in shipped configs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from gateway.core.prompt import Bos
from gateway.template.huggingface.folder.reader import Fetch, Names
from gateway.template.roles import SYSTEM
from gateway.template.spec.template import RoleSpec, TemplateSpec
from gateway.template.validation.examples import read_examples
from gateway.template.validation.jinja import read_jinja
from gateway.template.validation.keys import stop_texts, token_id
from gateway.template.validation.problems import Problems, SpecError, shown
from gateway.template.validation.prompter import read_prompter
from gateway.template.validation.roles import check_roles, is_api, read_reserved, read_round
from gateway.template.validation.tools import KEYS as TOOL_KEYS
from gateway.template.validation.tools import check_forced, check_written, read_thinking, read_tools, refuse_tools

__all__ = ["SpecError", "parse_spec"]

KINDS = ("meta", "prompter", "jinja", "chat")
BOS = ("none", "text", "engine")
TURNS = ("natural", "opencompass")

CHAT_KEYS = ("kind", "description", "stop", "eos_token_id", "examples")
META_KEYS = (
    *CHAT_KEYS, "begin", "end", "round", "reserved_roles", "roles", "bos", "bos_text", "turns", "media", *TOOL_KEYS,
)  # fmt: skip
TEXT_ONLY_KEYS = {
    "end": "it is not sent to an API model; remove it",
    "bos": "an API model writes its own; remove it",
    "bos_text": "an API model writes its own; remove it",
    "media": "messages carry media themselves; remove it",
}
"""Keys without effect in a template that makes messages, and why."""

Reader = Callable[[Mapping[str, Any], str, Problems], TemplateSpec]


def _alone(name: str) -> bytes | None:
    """``fetch`` for a template that is not from a file."""
    return None


def _empty(name: str) -> tuple[str, ...]:
    """``names`` for a template that is not from a file."""
    return ()


def parse_spec(
    raw: Mapping[str, Any],
    *,
    name: str,
    digest: str = "",
    generates: bool = True,
    fetch: Fetch = _alone,
    names: Names = _empty,
) -> TemplateSpec:
    """The file's keys, checked and frozen. Raises SpecError with every problem found.

    ``generates``: False for a template that only shows complete conversations. Then no role needs to generate, and the
    round may be missing, which means no meta template at all.
    ``fetch`` reads a file beside the template's, ``names`` lists a folder there, for kinds that name another file.
    """
    problems = Problems()
    keys = problems.mapping(raw, (), "a template")
    if problems.found:
        raise SpecError(problems.found)
    kind = _kind(keys, problems)
    readers: Mapping[str, Reader] = {
        "meta": partial(_meta, generates=generates),
        "prompter": read_prompter,
        "jinja": partial(read_jinja, fetch=fetch, names=names),
        "chat": _chat,
    }
    spec = TemplateSpec(name, "chat") if kind is None else readers[kind](keys, name, problems)
    if problems.found:
        raise SpecError(problems.found)
    return replace(spec, digest=digest)


def _kind(keys: Mapping[str, Any], problems: Problems) -> str | None:
    kind = keys.get("kind", "meta")
    before = len(problems.found)
    chosen = problems.choice(kind, ("kind",), KINDS, "meta")
    return chosen if len(problems.found) == before else None


def _chat(keys: Mapping[str, Any], name: str, problems: Problems) -> TemplateSpec:
    for key in keys:
        if key in META_KEYS and key not in (*CHAT_KEYS, *TOOL_KEYS):
            problems.add((key,), f"kind chat sends messages untouched, so {key} has no effect; remove it")
    refuse_tools(keys, problems)
    problems.keys({key: None for key in keys if key not in META_KEYS}, CHAT_KEYS, ())
    return TemplateSpec(
        name=name,
        kind="chat",
        description=problems.text(keys.get("description", ""), ("description",)),
        eos_token_id=token_id(keys, problems),
        stop=stop_texts(keys, problems),
        examples=read_examples(keys.get("examples", ()), problems, sends_messages=True),
    )


def _meta(keys: Mapping[str, Any], name: str, problems: Problems, *, generates: bool) -> TemplateSpec:
    problems.keys(keys, META_KEYS, ())
    round_ = read_round(keys, problems) if generates or "round" in keys else ()
    reserved = read_reserved(keys, problems)
    api = is_api(round_, reserved, problems)
    if api:
        _check_api(keys, round_, problems)
        refuse_tools(keys, problems)
    spec = TemplateSpec(
        name=name,
        kind="meta",
        description=problems.text(keys.get("description", ""), ("description",)),
        begin=_begin(keys, problems, api=api),
        end=problems.text(keys.get("end", ""), ("end",)),
        round=round_,
        reserved_roles=reserved,
        eos_token_id=token_id(keys, problems),
        roles=_roles(keys, problems),
        stop=stop_texts(keys, problems),
        bos=cast(Bos, problems.choice(keys.get("bos", "none"), ("bos",), BOS, "none")),
        bos_text=problems.word(keys["bos_text"], ("bos_text",)) if "bos_text" in keys else "",
        turns=cast(Any, problems.choice(keys.get("turns", "natural"), ("turns",), TURNS, "natural")),
        media=problems.word(keys["media"], ("media",)) if "media" in keys else None,
        tools=None if api else read_tools(keys, problems, writes=True),
        thinking=None if api else read_thinking(keys, problems),
        examples=read_examples(keys.get("examples", ()), problems, sends_messages=api),
    )
    _check_bos(spec, keys, problems)
    check_roles(spec, problems, generates=generates)
    check_written(spec, problems)
    check_forced(spec, problems)
    return spec


# ---------------------------------------------------------------- single keys


def _begin(keys: Mapping[str, Any], problems: Problems, *, api: bool) -> str:
    """Text; for an API model also ``{role: SYSTEM, prompt: …}`` with the same meaning, as in the reference."""
    begin = keys.get("begin", "")
    if not api or not isinstance(begin, Mapping):
        return problems.text(begin, ("begin",))
    problems.keys(begin, ("role", "prompt"), ("begin",))
    if begin.get("role") != SYSTEM:
        problems.add(("begin", "role"), "must be SYSTEM: the begin of an API template is a system message")
    return problems.text(begin.get("prompt", ""), ("begin", "prompt"))


def _roles(keys: Mapping[str, Any], problems: Problems) -> Mapping[str, str]:
    mapping = problems.mapping(keys.get("roles", {}), ("roles",), "roles")
    return {str(key): problems.word(value, ("roles", str(key))) for key, value in mapping.items()}


# ---------------------------------------------------------------- keys that must fit together


def _check_api(keys: Mapping[str, Any], round_: tuple[RoleSpec | str, ...], problems: Problems) -> None:
    for key, advice in TEXT_ONLY_KEYS.items():
        if key in keys and keys[key] not in ("", "none"):
            problems.add((key,), f"has no effect in a template with api_role: {advice}")
    for number, entry in enumerate(round_):
        if isinstance(entry, str):
            problems.add(("round", number), "bare text has no role, so it cannot become a message; remove it")


def _check_bos(spec: TemplateSpec, keys: Mapping[str, Any], problems: Problems) -> None:
    if spec.bos != "text":
        if "bos_text" in keys:
            problems.add(("bos_text",), "applies only to bos: text; set bos to text or remove bos_text")
    elif not spec.bos_text:
        problems.add(("bos",), "bos: text needs bos_text, the marker that `begin` starts with")
    elif not spec.begin.startswith(spec.bos_text):
        problems.add(("bos_text",), f"must be the start of `begin`: write {shown(spec.bos_text)} there")
