"""Structured output with the OpenAI SDK for Python: models of the four engines that can constrain an answer."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field, ValidationError

from tests.journeys.sdk import SdkWorld, user
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import world_fixture

ENGINES = ("vllm", "sglang", "llamacpp")
MODEL = "  {name}: {{template: chatml-tools, targets: [{{speaks: completions, url: '{url}', engine: {engine}}}]}}\n"


class Step(BaseModel):
    """One step of a calculation."""

    operation: Literal["add", "subtract"]
    operands: list[int] = Field(max_length=3)


class Report(BaseModel):
    ok: bool
    name: str = Field(max_length=8, description="A short name.")
    first: Step = Field(description="The first step.")
    more: list[Step] = Field(max_length=2)
    note: str | None = None


def config(up: FaultyUpstream) -> str:
    rows = [(engine, up.url(f"constrained-{engine}"), engine) for engine in ENGINES]
    rows += [
        ("prose", up.url("constraint-ignored"), "vllm"),
        ("other-form", up.url("constraint-ignored", text='{"ok": true}'), "vllm"),
        ("cut", up.url("constrained-vllm", cut=4), "vllm"),
        ("unknown", up.url("ok"), "openai"),
    ]
    return "models:\n" + "".join(MODEL.format(name=name, url=url, engine=engine) for name, url, engine in rows)


class World(SdkWorld):
    def parse(self, model: str, stream: bool, **fields: Any) -> Any:
        """Return the chat completion that the SDK has parsed, also from a stream."""
        asked: dict[str, Any] = {"model": model, "messages": user("hi"), **fields}
        if not stream:
            return self.client.chat.completions.parse(**asked)
        with self.client.chat.completions.stream(**asked) as events:
            return events.get_final_completion()

    def respond(self, model: str, stream: bool, **fields: Any) -> Any:
        """Return the response that the SDK has parsed, also from a stream."""
        asked: dict[str, Any] = {"model": model, "input": "hi", "text_format": Report, **fields}
        if not stream:
            return self.client.responses.parse(**asked)
        with self.client.responses.stream(**asked) as events:
            return events.get_final_response()


world = world_fixture(config, {}, World)
whole_and_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.mark.parametrize("engine", ENGINES)
@whole_and_stream
def test_the_sdk_parses_a_chat_completion(world: World, engine: str, stream: bool) -> None:
    choice = world.parse(engine, stream, response_format=Report).choices[0]
    assert isinstance(choice.message.parsed, Report)
    assert choice.finish_reason == "stop"
    assert Report.model_validate_json(choice.message.content) == choice.message.parsed


@pytest.mark.parametrize("engine", ENGINES)
@whole_and_stream
def test_the_sdk_parses_a_response(world: World, engine: str, stream: bool) -> None:
    response = world.respond(engine, stream)
    assert isinstance(response.output_parsed, Report)
    assert response.status == "completed"
    assert Report.model_validate_json(response.output_text) == response.output_parsed


def test_the_events_of_a_stream_make_the_object_bit_by_bit(world: World) -> None:
    with world.client.chat.completions.stream(model="vllm", messages=user("hi"), response_format=Report) as events:
        snapshots = [event.parsed for event in events if event.type == "content.delta"]
    assert snapshots[0] != snapshots[-1]
    assert Report.model_validate(snapshots[-1])


@pytest.mark.parametrize("engine", ENGINES)
@whole_and_stream
def test_a_forced_strict_tool_gets_arguments_of_its_type(world: World, engine: str, stream: bool) -> None:
    tools = [openai.pydantic_function_tool(Report, name="report")]
    completion = world.parse(engine, stream, tools=tools, tool_choice="required")
    (call,) = completion.choices[0].message.tool_calls
    assert call.function.name == "report"
    assert isinstance(call.function.parsed_arguments, Report)


@whole_and_stream
def test_a_forced_strict_tool_of_a_response_gets_arguments_of_its_type(world: World, stream: bool) -> None:
    function: Any = openai.pydantic_function_tool(Report, name="report")["function"]
    tool = {"type": "function", **function}
    response = world.respond("vllm", stream, text_format=openai.omit, tools=[tool], tool_choice="required")
    (call,) = response.output
    assert call.name == "report"
    assert Report.model_validate_json(call.arguments)


IGNORED = "server ignored (response_format|text.format)"


@whole_and_stream
def test_an_engine_that_ignores_the_schema_raises_an_error_of_the_sdk(world: World, stream: bool) -> None:
    with pytest.raises(openai.APIError, match=IGNORED) as caught:
        world.parse("other-form", stream, response_format=Report)
    assert (caught.value.code, caught.value.param) == ("upstream_ignored_parameter", "response_format")
    assert '$ has no key "name", which is required' in caught.value.message
    assert isinstance(caught.value, openai.InternalServerError) is not stream  # a stream began with status 200


@whole_and_stream
def test_an_engine_that_answers_with_prose_raises_an_error_of_the_sdk(world: World, stream: bool) -> None:
    for ask in (partial(world.parse, response_format=Report), world.respond):
        with pytest.raises(openai.InternalServerError, match=f"{IGNORED}: the text begins with") as caught:
            ask("prose", stream)
        assert (caught.value.status_code, caught.value.code) == (502, "upstream_ignored_parameter")


def test_an_engine_that_ignores_the_schema_of_a_response_raises_an_error(world: World) -> None:
    with pytest.raises(openai.InternalServerError, match=IGNORED) as caught:
        world.respond("other-form", False)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_ignored_parameter")
    with pytest.raises(RuntimeError, match=r"Didn't receive a `response\.completed` event"):
        world.respond("other-form", True)
    with world.client.responses.stream(model="other-form", input="hi", text_format=Report) as events:
        last = list(events)[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert str(last.response.error.code) == "upstream_ignored_parameter"
    assert last.response.error.message.startswith("the model's server ignored text.format")


@whole_and_stream
def test_an_answer_that_was_cut_raises_an_error_of_the_sdk(world: World, stream: bool) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        world.parse("cut", stream, response_format=Report)
    with pytest.raises(ValidationError, match="Invalid JSON"):  # the SDK parses a response before its end is known
        world.respond("cut", stream)


@whole_and_stream
def test_an_engine_without_a_constraint_refuses_the_schema_by_name(world: World, stream: bool) -> None:
    for ask in (partial(world.parse, response_format=Report), world.respond):
        with pytest.raises(openai.BadRequestError, match="engine: openai") as caught:
            ask("unknown", stream)
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "response_format")
