"""The parameters that are sent to a target, and the notices for the client."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from gateway.config.snapshot import ParamsPolicy
from gateway.core.call import Call
from gateway.core.errors import ForbiddenParameter, InvalidValue, RequestError, UnsupportedParameter
from gateway.core.exchange import EndpointName
from gateway.policy.admit.parameters import CHAT_ONLY, EffectiveParameters, ParameterPolicy
from gateway.wire.request_fields import OPENAI_DEFAULTS
from metatemplate.values.prompt import Notice

UNKNOWN = {"top_k": 5, "min p\n": 1}


def call(unknown: dict[str, Any] | None = None, n: int = 1, stops: tuple[str, ...] = (), **params: Any) -> Call:
    given = frozenset({"model", "messages", "n", "stop", *params, *(unknown or {})})
    return Call("chat", "m", "r", params=params, unknown=unknown or {}, given=given, n=n, stops=stops)


def apply(requested: Call, policy: ParamsPolicy) -> EffectiveParameters:
    """Apply only the policy: message targets get the client's parameter names."""
    parameters = ParameterPolicy(policy, requested.endpoint, "messages")
    parameters.check(requested)
    return parameters.effective(requested)


def said(effective: EffectiveParameters) -> list[str]:
    return [str(notice) for notice in effective.notices]


