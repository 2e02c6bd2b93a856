"""Structured output of models that read strings: a request's schema becomes the ``AnswerFormat`` of its exchange.

The schema is that of ``response_format``, or those of the tools with ``strict`` if the request forces a call. The
engine constrains the answer (``backend/openai/request/constraint.py``), and ``answer/answer_check.py`` validates it.
Models that read messages get all these fields unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.backend.openai.request.constraint import constraint_fields, refusing_target
from gateway.calls.route import Route
from gateway.core.answer_markers import Thinking
from gateway.core.call import Call
from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue, RequestError, UnsupportedParameter
from gateway.core.exchange import AnswerFormat, Exchange
from gateway.core.prompt import Notice
from gateway.stream.json_schema.limits import check_limits
from gateway.stream.json_schema.response_format import read_answer_format
from gateway.stream.json_schema.strict import check_strict
from gateway.stream.output_parser import ParserOptions
from gateway.template.tools import choice_of, name_of, tools_of

FIELD = "response_format"

CALL_KEYS: Mapping[str, str] = {"hermes": "arguments", "json": "arguments", "llama3_json": "parameters"}
"""Tool-call format whose call is one JSON object → the key of the arguments."""


def with_strict_call(route: Route, call: Call, dialogue: Dialogue) -> tuple[Call, Dialogue]:
    """Return the call and its conversation, with ``json_call`` if the request forces a call of a tool with ``strict``.

    If a target cannot constrain its answer, the call is forced as without ``strict``, with a notice. Raises
    ``UnsupportedParameter`` if the calls of the model are not JSON.
    """
    if choice_of(dialogue).mode not in ("required", "named") or not any(map(_is_strict, _callable(dialogue))):
        return call, dialogue
    if refusing_target(route.spec.targets) is not None:
        notice = Notice("strict_not_enforced", "a target cannot constrain its answer to JSON")
        return replace(call, notices=(*call.notices, notice)), dialogue
    parser = "" if route.output_parsing is None else route.output_parsing.parser
    if parser and parser not in CALL_KEYS:
        raise UnsupportedParameter(
            f"this model writes its tool calls in the format {parser}, which is not JSON, so strict cannot be "
            "enforced; leave out strict",
            param="tools",
        )
    return call, replace(dialogue, options=replace(dialogue.options, json_call=True))


async def constrained(
    route: Route, call: Call, dialogue: Dialogue, exchange: Exchange, parsing: ParserOptions | None
) -> Exchange:
    """Return the exchange with the format that ``response_format`` or a forced strict call requests.

    Raises ``RequestError`` if the format is invalid, if a target cannot constrain its answer, or if another field of
    the request contradicts the format.
    """
    param = "text.format" if call.echo else FIELD  # the client's name for the field
    wanted = read_answer_format(exchange.params[FIELD], param) if FIELD in exchange.params else None
    if wanted is not None:
        wanted = _checked(route, call, dialogue, exchange, parsing, wanted)
    elif dialogue.options.json_call:
        assert route.output_parsing is not None  # a template without tools has refused the request
        wanted = _call_format(dialogue, CALL_KEYS[route.output_parsing.parser])
    else:
        return exchange
    try:
        constraints(route, wanted, exchange.params)
        await route.schemas.check_schema(wanted, param)
    except RequestError as error:
        if wanted.call_key:  # the schema was made of the tools
            error.param = "tools"
        raise
    return replace(exchange, answer_format=wanted)


def constraints(route: Route, wanted: AnswerFormat, params: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return label of a target → the fields with which its engine constrains the answer.

    Raises ``RequestError`` if a target cannot constrain its answer to this format.
    """
    return {target.label: constraint_fields(wanted, params, target) for target in route.spec.targets}


def _checked(
    route: Route,
    call: Call,
    dialogue: Dialogue,
    exchange: Exchange,
    parsing: ParserOptions | None,
    wanted: AnswerFormat,
) -> AnswerFormat:
    """Return the format with the reasoning that precedes the answer. Raises ``RequestError`` for a contradiction."""
    if dialogue.options.whole or dialogue.options.continue_final:
        name = "add_generation_prompt: false" if dialogue.options.whole else "continue_final_message"
        raise InvalidValue(f"{FIELD} is for a new answer, not for {name}; leave out one of them", param=FIELD)
    if parsing is not None and parsing.calls is not None:
        raise UnsupportedParameter(
            f"an answer in a {FIELD} cannot contain tool calls; send tool_choice: none, or leave out tools or {FIELD}",
            param=FIELD,
        )
    thinking = None if parsing is None else _reasoning(exchange, parsing)
    if thinking is not None and (call.n > 1 or not isinstance(exchange.prompts[0], str)):
        what = "n above 1" if call.n > 1 else "a prompt of token ids (markers: token_ids in the policy)"
        raise UnsupportedParameter(
            f"{FIELD} and {what} cannot be combined for a model that reasons before its answer; "
            "send one request for each answer, or switch the reasoning off",
            param="n" if call.n > 1 else FIELD,
        )
    return replace(wanted, reasoning=thinking)


def _reasoning(exchange: Exchange, parsing: ParserOptions) -> Thinking | None:
    """Return the markers of the reasoning that the answer begins with. None if the prompt has ended the reasoning."""
    thinking, prompt = parsing.thinking, exchange.prompts[0]
    if thinking is not None and isinstance(prompt, str) and prompt.rstrip().endswith(thinking.end):
        return None
    return thinking


def _call_format(dialogue: Dialogue, key: str) -> AnswerFormat:
    """Return the format of one call of a callable tool. Tools without ``strict`` may have any arguments."""
    calls, definitions = [], {}
    for number, tool in enumerate(dialogue.options.tools):
        if tool not in _callable(dialogue):
            continue
        parameters, name = tool["function"].get("parameters"), f"call{number}"
        if not _is_strict(tool):
            parameters = {"type": "object"}
        elif parameters is None:
            parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        else:
            where = f"tools[{number}].function.parameters"
            check_strict(check_limits(parameters, where), where)
        definitions[name] = _moved(parameters, f"#/$defs/{name}")
        calls.append({
            "type": "object",
            "properties": {"name": {"const": name_of(tool)}, key: {"$ref": f"#/$defs/{name}"}},
            "required": ["name", key],
            "additionalProperties": False,
        })  # fmt: skip
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return AnswerFormat(schema={**one, "$defs": definitions}, name="tool_call", call_key=key)


def _moved(schema: Any, root: str) -> Any:
    """Return a copy of a schema whose local references are valid if the schema is at ``root`` of another schema."""
    if isinstance(schema, list):
        return [_moved(one, root) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: root + value[1:]
        if name == "$ref" and isinstance(value, str) and value[:1] == "#"
        else _moved(value, root)
        for name, value in schema.items()
    }


def _callable(dialogue: Dialogue) -> list[Mapping[str, Any]]:
    """Return the tools that the request allows to call."""
    chosen = choice_of(dialogue).name
    return [tool for tool in tools_of(dialogue) if chosen in ("", name_of(tool))]


def _is_strict(tool: Mapping[str, Any]) -> bool:
    return tool["function"].get("strict") is True
