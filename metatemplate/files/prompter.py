"""Checks template files of ``kind: prompter``. A file that would fail in every request is refused.

The keys have the names of LazyLLM's parameters. ``marks`` has the tokens that LazyLLM finds by the model's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from typing_extensions import TypedDict

from metatemplate.errors import InputError
from metatemplate.files.file_types import file_type
from metatemplate.files.meta import check_bos
from metatemplate.files.problems import Problems
from metatemplate.prompters.dialects import DIALECTS, PrompterDialect
from metatemplate.prompters.filler import slots_in
from metatemplate.prompters.tokens import default_tokens, family, family_names, family_of_model
from metatemplate.templates.spec import TOKEN_NAMES, PrompterSpec, SpecialTokens, TemplateSpec, ToolsSpec
from metatemplate.templates.tools import tools_of
from metatemplate.values.answer_markers import ToolTokens
from metatemplate.values.dialogue import Dialogue, RenderOptions
from metatemplate.values.kinds import TextOr
from metatemplate.values.words import shown, suggest

# As a class it would have a docstring, which would stand in the JSON Schema.
InstructionParts = TypedDict("InstructionParts", {"system": str, "user": str}, total=False)  # noqa: UP013
InstructionForms = TextOr[InstructionParts]

PROMPTER_KEYS = (
    "kind",
    "description",
    "class",
    "instruction",
    "extra_keys",
    "input_slot",
    "history",
    "history_messages",
    "tools",
    "default_tools",
    "marks",
    "marks_of",
    "dialect",
    "exact",
    "get_response",
    "thinking",
    "stop",
    "eos_token_id",
    "bos",
    "bos_text",
    "examples",
    "markers",
)
PROMPTER_FILE = file_type(
    "prompter",
    PROMPTER_KEYS,
    PrompterSpec,
    TemplateSpec,
    **{"class": Literal["alpaca", "chat", "empty"]},
    marks_of=str,
    marks=file_type("marks", TOKEN_NAMES, SpecialTokens),
    dialect=Any,
    exact=Any,
    instruction=InstructionForms,
    history=tuple[tuple[str, ...], ...],
)
OWN = ("extra_keys", "input_slot", "history", "history_messages", "get_response", "default_tools")
"""The keys that are fields of ``PrompterSpec``."""
WITHOUT_EFFECT = {
    "alpaca": dict.fromkeys(("history", "history_messages"), "a prompt of this class has only one turn"),
    "empty": dict.fromkeys(
        ("instruction", "extra_keys", "input_slot", "history", "history_messages", "tools", "default_tools"),
        "this class sends the user message unchanged",
    ),
}
"""Class → the keys that have no effect, with the reason."""


def read_prompter(keys: Mapping[str, Any], spec: TemplateSpec, problems: Problems) -> TemplateSpec:
    """Check the keys of ``kind: prompter`` and return the spec. Mistakes are added to ``problems``."""
    prompter = _prompter(keys, problems)
    if spec.tools is not None:
        spec = replace(spec, tools=_with_tokens(spec.tools, prompter.tokens, problems))
    check_bos(spec, prompter.tokens.sos if prompter.form == "chat" else "", "sos", problems)
    if not problems.found:
        _check_slots(prompter, problems)
    return replace(spec, prompter=prompter)


def _prompter(keys: Mapping[str, Any], problems: Problems) -> PrompterSpec:
    if "class" not in keys:
        problems.add(("class",), "is missing: write one of alpaca, chat, empty")
    form = keys.get("class", "chat")
    for key, reason in WITHOUT_EFFECT.get(form, {}).items():
        if key in keys:
            problems.add((key,), f"has no effect with class {form}: {reason}; remove this key")
    if "exact" in keys:
        problems.add(("exact",), "was removed: slots are found in the template alone, in one pass; remove this key")
    dialect = DIALECTS[problems.choice(str(keys.get("dialect", "1.4")), ("dialect",), tuple(DIALECTS))]
    tokens, stop_words = _tokens(keys, dialect, problems)
    spec = PrompterSpec(
        form=form,
        tokens=tokens,
        instruction=_instruction(keys.get("instruction", ""), dialect, problems),
        tools="tools" in keys,
        stop_words=stop_words,
        dialect=dialect.name,
        **{name: keys[name] for name in OWN if name in keys},
    )
    for number, key in enumerate(spec.extra_keys):
        if key and not key.replace("_", "a").isalnum():
            problems.add(("extra_keys", number), f"{shown(key)} is not a valid slot name: use letters, digits and _")
    for number, pair in enumerate(spec.history):
        if len(pair) != 2:
            problems.add(("history", number), "must be a pair of texts, user and assistant")
    for number, message in enumerate(spec.history_messages):
        if not isinstance(message.get("role"), str):
            problems.add(
                ("history_messages", number), "must be a message with a role, such as {role: user, content: hi}"
            )
    try:
        tools_of(Dialogue((), RenderOptions(tools=spec.default_tools)))
    except InputError as error:
        problems.add(("default_tools",), error.message.replace("tools[", "default_tools[", 1))
    if spec.get_response and not dialect.modern and spec.form == "chat" and not spec.tokens.soa:
        problems.add(
            ("get_response",), f"needs the mark soa: with dialect {dialect.name} LazyLLM fails if soa is empty"
        )
    return spec


def _tokens(
    keys: Mapping[str, Any], dialect: PrompterDialect, problems: Problems
) -> tuple[SpecialTokens, tuple[str, ...]]:
    """Return the special tokens and the family's stop words. The file's tokens override the family's tokens."""
    tokens, stop_words = default_tokens(dialect), ()
    if "marks_of" in keys:
        given = keys["marks_of"]
        name = given if given in family_names() else family_of_model(given, dialect)
        if name:
            tokens = tokens.updated(family(name, dialect))
            stop_words = tuple(family(name).get("stop_words", ()))
        else:
            problems.add(
                ("marks_of",),
                f"{shown(given)} is neither a family of LazyLLM's table nor a model for which "
                f"LazyLLM finds a family{suggest(given, family_names())}",
            )
    return tokens.updated(keys.get("marks", {})), stop_words


