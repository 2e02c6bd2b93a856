"""Structured output and forced tool calls: what a request's ``response_format`` and ``tool_choice`` make of its answer.

For a model that reads strings, the schema of ``response_format`` or of a forced call (``forced_call.py``) becomes the
``AnswerFormat`` of the exchange, with which the engine constrains the answer
(``backend/openai/request/constraint.py``). Models that read messages get both fields unchanged. For both, an
``AnswerRule`` says what ``answer/answer_check.py`` checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gateway.backend.openai.request.constraint import constraint_fields
from gateway.calls.answer.answer_check import IGNORED, AnswerRule
from gateway.calls.preparation.forced_call import forced_call_format, has_strict_tool
from gateway.calls.route import Route
from gateway.core.call import Call
from gateway.core.errors import InvalidValue, RequestError, UnsupportedParameter
from gateway.core.exchange import AnswerFormat, Exchange
from gateway.stream.json_schema.response_format import checkable_format, read_answer_format
from metatemplate.answers.output_parser import ParserOptions
from metatemplate.templates.tools import choice_of
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Notice
from metatemplate.values.words import printable

FIELD = "response_format"

CONSTRAINED = (
    "Check the engine that the target names; if it is vLLM or SGLang, start it without --reasoning-parser, which "
    "switches the constraint off"
)
FREE_ANSWER = "Describe the form in the messages, or send tool_choice: none"
FREE_CALL = "Nothing constrains the calls of this model: send the request again, or choose an engine that can"
REASONING_PARSER = (
    "If the answer begins with reasoning, such as <think>, start the server with the --reasoning-parser of the model; "
    "otherwise, if it was started with one, start it without, because it can switch the constraint off"
)
BY_PROVIDER = "Not every model and provider enforces this field: choose one that does"
"""The five texts above are what to do about an answer that breaks its rule."""
MAX_REASON = 200
"""The maximum number of characters of a reason in a notice."""

RuledExchange = tuple[Exchange, AnswerRule | None, tuple[Notice, ...]]
"""The exchange to send, the rule for its answers (None: any answer is valid), and notices."""


async def with_answer_rule(
    route: Route, call: Call, dialogue: Dialogue, exchange: Exchange, parsing: ParserOptions | None
) -> RuledExchange:
    """Return the exchange of a chat request, constrained where its engine can, and the rule for its answers.

    Raises ``RequestError`` if the format is invalid, if a target cannot constrain its answer, or if another field of
    the request contradicts the format.
    """
    if route.form == "messages":
        return await _of_messages(route, call, dialogue, exchange)
    choice = choice_of(dialogue)
    if choice.mode in ("required", "named"):
        return await _forced_call(route, call, dialogue, exchange, choice.name)
    wanted = _wanted(call, exchange)
    if wanted is None:
        return exchange, None, ()
    if dialogue.options.whole or dialogue.options.continue_final:
        name = "add_generation_prompt: false" if dialogue.options.whole else "continue_final_message"
        raise InvalidValue(f"{FIELD} is for a new answer, not for {name}; leave out one of them", param=FIELD)
    if parsing is not None and parsing.calls is not None:
        await _check_schema(route, call, wanted)
        reason = "tools may be called" if parsing.tools else "the model writes its answer between special tokens"
        fault = f"{reason}, so nothing constrained the answer, and it is not in the"
        remedy = FREE_ANSWER if parsing.tools else FREE_ANSWER.partition(",")[0]
        rule = AnswerRule(wanted, may_call=bool(parsing.tools), fault=fault, remedy=remedy)
        exchange = replace(_without_format(exchange), checked_format=wanted)
        return exchange, rule, (Notice("answer_checked_only", wanted.param),)
    if parsing is not None and (thinking := _reasoning(exchange, parsing)) is not None:
        _check_two_calls(call, exchange)
        wanted = replace(wanted, reasoning=thinking)
    await _check_format(route, call, wanted, exchange.params)
    return replace(exchange, answer_format=wanted), AnswerRule(wanted, remedy=CONSTRAINED), ()


async def with_completion_rule(route: Route, call: Call, exchange: Exchange) -> tuple[Exchange, AnswerRule | None]:
    """Return the exchange of a completions request with the format of its answers, and the rule for the answers.

    Errors: see ``with_answer_rule``.
    """
    wanted = _wanted(call, exchange)
    if wanted is None:
        return exchange, None
    if exchange.params.get("echo"):
        raise InvalidValue(f"{FIELD} is for an answer without the prompt; leave out echo or {FIELD}", param="echo")
    await _check_format(route, call, wanted, exchange.params)
    return replace(exchange, answer_format=wanted), AnswerRule(wanted, remedy=CONSTRAINED)


def fields_by_target(route: Route, wanted: AnswerFormat, params: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return label of a target → the fields with which its engine constrains the answer.

    Raises ``RequestError`` if a target cannot constrain its answer, or if the client sent a constraint of its own.
    """
    has_tools = route.template.spec.tools is not None
    targets = route.spec.targets
    return {target.label: constraint_fields(wanted, params, target, has_tools=has_tools) for target in targets}


def _wanted(call: Call, exchange: Exchange) -> AnswerFormat | None:
    return read_answer_format(exchange.params.get(FIELD), _name(call))


def _name(call: Call) -> str:
    """Return the client's name of the field."""
    return "text.format" if call.is_responses_api else FIELD


def _without_format(exchange: Exchange) -> Exchange:
    return replace(exchange, params={name: value for name, value in exchange.params.items() if name != FIELD})


