"""Checks ``params`` of a policy with the tables that check requests: the names, types and ranges of OpenAI's fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from gateway.config.schema.kinds import describe
from gateway.config.snapshot import ParamsPolicy
from gateway.core.errors import InvalidValue
from gateway.wire.request_fields import FORBIDDEN, NEVER_SENT
from gateway.wire.validation import CHAT, COMPLETION, EMBEDDING, BodySchema, json_forms, value_problem
from metatemplate.files.yaml import YamlDocument
from metatemplate.values.words import closest, quoted

# Parameter → reason why a policy cannot set it.
RESERVED: Mapping[str, str] = {
    "model": "set it at the target in gateway.yaml",
    **dict.fromkeys(("messages", "prompt", "input"), "it comes from the client's request"),
    **dict.fromkeys(("stream", "stream_options", "n"), "only the client can set it"),
    "stop": "list it in the template, under stop",
    **dict.fromkeys(("url", "base_url", "api_base"), "set it at the target in gateway.yaml, as url"),
    **dict.fromkeys(("key", "api_key", "headers", "extra_headers"), "set secrets at the target, as key"),
    **dict.fromkeys(("timeout", "max_retries", "num_retries"), "set timeouts and attempts under delivery"),
    **dict.fromkeys(("extra_body", "gateway"), "write its parameters here directly"),
    **dict.fromkeys(NEVER_SENT, "no target receives it"),
}
ESSENTIAL = dict.fromkeys(("model", "messages", "prompt", "input"), "every call needs it")
NEVER_ALLOWED = dict.fromkeys(FORBIDDEN, "no policy can allow it")

ENDPOINTS = (CHAT, COMPLETION, EMBEDDING)
PARAMETERS = frozenset().union(*[schema.model.model_fields for schema in ENDPOINTS]) - RESERVED.keys()
"""The fields of requests that a policy may set."""
TYPES: Mapping[str, str] = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
"""Type in a JSON schema → the type in words."""
NUMBERS = ("integer", "number")
PARTS: Mapping[type, str] = {str: "string", list: "array", dict: "object"}
"""The types that a value may have without being valid, because of its length or of a value inside."""


def check_params(document: YamlDocument, params: ParamsPolicy) -> None:
    """Add a problem to the document for each parameter of a policy that cannot be what the operator meant."""
    forbidden = dict.fromkeys(params.forbid or (), "params.forbid lists it too; keep only one of the two")
    for section, reasons in (
        ("force", RESERVED),
        ("default", RESERVED),
        ("clamp", RESERVED),
        ("forbid", ESSENTIAL),
        ("allow", {**forbidden, **NEVER_ALLOWED}),
    ):
        for name in getattr(params, section) or ():
            if name in reasons:
                path = ("params", section) if section in ("allow", "forbid") else ("params", section, name)
                document.refuse(path, f"{quoted(name)} is not allowed here: {reasons[name]}")
    for name in params.default or ():
        if name in (params.force or ()):
            message = "is never used, because params.force sets the same parameter; keep only one"
            document.refuse(("params", "default", name), message)
    # An operator may set what no client may send, and any field of an engine that the policy allows.
    allowed = frozenset(params.allow or ())
    free = RESERVED.keys() | ((allowed | FORBIDDEN) - PARAMETERS)
    for section in ("force", "default", "clamp"):
        for name, value in (getattr(params, section) or {}).items():
            problem = None if name in free else _problem(name, value, is_bound=section == "clamp")
            if problem is None and name == "response_format" and name not in allowed:
                problem = _format_problem(value)
            if problem is not None:
                document.refuse(("params", section, name), problem)


def _problem(name: str, value: Any, *, is_bound: bool) -> str | None:
    """Return what is wrong with a name or its value. ``is_bound``: the value is an upper bound of the parameter."""
    if name not in PARAMETERS:
        meant = closest(name, PARAMETERS, 0.85)  # the engines' top_k is not a mistake for top_p
        hint = f" (did you mean {quoted(meant)}?)" if meant is not None else ""
        return f"unknown parameter{hint}; for a field of your engine list it in params.allow"
    forms = _forms(name)
    if is_bound:
        if forms.keys().isdisjoint(NUMBERS):
            return f"has no upper bound, because it must be {' or '.join(forms.values())}; remove it"
        value = int(value) if value == int(value) else value
    schemas = _schemas(name)
    problems = [problem for schema in schemas if (problem := value_problem(schema, name, value)) is not None]
    if value is not None and len(problems) < len(schemas):
        return None
    if PARTS.get(type(value)) in forms:  # the problem is inside the value
        return problems[0]
    return f"must be {' or '.join(forms.values())}, not {describe(value)}"


def _format_problem(value: Any) -> str | None:
    """Return what is wrong with a ``response_format``. An engine may have more forms, which a policy can allow."""
    from gateway.stream.json_schema.response_format import read_answer_format

    try:
        read_answer_format(value)
    except InvalidValue as error:
        return f"{error.message}; for a form of your engine list response_format in params.allow"
    return None


def _schemas(name: str) -> list[BodySchema]:
    """Return the schemas of the endpoints that have a parameter."""
    return [schema for schema in ENDPOINTS if name in schema.model.model_fields]


@cache
def _forms(name: str) -> Mapping[str, str]:
    """Return the forms of a parameter at all endpoints: type → type and range in words."""
    forms: dict[str, str] = {}
    for schema in _schemas(name):
        for form in json_forms(schema, name):
            limits = f" from {form['minimum']} to {form['maximum']}" if "minimum" in form else ""
            forms.setdefault(form["type"], TYPES[form["type"]] + limits)
    return forms
