"""Preparation before a backend is opened: the order of refusals, and the input of the prompt's hash."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import orjson
import pytest

from gateway.assembly import bare_route
from gateway.calls.preparation.prepare import Prepared, prepare
from gateway.config.snapshot import ModelSpec, ParamsPolicy, PolicySpec, TargetSpec
from gateway.core.errors import ForbiddenParameter, RequestError, RoleNotSupported, UnsupportedParameter
from gateway.wire.requests import read_chat, read_completion
from metatemplate.templates.spec import RoleSpec, TemplateSpec

ROUND = (RoleSpec("HUMAN", "Q: ", "\n"), RoleSpec("BOT", "A: ", "<end>", generate=True))
STRING = TemplateSpec("t", "meta", round=ROUND, stop=("Q:",))
MESSAGES = TemplateSpec("c", "chat")
POLICY = ParamsPolicy(forbid=("seed",), unknown="reject")
QUESTION = {"role": "user", "content": "1+1=?"}


def prepared(template: TemplateSpec, policy: ParamsPolicy | None = None, **fields: Any) -> Prepared:
    target = TargetSpec("m/0", "scripted")
    spec = ModelSpec("m", template, PolicySpec("p", params=policy or ParamsPolicy()), (target,))
    read = read_completion if "prompt" in fields else read_chat
    body = {"model": "m", **({} if "prompt" in fields else {"messages": [QUESTION]}), **fields}
    return asyncio.run(prepare(bare_route(spec), read(body, request_id="r")))


REFUSED: dict[str, tuple[dict[str, Any], type[RequestError], str]] = {  # invalid fields; the error that is raised
    "the policy before the template": (
        {"seed": 1, "messages": [{"role": "tool", "content": "x"}]},
        ForbiddenParameter,
        "seed",
    ),
    "an unknown field before the template": (
        {"top_k": 1, "messages": [{"role": "tool", "content": "x"}]},
        UnsupportedParameter,
        "top_k",
    ),
    "the template before the endpoint": (
        {"store": True, "messages": [{"role": "tool", "content": "x"}]},
        RoleNotSupported,
        "messages[0].role",
    ),
    "the endpoint": ({"store": True}, UnsupportedParameter, "store"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_first_of_several_mistakes_is_reported(case: str) -> None:
    fields, error, param = REFUSED[case]
    with pytest.raises(error) as raised:
        prepared(STRING, POLICY, **fields)
    assert raised.value.param == param


def test_stops_of_the_template_come_first_without_duplicates() -> None:
    assert prepared(STRING).exchange.stops == ("<end>", "Q:")
    assert prepared(STRING, stop=["x", "Q:", "x"]).exchange.stops == ("<end>", "Q:", "x")
    assert prepared(MESSAGES, stop=["x", "x"]).exchange.stops == ("x",)


def test_continue_final_message_is_sent_to_message_targets() -> None:
    messages = [QUESTION, {"role": "assistant", "content": "It is"}]
    options: dict[str, Any] = {"continue_final_message": True, "add_generation_prompt": False}
    assert dict(prepared(MESSAGES, messages=messages, **options).exchange.params) == options
    assert prepared(STRING, messages=messages, **options).exchange.prompts == ("Q: 1+1=?\nA: It is",)


HASHED: dict[str, tuple[Prepared, bytes]] = {
    "a rendered prompt": (prepared(STRING), b"Q: 1+1=?\nA: "),
    "beyond ASCII": (prepared(STRING, messages=[{"role": "user", "content": "é"}]), "Q: é\nA: ".encode()),
    "messages": (prepared(MESSAGES), orjson.dumps([QUESTION])),
    "a raw prompt": (prepared(STRING, prompt="hi"), b"hi"),
    "several": (prepared(STRING, prompt=["a", "b"]), b'["a","b"]'),
    "token ids": (prepared(STRING, prompt=[1, 2]), b"[[1,2]]"),
}


@pytest.mark.parametrize("case", HASHED)
def test_the_prompt_hash_is_taken_over_the_exact_input_of_the_model(case: str) -> None:
    result, hashed = HASHED[case]
    assert result.prompt_sha256 == hashlib.sha256(hashed).hexdigest()