def _instruction(value: Any, dialect: PrompterDialect, problems: Problems) -> str | tuple[str, str]:
    if isinstance(value, str):
        return value
    if dialect.parts == "none":
        problems.add(("instruction",), f"dialect {dialect.name} has no system and user parts; write one text")
    return value.get("system", ""), value.get("user", "")


def _with_tokens(tools: ToolsSpec, tokens: SpecialTokens, problems: Problems) -> ToolsSpec:
    """Add the prompter's tool-call tokens to the tools. The parser ``lazyllm`` finds tool calls by these tokens."""
    missing = [name for name, token in tokens.tool_tokens if not token]
    if missing:
        # LazyLLM then reads the token names as slots, and refuses every request with tools.
        problems.add(("tools",), f"needs the marks {', '.join(missing)}: write them under marks")
    if tools.parser != "lazyllm" or tools.tokens != ToolTokens():
        return tools
    return replace(tools, tokens=ToolTokens(*[token or "" for _, token in tokens.tool_tokens]))


def _check_slots(spec: PrompterSpec, problems: Problems) -> None:
    slots = slots_in(spec)
    if spec.input_slot and spec.input_slot not in slots:
        problems.add(
            ("input_slot",),
            f"the instruction has no slot {shown(spec.input_slot)}; its slots: {', '.join(slots) or 'none'}",
        )
    if spec.form == "alpaca" and len(slots) != 1 and not spec.input_slot:
        missing = "write a slot into the instruction" if not slots else "set input_slot to the name of this slot"
        problems.add(("class",), f"class alpaca writes the user's message into a slot of the instruction: {missing}")
