"""Writes events as JSON for the cache and for recordings, and reads this JSON.

An event is written as the list ``[name of the type, fields]``. Fields with their default value are left out. A text to
read may come from a server that others can write to, so every value is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core import core_schema as schemas

from gateway.wire.json import dump_json, plain_value
from metatemplate.values import fast_paths
from metatemplate.values.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage

EVENT_TYPES: Mapping[str, type[Event]] = {one.__name__: one for one in (Begun, Delta, Finish, Usage, Document)}


def named_events(events: Iterable[Event]) -> list[tuple[str, Event]]:
    """Return (name of the type, event) for each event, as input for ``dump_json``."""
    return [(type(event).__name__, event) for event in events]


def fast_stored_json(value: Any) -> str:
    """Return what ``dump_json`` returns, but not as ASCII: for values that are neither hashed nor compared as text."""
    try:
        if fast_paths.ENABLED:
            return orjson.dumps(value, default=plain_value, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except TypeError:  # a lone surrogate, or an integer of more than 64 bits
        pass
    return dump_json(value)


def load_events(text: str | bytes) -> tuple[Event, ...]:
    """Return the events in a text that ``dump_json(named_events(…))`` wrote. Raises ``ValueError`` for other texts."""
    return make_events(STORED_ANSWER.validate_json(text))


def make_events(rows: Iterable[tuple[str, dict[str, Any]]]) -> tuple[Event, ...]:
    """Return the event of each row (name of the type, fields as JSON). The values are not checked."""
    return tuple([_event(name, values) for name, values in rows])


# ---------------------------------------------------------------- the schema of the text


CONFIG = schemas.CoreConfig(strict=True, extra_fields_behavior="forbid", allow_inf_nan=False)


def _fields(required: dict[str, CoreSchema], optional: dict[str, CoreSchema]) -> CoreSchema:
    """Return the schema of an object with these keys and no others."""
    keys = {
        name: schemas.typed_dict_field(schema, required=name in required)
        for name, schema in {**required, **optional}.items()
    }
    return schemas.typed_dict_schema(keys, config=CONFIG)


def _other_keys(*own: str) -> CoreSchema:
    """Return the schema of an object of a target's further keys. ``own``: keys that the gateway writes beside it."""

    def check(value: dict[str, Any]) -> dict[str, Any]:
        if not value.keys().isdisjoint(own):
            raise ValueError("a key is written by the gateway")
        return value

    return schemas.no_info_after_validator_function(check, JSON_OBJECT)


def _any_of(choices: Sequence[CoreSchema], ref: str | None = None) -> CoreSchema:
    return schemas.union_schema([*choices], mode="left_to_right", ref=ref)


TEXT = schemas.str_schema()
COUNT = schemas.int_schema(ge=0, le=2**53)
INTEGER = schemas.int_schema(ge=-(2**63), lt=2**64)
"""The integers that an answer can contain."""
NUMBER = _any_of([INTEGER, schemas.float_schema()])
BYTES = schemas.list_schema(schemas.int_schema(ge=0, lt=256))
FINISH_REASONS = ["stop", "length", "tool_calls", "content_filter", "function_call"]
JSON_VALUE = schemas.definition_reference_schema("json")
JSON_OBJECT = schemas.dict_schema(TEXT, JSON_VALUE)
JSON_LIST = schemas.list_schema(JSON_VALUE)
TOP = schemas.tuple_schema([TEXT, NUMBER, schemas.nullable_schema(BYTES)])
TOKEN = _fields(
    {"token": TEXT, "logprob": schemas.nullable_schema(NUMBER)},
    {"top": schemas.list_schema(TOP), "bytes": BYTES, "offset": INTEGER},
)
CHOICE_KEYS = _other_keys("index", "delta", "message", "logprobs", "finish_reason")
EVENTS: Mapping[str, CoreSchema] = {
    "Delta": _fields(
        {"index": COUNT},
        {
            "text": TEXT,
            "logprobs": schemas.list_schema(TOKEN),
            "fields": _other_keys("role", "content"),
            "extras": CHOICE_KEYS,
        },
    ),
    "Begun": _fields(
        {"target": TEXT},
        {
            "fields": _other_keys("id", "object", "created", "model", "choices", "usage"),
            "notices": schemas.list_schema(TEXT),
        },
    ),
    "Finish": _fields(
        {"index": COUNT, "reason": schemas.literal_schema(FINISH_REASONS)},
        {
            "matched": _any_of([TEXT, INTEGER]),
            "source": schemas.literal_schema(["engine", "gateway"]),
            "extras": CHOICE_KEYS,
        },
    ),
    "Usage": _fields(
        {"prompt": COUNT, "completion": COUNT},
        {
            "source": schemas.literal_schema(["upstream", "estimated"]),
            "details": _other_keys("prompt_tokens", "completion_tokens", "total_tokens"),
        },
    ),
    "Document": _fields({"body": JSON_OBJECT}, {}),
}
"""Type of an event → its fields. The most frequent type is tried first."""
NAMED_EVENTS = [
    schemas.tuple_schema([schemas.literal_schema([name]), fields], fail_fast=True) for name, fields in EVENTS.items()
]
STORED_ANSWER = SchemaValidator(
    schemas.definitions_schema(
        schemas.list_schema(_any_of(NAMED_EVENTS), fail_fast=True),
        [_any_of([TEXT, NUMBER, schemas.bool_schema(), schemas.none_schema(), JSON_OBJECT, JSON_LIST], ref="json")],
    ),
    CONFIG,
)
"""Checks the JSON of a stored answer. Lone surrogates and JSON nested in more than 200 levels are refused too."""


# ---------------------------------------------------------------- JSON values and events


def _event(name: str, values: dict[str, Any]) -> Event:
    if values.get("logprobs") is not None:
        values["logprobs"] = tuple([_token(**token) for token in values["logprobs"]])
    if "notices" in values:
        values["notices"] = tuple(values["notices"])
    return EVENT_TYPES[name](**values)


def _token(
    token: str,
    logprob: float | None,
    top: list[tuple[str, float, list[int] | None]] | None = None,
    bytes: list[int] | None = None,
    offset: int | None = None,
) -> TokenLogprob:
    alternatives = None
    if top is not None:
        alternatives = tuple([(text, value, None if raw is None else tuple(raw)) for text, value, raw in top])
    return TokenLogprob(token, logprob, alternatives, None if bytes is None else tuple(bytes), offset)
