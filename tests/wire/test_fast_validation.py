"""What is taken without a validator is what the validator takes; what it refuses is refused in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from annotated_types import Gt, MultipleOf
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from gateway.core.dialogue import plain_messages
from gateway.core.errors import RequestError
from gateway.wire.fast_validation import TEXT, Row, rows_of
from gateway.wire.fields import FORBIDDEN, ChatMessage, ChatRequest, CompletionRequest, EmbeddingRequest, Strict
from gateway.wire.requests import read_chat, read_completion
from gateway.wire.validation import CHAT, COMPLETION, EMBEDDING, Shape, first_problem

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.sampled_from([0, 1, 2, 8, 9, 20, 21, -2, 2**31, 2**31 + 1, 2**63 - 1, 2**63, 0.5, 2.0, 2.5,
                                          -0.0, "", "x" * 64, "x" * 65, "x" * 256, "x" * 257, "é" * 64]),
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "x" * 64, "x" * 65, "", 5, None]) | JSON},
    optional={"content": st.text(max_size=5) | JSON, "name": JSON, "tool_calls": JSON},
)
PLAIN = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=5)})
LISTS = st.lists(PLAIN, min_size=1, max_size=3) | st.lists(MESSAGE | JSON, max_size=3)
MESSAGES = LISTS | JSON

SHAPES: dict[str, Shape] = {"chat": CHAT, "completions": COMPLETION, "embeddings": EMBEDDING}
MODELS: dict[str, type[BaseModel]] = {
    "chat": ChatRequest, "completions": CompletionRequest, "embeddings": EmbeddingRequest, "message": ChatMessage,
}  # fmt: skip
REQUIRED: dict[str, dict[str, Any]] = {
    **{name: dict(shape.required) for name, shape in SHAPES.items()}, "message": {"role": "user"},
}  # fmt: skip


def fits(row: Row, value: Any) -> bool:
    kinds, least, most = row
    return type(value) in kinds and bool(least <= (len(value) if kinds is TEXT else value) <= most)


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_a_value_that_fits_its_row_is_valid_and_stays_what_it_is(name: str, data: st.DataObject) -> None:
    rows = rows_of(MODELS[name])
    field, value = data.draw(st.sampled_from(sorted(rows))), data.draw(SCALARS)
    if fits(rows[field], value):
        assert getattr(MODELS[name].model_validate({**REQUIRED[name], field: value}), field) == value


EDGES = {  # field of a chat: values that fit, values that do not
    "temperature": ([0, 0.0, 2, 2.0, 0.7], [-0.1, 2.1, True, "1", None, 3]),
    "max_tokens": ([1, 2**31], [0, 2**31 + 1, 1.0, True, "1"]),
    "seed": ([-(2**63), 2**63 - 1], [2**63, -1e19, 1.5]),
    "user": (["", "x" * 256], ["x" * 257, 5, ["a"]]),
    "stream": ([True, False], [0, 1, "true", None]),
    "model": (["m"], ["", 5]),
}


@pytest.mark.parametrize("field", EDGES)
def test_a_row_has_its_models_edges(field: str) -> None:
    row = rows_of(ChatRequest)[field]
    inside, outside = EDGES[field]
    assert [fits(row, value) for value in inside] == [True] * len(inside)
    assert [fits(row, value) for value in outside] == [False] * len(outside)


class Unknown(Strict):
    """Fields that no row may stand for."""

    open_ended: Annotated[int, Field(ge=0)] | None = None
    unbounded: float | None = None
    looked_at: Annotated[str, AfterValidator(str.strip)] | None = None
    strictly: Annotated[int, Gt(0), Field(le=5)] | None = None
    even: Annotated[int, Field(ge=0, le=8), MultipleOf(2)] | None = None
    pattern: Annotated[str, Field(pattern="a+")] | None = None
    either: str | int | None = None
    anything: Any = None
    twice: Annotated[str, Field(max_length=5), Field(max_length=3)] | None = None


def test_a_constraint_nobody_here_knows_leaves_the_field_to_its_validator() -> None:
    assert rows_of(Unknown) == {}


@given(LISTS)
def test_plain_messages_are_valid_ones(raws: list[Any]) -> None:
    messages = plain_messages(raws)
    if not messages:
        return
    request = ChatRequest.model_validate({"model": "m", "messages": raws})
    assert [(m.role, m.text, m.parts) for m in messages] == [(m.role, m.content, ()) for m in request.messages]
    assert [m.raw for m in messages] == raws
    assert [*messages.texts] == [m.content for m in request.messages]


@given(st.lists(PLAIN, min_size=1, max_size=4))
def test_a_role_and_a_text_need_no_validator(raws: Any) -> None:
    assert plain_messages(raws) is not None


BODIES = {
    "chat": (read_chat, {"model": SCALARS, "messages": MESSAGES}),
    "completions": (read_completion, {"model": SCALARS, "prompt": st.text(max_size=3)}),
}


def refused(read: Callable[[], object]) -> tuple[str | None, str] | None:
    """``param`` and message of the error, in our words; None: it was taken."""
    try:
        read()
    except ValidationError as error:
        first = first_problem(error)
        return first.param, first.message
    except RequestError as error:
        return error.param, error.message
    return None


@pytest.mark.parametrize("name", BODIES)
@given(data=st.data())
def test_a_body_is_refused_when_its_model_refuses_it_and_for_the_same_reason(name: str, data: st.DataObject) -> None:
    read, required = BODIES[name]
    model = SHAPES[name].model
    fields = data.draw(st.dictionaries(st.sampled_from(sorted(model.model_fields)), SCALARS | JSON, max_size=5))
    unknown = data.draw(st.dictionaries(st.sampled_from(["top_k", "x y"]), JSON, max_size=1))
    body = {**unknown, **fields}
    for field, values in required.items():
        body.pop(field, None)
        if data.draw(st.sampled_from([True, True, True, False])):
            body[field] = data.draw(st.just({"model": "m", "messages": [{"role": "user", "content": "hi"}],
                                             "prompt": "hi"}[field]) | values)  # fmt: skip
    expected, refusal = (
        refused(lambda: model.model_validate(body)),
        refused(lambda: read(body, request_id="r", received=0.0)),
    )
    if refusal is not None:
        # What the model takes may still break one of our own rules, and those do not speak like pydantic.
        assert expected == refusal if expected else "nput should" not in refusal[1]
        return
    assert expected is None
    call = read(body, request_id="r", received=0.0)
    assert call.model == body["model"]
    said = {key: value for key, value in body.items() if value is not None}
    assert call.given == said.keys()
    assert {**call.params, **call.unknown}.items() <= said.items()
    assert call.unknown.keys().isdisjoint(model.model_fields)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_forbidden_has_no_row_that_lets_it_pass(name: str) -> None:
    for field in FORBIDDEN:
        kinds, _, _, is_parameter, may_be_null = SHAPES[name].rows[field]
        assert (kinds, is_parameter, may_be_null) == (frozenset(), False, False)
