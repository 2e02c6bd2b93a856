"""The field that constrains an answer to JSON (``response_format``), as each engine's completions endpoint has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.backend.engines import ENGINES, ConstraintForm, declared_capabilities
from gateway.backend.openai.request.control_fields import words
from gateway.backend.openai.request.request_body import serialise
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import Engine, TargetSpec
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.core.exchange import AnswerFormat

CONSTRAINTS = words(
    "ebnf grammar guided_choice guided_grammar guided_json guided_regex guided_whitespace_pattern json_schema regex "
    "structural_tag structured_outputs"
)
"""The fields with which clients constrain an answer at one of the engines, today or in earlier versions."""

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
"""The JSON Schema of any JSON object."""

INSTEAD: Mapping[Engine, str] = {
    "llamacpp-python": "serve the model with llama-server of llama.cpp (engine: llamacpp), which receives "
    "response_format as json_schema, or "
}
"""Engine without a constraint → the server of the same models that has one, as words for an error."""


def constraint_fields(
    wanted: AnswerFormat, params: Mapping[str, Any], target: TargetSpec, *, has_tools: bool = False
) -> Mapping[str, Any]:
    """Return the fields for the body of a completion whose answer must be JSON. No request is sent.

    ``params``: the parameters of the exchange. ``has_tools``: whether the model's template has tools.

    Raises ``InvalidValue`` if the client sent a constraint of its own, ``UnsupportedParameter`` if the target's engine
    has no constraint.
    """
    if own := sorted(CONSTRAINTS.intersection(params)):
        what = "strict with a forced tool" if wanted.call_key else wanted.param
        message = f"{what} and {own[0]} both constrain the answer; send one of them"
        raise InvalidValue(message, param=own[0])
    field = declared_capabilities(target).constraint
    if field is None:
        raise no_constraint(target, has_tools=has_tools)
    return {field.name: _VALUES[field.form](wanted)}


def refusing_target(targets: Sequence[TargetSpec]) -> TargetSpec | None:
    """Return the first target that cannot constrain an answer to JSON; None if all targets can. No request is sent."""
    return next((target for target in targets if declared_capabilities(target).constraint is None), None)


def no_constraint(target: TargetSpec, *, has_tools: bool = False) -> UnsupportedParameter:
    """Return the error for a target that cannot constrain an answer to JSON.

    ``has_tools``: whether the model's template has tools, so that a tool can take the place of the format.
    """
    server = BACKEND_KINDS[target.speaks].openai_server
    declared = f"engine: {target.engine}" if server else f"speaks: {target.speaks}"
    able = ", ".join([name for name, row in ENGINES.items() if row.constraint is not None])
    instead = INSTEAD.get(target.engine, "")
    tool = "send the schema as a tool of a chat request, or " if has_tools else ""
    return UnsupportedParameter(
        f"the target {target.label} ({declared}) cannot constrain an answer to JSON; {instead}{tool}leave the format "
        f"out and describe it in a message, or use a model whose target has an engine that can (engine: {able}), or "
        "reads messages (speaks: chat)",
        param="response_format",
    )


def _schema(wanted: AnswerFormat) -> Mapping[str, Any]:
    return ANY_OBJECT if wanted.schema is None else wanted.schema


def _vllm(wanted: AnswerFormat) -> Mapping[str, Any]:
    return {"json_object": True} if wanted.schema is None else {"json": wanted.schema}


_VALUES: Mapping[ConstraintForm, Callable[[AnswerFormat], Any]] = {
    "vllm": _vllm,
    "text": lambda wanted: serialise(_schema(wanted)).decode(),
    "object": _schema,
}
"""Form of the field → its value."""
