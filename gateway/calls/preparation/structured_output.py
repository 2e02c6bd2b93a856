"""Structured output of models that read strings: a request's schema becomes the ``AnswerFormat`` of its exchange.

The schema is that of ``response_format``, or that of a forced call (``strict_call.py``). The engine constrains the
answer (``backend/openai/request/constraint.py``), and ``answer/answer_check.py`` validates it. Models that read
messages get all these fields unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.backend.openai.request.constraint import constraint_fields
from gateway.calls.preparation.strict_call import strict_call_format
from gateway.calls.route import Route
from gateway.core.answer_markers import Thinking
from gateway.core.call import Call
from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue, RequestError, UnsupportedParameter
from gateway.core.exchange import AnswerFormat, Exchange
from gateway.stream.json_schema.response_format import read_answer_format
from gateway.stream.output_parser import ParserOptions

FIELD = "response_format"


async def with_answer_format(
    route: Route, call: Call, dialogue: Dialogue, exchange: Exchange, parsing: ParserOptions | None
) -> Exchange:
    """Return the exchange with the format that ``response_format`` or a forced strict call requests.

    Raises ``RequestError`` if the format is invalid, if a target cannot constrain its answer, or if another field of
    the request contradicts the format.
    """
    wanted = None
    if FIELD in exchange.params:
        wanted = read_answer_format(exchange.params[FIELD], "text.format" if call.is_responses_api else FIELD)
    if wanted is not None:
        wanted = _with_reasoning(route, call, dialogue, exchange, parsing, wanted)
    elif dialogue.options.json_call:
        wanted = strict_call_format(route, dialogue)
    else:
        return exchange
    try:
        fields_by_target(route, wanted, exchange.params)
        await route.schemas.check_schema(wanted, call.caller.key)
    except RequestError as error:
        if wanted.call_key:  # the schema was made of the tools
            error.param = "tools"
        raise
    return replace(exchange, answer_format=wanted)


def fields_by_target(route: Route, wanted: AnswerFormat, params: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return label of a target → the fields with which its engine constrains the answer.

    Raises ``RequestError`` if a target cannot constrain its answer to this format.
    """
    return {target.label: constraint_fields(wanted, params, target) for target in route.spec.targets}


def _with_reasoning(
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
    if thinking is None:
        return wanted
    for what, param, is_used in (
        ("n above 1", "n", call.n > 1),
        ("logprobs", "logprobs", bool(exchange.params.get("logprobs"))),
        ("a prompt of token ids (markers: token_ids in the policy)", FIELD, not isinstance(exchange.prompts[0], str)),
    ):
        if is_used:
            raise UnsupportedParameter(
                f"{FIELD} and {what} cannot be combined for a model that reasons before its answer; leave out one of "
                "them, or switch the reasoning off",
                param=param,
            )
    return replace(wanted, reasoning=thinking)


def _reasoning(exchange: Exchange, parsing: ParserOptions) -> Thinking | None:
    """Return the markers of the reasoning that the answer begins with. None if the prompt has ended the reasoning."""
    thinking, prompt = parsing.thinking, exchange.prompts[0]
    if thinking is not None and isinstance(prompt, str) and prompt.rstrip().endswith(thinking.end):
        return None
    return thinking