APPLIED: dict[str, tuple[Call, ParamsPolicy, dict[str, Any], list[str]]] = {
    # requested, policy, sent, notices
    "nothing": (call(), ParamsPolicy(), {}, []),
    "known fields pass": (call(temperature=0.5, seed=7), ParamsPolicy(), {"temperature": 0.5, "seed": 7}, []),
    "unknown, forwarded": (call({"top_k": 5}, seed=7), ParamsPolicy(), {"seed": 7, "top_k": 5}, []),
    "unknown, dropped": (
        call(UNKNOWN, seed=7), ParamsPolicy(unknown="drop"), {"seed": 7}, ["dropped_parameter: min?p? top_k"],
    ),
    "many unknown, dropped": (
        call({f"x{i}": 1 for i in range(20)}), ParamsPolicy(unknown="drop"), {},
        ["dropped_parameter: x0 x1 x10 x11 x12 x13 x14 x15"],
    ),
    "nothing unknown to reject": (call(seed=7), ParamsPolicy(unknown="reject"), {"seed": 7}, []),
    "what is forbidden was not sent": (call(seed=7), ParamsPolicy(forbid=("n", "stop", "logprobs")), {"seed": 7}, []),
    "a default fills in": (
        call(), ParamsPolicy(default={"temperature": 0}), {"temperature": 0}, ["default_parameter: temperature=0"],
    ),
    "a default gives way": (call(temperature=1), ParamsPolicy(default={"temperature": 0}), {"temperature": 1}, []),
    "a default gives way to zero": (call(top_p=0), ParamsPolicy(default={"top_p": 1}), {"top_p": 0}, []),
    "a default limit gives way to its other name": (
        call(max_completion_tokens=5), ParamsPolicy(default={"max_tokens": 9}), {"max_completion_tokens": 5}, [],
    ),
    "within the bound": (call(temperature=0.5), ParamsPolicy(clamp={"temperature": 0.5}), {"temperature": 0.5}, []),
    "beyond the bound": (
        call(temperature=1.5), ParamsPolicy(clamp={"temperature": 0.5}), {"temperature": 0.5},
        ["clamped_parameter: temperature=0.5"],
    ),
    "a whole number beyond a fraction": (
        call(temperature=2), ParamsPolicy(clamp={"temperature": 0.5}), {"temperature": 0.5},
        ["clamped_parameter: temperature=0.5"],
    ),
    "a whole number stays whole": (
        call(max_tokens=9000), ParamsPolicy(clamp={"max_tokens": 4096.0}), {"max_tokens": 4096},
        ["clamped_parameter: max_tokens=4096"],
    ),
    "a bound holds for the other name": (
        call(max_completion_tokens=9000), ParamsPolicy(clamp={"max_tokens": 4096}), {"max_completion_tokens": 4096},
        ["clamped_parameter: max_completion_tokens=4096"],
    ),
    "a bound on an unknown field": (
        call({"top_k": 50}), ParamsPolicy(clamp={"top_k": 5}), {"top_k": 5}, ["clamped_parameter: top_k=5"],
    ),
    "a bound on what is no number": (
        call({"top_k": "50"}, logprobs=True), ParamsPolicy(clamp={"top_k": 5, "logprobs": 0}),
        {"top_k": "50", "logprobs": True}, [],
    ),
    "a bound invents nothing": (call(), ParamsPolicy(clamp={"temperature": 0.5}), {}, []),
    "a bound on a raw prompt's limit invents nothing": (
        Call("completions", "m", "r"), ParamsPolicy(clamp={"max_tokens": 5}), {}, [],
    ),
    "a default is bounded too": (
        call(), ParamsPolicy(default={"max_tokens": 9}, clamp={"max_tokens": 5}), {"max_tokens": 5},
        ["default_parameter: max_tokens=9", "clamped_parameter: max_tokens=5"],
    ),
    "forced": (
        call(temperature=1), ParamsPolicy(force={"temperature": 0}), {"temperature": 0},
        ["forced_parameter: temperature=0"],
    ),
    "forced, not sent": (call(), ParamsPolicy(force={"seed": 1}), {"seed": 1}, ["forced_parameter: seed=1"]),
    "forced, the same": (call(seed=1), ParamsPolicy(force={"seed": 1}), {"seed": 1}, []),
    "forced beyond the bound": (
        call(), ParamsPolicy(force={"max_tokens": 9}, clamp={"max_tokens": 5}), {"max_tokens": 9},
        ["forced_parameter: max_tokens=9"],
    ),
    "forced under the other name": (
        call(max_completion_tokens=9), ParamsPolicy(force={"max_tokens": 5}), {"max_tokens": 5},
        ["forced_parameter: max_tokens=5"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("requested", "policy", "params", "notices"), APPLIED.values(), ids=APPLIED)
def test_the_policy_is_applied_to_the_parameters(
    requested: Call, policy: ParamsPolicy, params: dict[str, Any], notices: list[str]
) -> None:
    effective = apply(requested, policy)
    assert dict(effective.params) == params
    assert {name: type(value) for name, value in effective.params.items()} == {
        name: type(value) for name, value in params.items()
    }
    assert said(effective) == notices


REFUSED: dict[str, tuple[Call, ParamsPolicy, type[RequestError], str]] = {
    "unknown": (call(UNKNOWN), ParamsPolicy(unknown="reject"), UnsupportedParameter, "min?p?"),
    "forbidden": (call(logprobs=True), ParamsPolicy(forbid=("logprobs",)), ForbiddenParameter, "logprobs"),
    "forbidden, unknown": (call({"top_k": 1}), ParamsPolicy(forbid=("top_k",)), ForbiddenParameter, "top_k"),
    "forbidden before it is dropped": (
        call({"top_k": 1}),
        ParamsPolicy(forbid=("top_k",), unknown="drop"),
        ForbiddenParameter,
        "top_k",
    ),
    "forbidden, under its other name": (
        call(max_completion_tokens=1),
        ParamsPolicy(forbid=("max_tokens",)),
        ForbiddenParameter,
        "max_completion_tokens",
    ),
    "several choices": (call(n=2), ParamsPolicy(forbid=("n",)), ForbiddenParameter, "n"),
    "stops": (call(stops=("a",)), ParamsPolicy(forbid=("stop",)), ForbiddenParameter, "stop"),
}


@pytest.mark.parametrize(("requested", "policy", "error", "param"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_parameter(
    requested: Call, policy: ParamsPolicy, error: type[RequestError], param: str
) -> None:
    with pytest.raises(error) as raised:
        apply(requested, policy)
    assert raised.value.param == param
    with pytest.raises(error, match=re.escape(str(raised.value))):
        ParameterPolicy(policy, "chat").check(requested)


def test_a_field_that_is_an_attribute_of_the_call_can_be_forbidden() -> None:
    for name in ("stream_options", "continue_final_message", "gateway"):
        requested = Call("chat", "m", "r", given=frozenset({"model", "messages", "stream", name}), stream=True)
        with pytest.raises(ForbiddenParameter) as raised:
            apply(requested, ParamsPolicy(forbid=(name,)))
        assert raised.value.param == name


SAMPLED = {"temperature": 0, "top_k": 5, "max_completion_tokens": 9, "echo": False, "reasoning_effort": "low"}
POLICY_FIELDS: dict[str, tuple[EndpointName, dict[str, Any], dict[str, Any]]] = {  # endpoint, policy, sent
    "embeddings have no sampling parameters": ("embeddings", SAMPLED, {}),
    "fields of embeddings": ("embeddings", {"dimensions": 5, "user": "u"}, {"dimensions": 5, "user": "u"}),
    "a chat has no echo": (
        "chat",
        SAMPLED,
        {"temperature": 0, "top_k": 5, "max_completion_tokens": 9, "reasoning_effort": "low"},
    ),
    "completions have no effort, and one name for the limit": (
        "completions",
        SAMPLED,
        {"temperature": 0, "top_k": 5, "max_tokens": 9, "echo": False},
    ),
}


SECTIONS: dict[str, Callable[[dict[str, Any]], ParamsPolicy]] = {
    "default": lambda values: ParamsPolicy(default=values),
    "force": lambda values: ParamsPolicy(force=values),
}


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize(("endpoint", "values", "params"), POLICY_FIELDS.values(), ids=POLICY_FIELDS)
def test_a_policy_applies_only_to_fields_of_the_endpoint(
    section: str, endpoint: EndpointName, values: dict[str, Any], params: dict[str, Any]
) -> None:
    effective = apply(Call(endpoint, "m", "r"), SECTIONS[section](values))
    assert dict(effective.params) == params
    assert len(effective.notices) == len(params)


def test_the_call_is_not_changed_in_place() -> None:
    requested = call({"top_k": 50}, temperature=2)
    apply(requested, ParamsPolicy(clamp={"top_k": 1, "temperature": 1}, force={"seed": 1}))
    assert (dict(requested.params), dict(requested.unknown)) == ({"temperature": 2}, {"top_k": 50})


# ---------------------------------------------------------------- names of the completions endpoint


def text(policy: ParamsPolicy | None = None, room: int | None = None, **params: Any) -> EffectiveParameters:
    parameters = ParameterPolicy(policy or ParamsPolicy(), "chat")
    effective = parameters.effective(call(**params))
    return effective if room is None or not effective.default_limit else parameters.limited(effective, room)


LIMITS: dict[str, tuple[EffectiveParameters, int, list[str]]] = {
    "the client's": (text(max_tokens=5), 5, []),
    "the client's, beyond the room": (text(max_tokens=500, room=5), 500, []),
    "under its newer name": (
        text(max_completion_tokens=5),
        5,
        ["renamed_parameter: max_completion_tokens sent as max_tokens"],
    ),
    "under both names": (text(max_tokens=5, max_completion_tokens=5), 5, []),
    "what is left of the context": (text(room=77), 77, ["default_parameter: max_tokens=77"]),
    "the policy's": (text(ParamsPolicy(max_tokens=99)), 99, ["default_parameter: max_tokens=99"]),
    "the policy's own default": (text(), 2048, ["default_parameter: max_tokens=2048"]),
    "the room, bounded": (
        text(ParamsPolicy(clamp={"max_tokens": 10}), room=77),
        10,
        ["default_parameter: max_tokens=10"],
    ),
    "the default, bounded by the other name": (
        text(ParamsPolicy(clamp={"max_completion_tokens": 10})),
        10,
        ["default_parameter: max_tokens=10"],
    ),
}


@pytest.mark.parametrize(("effective", "limit", "notices"), LIMITS.values(), ids=LIMITS)
def test_a_text_target_always_gets_a_limit(effective: EffectiveParameters, limit: int, notices: list[str]) -> None:
    assert dict(effective.params) == {"max_tokens": limit}
    assert said(effective) == notices


BOUNDED: dict[str, tuple[dict[str, Any], dict[str, float], dict[str, Any], list[str]]] = {
    # requested, bounds, sent, notices
    "no limit": ({}, {"max_tokens": 9.0}, {"max_tokens": 9}, ["clamped_parameter: max_tokens=9"]),
    "under the name the operator chose": (
        {},
        {"max_completion_tokens": 9},
        {"max_completion_tokens": 9},
        ["clamped_parameter: max_completion_tokens=9"],
    ),
    "the lower of two": (
        {},
        {"max_tokens": 9, "max_completion_tokens": 5},
        {"max_completion_tokens": 5},
        ["clamped_parameter: max_completion_tokens=5"],
    ),
    "a limit of the client's": ({"max_completion_tokens": 3}, {"max_tokens": 9}, {"max_completion_tokens": 3}, []),
    "no bound": ({}, {"temperature": 1}, {}, []),
}


@pytest.mark.parametrize(("requested", "clamp", "params", "notices"), BOUNDED.values(), ids=BOUNDED)
def test_a_bound_on_the_answer_holds_for_messages_without_a_limit(
    requested: dict[str, Any], clamp: dict[str, float], params: dict[str, Any], notices: list[str]
) -> None:
    effective = apply(call(**requested), ParamsPolicy(clamp=clamp))
    assert dict(effective.params) == params
    assert {type(value) for value in effective.params.values()} <= {int}
    assert said(effective) == notices


LOGPROBS: dict[str, tuple[dict[str, Any], int | None, int | None]] = {  # requested, sent, shown
    "none": ({}, None, None),
    "refused": ({"logprobs": False}, None, None),
    "without alternatives": ({"logprobs": True}, 1, 0),
    "no alternatives, in so many words": ({"logprobs": True, "top_logprobs": 0}, 1, 0),
    "one": ({"logprobs": True, "top_logprobs": 1}, 1, 1),
    "five": ({"logprobs": True, "top_logprobs": 5}, 5, 5),
}


@pytest.mark.parametrize(("requested", "sent", "shown"), LOGPROBS.values(), ids=LOGPROBS)
def test_logprobs_are_converted_to_the_form_of_the_target(
    requested: dict[str, Any], sent: int | None, shown: int | None
) -> None:
    effective = text(max_tokens=1, **requested)
    assert effective.params.get("logprobs") == sent
    assert "top_logprobs" not in effective.params
    assert effective.top_logprobs == shown


NEUTRAL_VALUES: dict[str, list[Any]] = {
    "tools": [[]],
    "functions": [[]],
    "tool_choice": ["none", "auto"],
    "function_call": ["none", "auto"],
    "parallel_tool_calls": [True, False],
    "response_format": [{"type": "text"}],
    "modalities": [["text"]],
    "service_tier": ["auto", "default"],
    "store": [False],
}

UNSUPPORTED_VALUES: dict[str, list[Any]] = {
    "tools": [[{"type": "function"}]],
    "functions": [[{"name": "f"}]],
    "tool_choice": ["required", {"type": "function"}],
    "function_call": [{"name": "f"}],
    "modalities": [["text", "audio"]],
    "service_tier": ["flex"],
    "store": [True],
    "audio": [{"voice": "x"}],
    "prediction": [{"type": "content"}],
    "reasoning_effort": ["low"],
    "verbosity": ["low"],
    "web_search_options": [{}],
}


def test_the_tables_list_every_field_that_only_chat_has() -> None:
    assert NEUTRAL_VALUES.keys() | UNSUPPORTED_VALUES.keys() == set(CHAT_ONLY)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, row in NEUTRAL_VALUES.items() for value in row])
def test_a_field_with_a_neutral_value_is_left_out_with_a_notice(name: str, value: Any) -> None:
    effective = text(max_tokens=1, **{name: value})
    assert dict(effective.params) == {"max_tokens": 1}
    assert effective.notices == (Notice("omitted_parameter", name),)


def test_a_response_format_is_kept_for_the_engines_constraint() -> None:
    form = {"type": "json_object"}
    assert text(max_tokens=1, response_format=form).params == {"max_tokens": 1, "response_format": form}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, row in UNSUPPORTED_VALUES.items() for value in row]
)
def test_a_chat_field_without_an_equivalent_for_text_targets_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedParameter) as raised:
        text(**{name: value})
    assert raised.value.param == name


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 0, "logprobs": False}, "top_logprobs"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(params: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        text(**params)
    assert raised.value.param == param


EXPLICIT: dict[str, tuple[bool, dict[str, Any] | None, dict[str, Any]]] = {
    # explicit, the engine's own defaults, what is sent for {"temperature": 0}
    "not explicit": (False, {"top_k": -1}, {"temperature": 0}),
    "a plain engine": (True, {}, {**OPENAI_DEFAULTS, "temperature": 0}),
    "an engine with fields of its own": (True, {"top_k": -1}, {**OPENAI_DEFAULTS, "top_k": -1, "temperature": 0}),
    "an engine that refuses one of OpenAI's": (
        True,
        {"top_p": None},
        {"presence_penalty": 0.0, "frequency_penalty": 0.0, "temperature": 0},
    ),
    "a provider with defaults of its own": (True, None, {"temperature": 0}),
}


@pytest.mark.parametrize("case", EXPLICIT)
def test_an_explicit_policy_sends_the_defaults_of_absent_fields(case: str) -> None:
    explicit, engine, sent = EXPLICIT[case]
    for endpoint in ("chat", "completions"):
        terms = ParameterPolicy(ParamsPolicy(explicit=explicit), endpoint, "messages", engine)
        assert dict(terms.effective(call(temperature=0)).params) == sent


def test_an_explicit_policy_adds_nothing_for_embeddings() -> None:
    terms = ParameterPolicy(ParamsPolicy(explicit=True), "embeddings", "text", {"top_k": -1})
    assert dict(terms.effective(call(input="hi")).params) == {"input": "hi"}


def test_unknown_fields_and_earlier_notices_are_kept() -> None:
    terms = ParameterPolicy(ParamsPolicy(force={"seed": 1}), "chat")
    effective = terms.limited(terms.effective(call({"top_k": 5})), 10)
    assert dict(effective.params) == {"top_k": 5, "seed": 1, "max_tokens": 10}
    assert said(effective) == ["forced_parameter: seed=1", "default_parameter: max_tokens=10"]


OPEN: dict[str, tuple[dict[str, Any], ParamsPolicy, bool]] = {  # requested, policy, has no limit
    "no limit anywhere": ({}, ParamsPolicy(), True),
    "the client's": ({"max_tokens": 5}, ParamsPolicy(), False),
    "the client's, under its newer name": ({"max_completion_tokens": 5}, ParamsPolicy(), False),
    "a default": ({}, ParamsPolicy(default={"max_tokens": 5}), False),
    "a default of nothing": ({}, ParamsPolicy(default={"max_tokens": None}), True),
    "a default of nothing, the client's": ({"max_tokens": 5}, ParamsPolicy(default={"max_tokens": None}), False),
    "forced": ({}, ParamsPolicy(force={"max_completion_tokens": 5}), False),
    "forced to be nothing": ({"max_tokens": 5}, ParamsPolicy(force={"max_tokens": None}), True),
    "bounded": ({}, ParamsPolicy(clamp={"max_tokens": 5}), True),
    "something else": ({"seed": 1}, ParamsPolicy(default={"top_p": 1}, force={"temperature": 0}), True),
}


@pytest.mark.parametrize("case", OPEN)
def test_the_context_room_is_needed_only_without_another_limit(case: str) -> None:
    params, policy, is_open = OPEN[case]
    terms = ParameterPolicy(policy, "chat")
    assert terms.effective(call(**params)).default_limit is is_open


def test_message_targets_compute_their_own_room() -> None:
    assert not ParameterPolicy(ParamsPolicy(), "chat", "messages").effective(call()).default_limit


def test_an_omitted_limit_is_not_replaced_by_the_room() -> None:
    assert not ParameterPolicy(ParamsPolicy(), "chat", omit=("max_tokens",)).effective(call()).default_limit


# ---------------------------------------------------------------- templates that write tools

TOOLS = [{"type": "function", "function": {"name": "now"}}]


def written(requested: Call, policy: ParamsPolicy) -> dict[str, Any]:
    """The parameters sent to the completions endpoint, without the limit."""
    sent = dict(ParameterPolicy(policy, "chat", "text", tools=True).effective(requested).params)
    del sent["max_tokens"]
    return sent


def test_tools_written_by_the_template_are_not_sent() -> None:
    requested = call(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=7)
    assert written(requested, ParamsPolicy()) == {"seed": 7}
    assert written(requested, ParamsPolicy(default={"tool_choice": "none"})) == {"seed": 7}
    assert written(call(seed=7), ParamsPolicy(force={"tool_choice": "auto"})) == {"seed": 7}


@pytest.mark.parametrize(
    "policy",
    [ParamsPolicy(force={"tool_choice": "none"}), ParamsPolicy(default={"parallel_tool_calls": False})],
    ids=["forced", "default"],
)
def test_a_policy_that_would_change_the_rendered_prompt_is_refused(policy: ParamsPolicy) -> None:
    with pytest.raises(UnsupportedParameter, match="must remove"):
        written(call(tools=TOOLS), policy)


@pytest.mark.parametrize(("old", "new"), [("functions", "tools"), ("function_call", "tool_choice")])
def test_the_old_names_of_tools_are_refused_with_the_new_ones(old: str, new: str) -> None:
    params: dict[str, Any] = {old: [{"name": "now"}]}
    with pytest.raises(UnsupportedParameter, match=f"send {new}"):
        ParameterPolicy(ParamsPolicy(), "chat", "text").effective(call(**params))


OMITTED: dict[str, tuple[Call, ParamsPolicy, dict[str, Any], list[str]]] = {
    # requested, policy, sent, notices
    "not set": (call(seed=7), ParamsPolicy(), {"seed": 7}, []),
    "set by the client": (call(temperature=0.5), ParamsPolicy(), {}, ["omitted_parameter: temperature=0.5"]),
    "set by the policy": (
        call(),
        ParamsPolicy(default={"temperature": 0}),
        {},
        ["omitted_parameter: temperature=0"],
    ),
    "forced by the policy": (
        call(),
        ParamsPolicy(force={"temperature": 0}),
        {},
        ["omitted_parameter: temperature=0"],
    ),
    "not spelled out either": (
        call(),
        ParamsPolicy(explicit=True),
        {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
        [],
    ),
}


@pytest.mark.parametrize("name", OMITTED)
def test_an_omitted_parameter_is_left_out_with_a_notice(name: str) -> None:
    requested, policy, params, notices = OMITTED[name]
    effective = ParameterPolicy(policy, "chat", "messages", omit=("temperature",)).effective(requested)
    assert (dict(effective.params), said(effective)) == (params, notices)


def test_omit_applies_only_to_the_named_one_of_the_two_limits() -> None:
    terms = ParameterPolicy(ParamsPolicy(clamp={"max_tokens": 100}), "chat", "messages", omit=("max_tokens",))
    assert dict(terms.effective(call(max_completion_tokens=50)).params) == {"max_completion_tokens": 50}
    effective = terms.effective(call())
    assert dict(effective.params) == {"max_completion_tokens": 100}
    assert said(effective) == ["clamped_parameter: max_completion_tokens=100"]


def test_the_notice_of_a_long_omitted_value_gives_only_its_name() -> None:
    effective = ParameterPolicy(ParamsPolicy(), "chat", "messages", omit=("tools",)).effective(
        call(tools=[{"type": "function"}])
    )
    assert said(effective) == ["omitted_parameter: tools"]


def test_omit_applies_to_text_targets() -> None:
    terms = ParameterPolicy(ParamsPolicy(), "chat", "text", omit=("seed",))
    requested = call(seed=7, max_tokens=5)
    assert terms.effective(requested).params == {"max_tokens": 5}