async def _check_format(route: Route, call: Call, wanted: AnswerFormat, params: Mapping[str, Any]) -> None:
    """Raise ``RequestError`` if a target cannot constrain its answer, or if the schema is invalid."""
    fields_by_target(route, wanted, params)
    await _check_schema(route, call, wanted)


async def _check_schema(route: Route, call: Call, wanted: AnswerFormat) -> None:
    """Raise ``InvalidValue`` if the schema is invalid."""
    assert route.schemas is not None
    await route.schemas.check_schema(wanted, call.caller.key)


# ---------------------------------------------------------------- forced calls of models that read strings


async def _forced_call(route: Route, call: Call, dialogue: Dialogue, exchange: Exchange, tool: str) -> RuledExchange:
    """Return what ``with_answer_rule`` returns. The form of the answer is that of the call, so another one is dropped.

    ``tool``: the tool that must be called; empty: any tool.
    """
    notices = (Notice("omitted_parameter", FIELD),) if FIELD in exchange.params else ()
    exchange = _without_format(exchange)
    if not dialogue.options.json_call:
        return exchange, AnswerRule(forced_tool=tool, remedy=FREE_CALL), notices
    wanted = await _constraint(route, call, dialogue, exchange.params)
    form = forced_call_format(route, dialogue) if has_strict_tool(dialogue) else None
    exchange = replace(exchange, answer_format=wanted, checked_format=form)
    return exchange, AnswerRule(form, forced_tool=tool, remedy=CONSTRAINED), notices


async def _constraint(route: Route, call: Call, dialogue: Dialogue, params: Mapping[str, Any]) -> AnswerFormat:
    """Return the format to which the engine constrains a forced call: with the declared parameters, if it can."""
    wanted = forced_call_format(route, dialogue)
    with suppress(RequestError):
        declared = forced_call_format(route, dialogue, declared=True)
        await _check_format(route, call, declared, params)
        return declared
    try:
        await _check_format(route, call, wanted, params)
    except RequestError as error:
        error.param = "tools"  # the schema was made of the tools
        raise
    return wanted


# ---------------------------------------------------------------- reasoning


def _reasoning(exchange: Exchange, parsing: ParserOptions) -> Thinking | None:
    """Return the markers of the reasoning that the answer begins with. None if the prompt has ended the reasoning."""
    thinking, prompt = parsing.thinking, exchange.rendered
    if thinking is not None and prompt is not None and prompt.text.rstrip().endswith(thinking.end):
        return None
    return thinking


def _check_two_calls(call: Call, exchange: Exchange) -> None:
    """Raise ``UnsupportedParameter`` for what cannot be combined with reasoning before a constrained answer."""
    for what, param, is_used in (
        ("n above 1", "n", call.n > 1),
        ("logprobs", "logprobs", bool(exchange.params.get("logprobs"))),
        (
            "a prompt of token ids (prompt: ids of the targets, or markers: token_ids in the policy)",
            FIELD,
            not isinstance(exchange.prompts[0], str),
        ),
    ):
        if is_used:
            raise UnsupportedParameter(
                f"{FIELD} and {what} cannot be combined for a model that reasons before its answer; leave out one of "
                "them, or switch the reasoning off",
                param=param,
            )


# ---------------------------------------------------------------- models that read messages


async def _of_messages(route: Route, call: Call, dialogue: Dialogue, exchange: Exchange) -> RuledExchange:
    params, notices = exchange.params, list[Notice]()
    form = None
    try:
        form = checkable_format(params.get(FIELD), _name(call))
        if form is not None:
            _check_new_answer(dialogue, exchange)
            await _check_schema(route, call, form)
    except InvalidValue as error:  # the target may know more, so the request is sent
        form, reason = None, printable(error.message.partition(";")[0])[:MAX_REASON]
        notices.append(Notice("answer_unchecked", reason))
    forced = _forced_tool(params)
    if form is None and forced is None:
        return exchange, None, tuple(notices)
    rule = AnswerRule(
        form,
        forced_tool=forced,
        may_call=bool(params.get("tools") or params.get("functions")),
        fault="the provider ignored" if any(one.speaks == "litellm" for one in route.spec.targets) else IGNORED,
        remedy=REASONING_PARSER if any(one.engine in ("vllm", "sglang") for one in route.spec.targets) else BY_PROVIDER,
        lenient=True,
    )
    return exchange, rule, tuple(notices)


def _check_new_answer(dialogue: Dialogue, exchange: Exchange) -> None:
    """Raise ``InvalidValue`` if the answer may only be the rest of a message."""
    if dialogue.options.whole or (exchange.messages and exchange.messages[-1].get("role") == "assistant"):
        raise InvalidValue("the answer may continue the last message", param=FIELD)


def _forced_tool(params: Mapping[str, Any]) -> str | None:
    """Return the tool that the request forces; empty: any tool. None if it forces no call, or in an unknown form."""
    choice = params.get("tool_choice") or params.get("function_call")
    if isinstance(choice, str):
        return "" if choice in ("required", "any") else None
    if not isinstance(choice, Mapping):
        return None
    kind = choice.get("type", "function")
    if kind == "function":
        name = choice.get("function", choice)
        name = name.get("name") if isinstance(name, Mapping) else None
        return name if isinstance(name, str) else None
    allowed = choice.get("allowed_tools")
    required = isinstance(allowed, Mapping) and allowed.get("mode") == "required"
    return "" if kind == "custom" or required else None
