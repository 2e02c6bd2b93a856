"""The job of the subprocess that checks schemas and answers. Only this subprocess imports ``jsonschema``.

A schema is read as draft 2020-12. Formats such as ``date-time`` are not checked. No reference is loaded from elsewhere:
``limits.py`` has refused such references, and the registry has no function that loads a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from math import isinf
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from metatemplate.limited_process.process import Reply
from metatemplate.values.json_values import JSON_TYPES, MAX_DEPTH, deeper_than
from metatemplate.values.words import printable, quoted

MAX_VALUE = 80
"""The largest number of characters of a value of the schema in a message."""
MAX_KEY = 30
"""The largest number of characters of a key of the answer in a message."""
MAX_ANSWER_PLACE = 60
"""The largest number of characters of the place in a message."""
MAX_DIGITS = 1000
"""The largest number of digits of an integer in an answer. The time to read an integer grows with the square."""
MAX_SCHEMAS = 32
"""The number of parsed schemas that the subprocess keeps for later answers."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

_metaschema = Draft202012Validator(
    Draft202012Validator.META_SCHEMA,
    registry=Registry(),
    format_checker=FormatChecker(["regex"]),  # a pattern that Python does not understand could not be checked
)


def do_job(job: Mapping[str, Any]) -> Reply:
    """Check the schema ``job["schema"]``, or the text ``job["answer"]`` against this schema. Both are texts of JSON.

    The schema is None for ``json_object``. The reply has ``problem``, which is None for a valid schema or answer, and
    for a schema ``place``, the keys to the problem. It has ``failed`` instead if the schema cannot be checked.
    """
    try:
        if "answer" in job:
            return {"problem": _answer_problem(job["schema"], job["answer"])}, ""
        return _check_schema(job["schema"]), ""
    except RecursionError:
        return {"failed": "it needs too many steps inside each other"}, ""
    except MemoryError:
        return {"failed": "it needs too much memory"}, ""
    except (ArithmeticError, LookupError, TypeError, ValueError, re.error, Unresolvable) as error:
        # jsonschema raises Python's errors for some schemas, such as those with very large numbers.
        return {"failed": f"the check ended with {type(error).__name__}"}, ""


def _check_schema(schema: str) -> dict[str, Any]:
    first = next(_metaschema.iter_errors(json.loads(schema)), None)
    if first is None:
        return {"problem": None}
    closest = best_match([first])
    problem = _description(closest)
    if [*closest.schema_path][-2:] == ["type", "anyOf"]:
        problem = f"must be one of {', '.join(TYPES)}, or a list of them without repetitions"
    return {"problem": problem, "place": list(closest.absolute_path)}


@lru_cache(maxsize=MAX_SCHEMAS)
def _validator(schema: str) -> Draft202012Validator:
    value = json.loads(schema)
    for keyword in ("$id", "$schema"):  # they would change how references and keywords are read
        value.pop(keyword, None)
    return Draft202012Validator(value, registry=Registry())


def _answer_problem(schema: str | None, text: str) -> str | None:
    try:
        answer = _read(text)
    except ValueError as error:
        return f"the text {error}"
    if schema is None:
        return None if isinstance(answer, dict) else f"the text must be a JSON object, not {JSON_TYPES[type(answer)]}"
    first = next(_validator(schema).iter_errors(answer), None)
    if first is None:
        return None
    closest = best_match([first])
    return f"{_place(closest)} {_description(closest)}"


# ---------------------------------------------------------------- messages

TYPES: Mapping[str, str] = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
PROBLEMS: Mapping[str | None, str] = {
    # Keyword → the problem. {} is the keyword's value. None is the schema ``false``.
    None: "has a part that the schema does not allow",
    "anyOf": "matches none of the schemas in anyOf",
    "const": "must be {}",
    "contains": "has too few items that match the schema in contains",
    "enum": "must be one of {}",
    "exclusiveMaximum": "must be less than {}",
    "exclusiveMinimum": "must be greater than {}",
    "format": "is not a regular expression that Python can use",
    "items": "has more items than the schema allows",
    "maxContains": "has more than {} items that match the schema in contains",
    "maxItems": "must have at most {} items",
    "maxLength": "must have at most {} characters",
    "maxProperties": "must have at most {} keys",
    "maximum": "must be at most {}",
    "minContains": "must have at least {} items that match the schema in contains",
    "minItems": "must have at least {} items",
    "minLength": "must have at least {} characters",
    "minProperties": "must have at least {} keys",
    "minimum": "must be at least {}",
    "multipleOf": "must be a multiple of {}",
    "not": "must not match the schema in not",
    "oneOf": "must match exactly one of the schemas in oneOf",
    "pattern": "does not match the pattern {}",
    "unevaluatedItems": "has items that no part of the schema allows",
    "unevaluatedProperties": "has keys that no part of the schema allows",
    "uniqueItems": "must not have equal items",
}


def _place(error: ValidationError) -> str:
    """Return the place in the answer, such as ``$.items[0].name``."""
    keys = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path]
    return quoted("$" + "".join(keys), MAX_ANSWER_PLACE)[1:-1]


def _description(error: ValidationError) -> str:
    """Return what is wrong with a value, without the value itself."""
    keyword: Any = error.validator
    value: Any = error.validator_value
    instance: Any = error.instance
    if keyword == "type":
        kinds = [TYPES.get(kind, "another value") for kind in ([value] if isinstance(value, str) else value)]
        return f"must be {' or '.join(kinds)}, not {JSON_TYPES[type(instance)]}"
    if keyword == "required":
        missing = next((key for key in value if key not in instance), "")
        return f"has no key {quoted(missing, MAX_VALUE)}, which is required"
    if keyword == "additionalProperties":
        return f"has the key {quoted(_additional(error), MAX_KEY)}, which the schema does not allow"
    problem = PROBLEMS.get(keyword, f"does not satisfy {keyword}")
    if "{}" not in problem:
        return problem
    text = json.dumps(value, ensure_ascii=False)
    return problem.replace("{}", printable(text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"))


def _additional(error: ValidationError) -> str:
    """Return the first key of an object that ``properties`` and ``patternProperties`` do not have."""
    schema: Any = error.schema
    answer: Any = error.instance
    patterns = schema.get("patternProperties", {})
    keys = (key for key in answer if key not in schema.get("properties", {}))
    return next((key for key in keys if not any(re.search(pattern, key) for pattern in patterns)), "")


# ---------------------------------------------------------------- the text of an answer

TOO_DEEP = f"is JSON that is nested deeper than {MAX_DEPTH} levels"


def _read(text: str) -> Any:
    """Return the JSON value of a text. Raises ``ValueError`` for all that JSON does not allow.

    Of equal keys the last one counts, as for clients: no engine's grammar can exclude equal keys.
    """
    if not text.strip(" \t\r\n"):
        raise ValueError("is empty; it must be JSON")
    if _SURROGATE.search(text):
        raise ValueError("is not valid JSON: it has half of a surrogate pair")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_float, parse_int=_integer)
    except json.JSONDecodeError as error:
        problem = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        if error.msg == "Extra data":
            problem = "there is text after the end"
        raise ValueError(f"is not valid JSON: {problem} (character {error.pos})") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if deeper_than(value, MAX_DEPTH):
        raise ValueError(TOO_DEEP)
    if _SURROGATE_ESCAPE.search(text) and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("is not valid JSON: a string has half of a surrogate pair")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"is not valid JSON: {constant} is not a number of JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError("has a number that is too large")
    return number


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"has a number of more than {MAX_DIGITS} digits")
    return int(digits)
