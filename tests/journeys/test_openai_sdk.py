"""The official OpenAI SDK for Python with a real gateway."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk

from tests.journeys.sdk import connect, user
from tests.support.serving import ROOT, Gateway, eventually, gateway
from tests.support.world import HELLO, gateway_fixture, key_file

CONFIG = f"""
models:
  demo:    {{template: sft-demo, policy: eval, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}
  slow:
    template: sft-demo
    targets: [{{speaks: embedded, path: {ROOT}/demo/model, options: {{token_delay: 0.3}}}}]
  limited:  {{template: chat, targets: [{{speaks: scripted, script: limited.yaml}}]}}
  refused:  {{template: chat, targets: [{{speaks: scripted, script: refused.yaml}}]}}
  failing:  {{template: chat, targets: [{{speaks: scripted, script: failing.yaml}}]}}
  gone:     {{template: chat, targets: [{{speaks: scripted, script: gone.yaml}}]}}
  breaking: {{template: chat, targets: [{{speaks: scripted, script: breaking.yaml}}]}}
  endless:  {{template: chat, targets: [{{speaks: scripted, script: endless.yaml}}]}}
  silent:   {{template: chat, targets: [{{speaks: scripted, script: silent.yaml}}]}}
  starting: {{template: chat, targets: [{{speaks: scripted, script: starting.yaml}}]}}
  twice:    {{template: chat, targets: [{{speaks: scripted, script: twice.yaml}}]}}
"""

SCRIPTS = {
    "limited": "[{error: upstream_rate_limited}]",
    "refused": "[{error: upstream_auth_failed}]",
    "failing": "[{error: upstream_error}]",
    "gone": "[{error: upstream_unreachable}]",
    "breaking": "[Hel, {error: upstream_disconnected}]",
    "endless": "[Hel, lo]",
    "silent": "[{pause: 30}, Hello, {finish: stop}]",
    "starting": "['', '', Hel, '', lo, {finish: stop}, {usage: [7, 2]}]",
    "twice": "[Hello, {finish: stop}, {finish: length}]",
}


served = gateway_fixture(CONFIG, {f"{name}.yaml": script for name, script in SCRIPTS.items()})


@pytest.fixture
def client(served: Gateway) -> Iterator[OpenAI]:
    with connect(served) as one:
        yield one


def raw(text: str) -> str:
    """The prompt that the demo model was trained on."""
    return f"<HUMAN>: {text}<eoh>\n<BOT>: "


def ids(served: Gateway, text: str) -> list[int]:
    tokens = served.runtime.state.stack.routes["demo"].tokens
    assert tokens is not None
    return tokens.tokenize(raw(text), True)


# ---------------------------------------------------------------- whole answers


def test_an_answer_has_text_finish_reason_and_usage(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=user("12+34=?"))
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "46", "stop")
    assert (answer.object, answer.model, answer.id[:9]) == ("chat.completion", "demo", "chatcmpl-")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens == 18


def test_a_conversation_with_earlier_messages_is_answered(client: OpenAI) -> None:
    messages = [*user("1+1=?"), {"role": "assistant", "content": "2"}, *user("20+22=?")]
    assert client.chat.completions.create(model="demo", messages=messages).choices[0].message.content == "42"


def test_a_limit_ends_the_answer_with_length(client: OpenAI) -> None:
    limits: tuple[dict[str, Any], ...] = ({"max_tokens": 1}, {"max_completion_tokens": 1})
    for limit in limits:
        choice = client.chat.completions.create(model="demo", messages=user("12+34=?"), **limit).choices[0]
        assert (choice.message.content, choice.finish_reason) == ("4", "length")


@pytest.mark.parametrize("stop", ["6", ["x", "6"]], ids=["one", "list"])
def test_the_stops_of_client_and_template_are_combined(client: OpenAI, stop: str | list[str]) -> None:
    cut = client.chat.completions.create(model="demo", messages=user("12+34=?"), stop=stop).choices[0]
    assert (cut.message.content, cut.finish_reason) == ("4", "stop")
    uncut = client.chat.completions.create(model="demo", messages=user("1+1=?"), stop=stop).choices[0]
    assert (uncut.message.content, uncut.finish_reason) == ("2", "stop")  # the template's own <eob>


def test_log_probabilities_are_cut_with_the_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=user("12+34=?"), logprobs=True, top_logprobs=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [token.token for token in logprobs.content] == ["4", "6"]
    for token in logprobs.content:
        assert token.bytes == list(token.token.encode())
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == max(one.logprob for one in token.top_logprobs) == token.logprob
    plain = client.chat.completions.create(model="demo", messages=user("12+34=?"), logprobs=True).choices[0].logprobs
    assert plain is not None
    assert [token.top_logprobs for token in plain.content or ()] == [[], []]


def test_a_seed_makes_two_choices_reproducible(client: OpenAI) -> None:
    def ask(seed: int) -> list[tuple[int, str | None, str]]:
        answer = client.chat.completions.create(
            model="demo", messages=user("x"), n=2, temperature=2, seed=seed, max_tokens=8
        )
        return [(choice.index, choice.message.content, choice.finish_reason) for choice in answer.choices]

    assert [index for index, _, _ in ask(7)] == [0, 1]
    assert ask(7) == ask(7) != ask(8)
    assert ask(7)[0][1] != ask(7)[1][1]


# ---------------------------------------------------------------- streams


def streamed(client: OpenAI, model: str = "demo", text: str = "12+34=?", **options: Any) -> list[ChatCompletionChunk]:
    return list(client.chat.completions.create(model=model, messages=user(text), stream=True, **options))


def test_a_stream_has_one_role_one_finish_and_no_usage_by_default(client: OpenAI) -> None:
    chunks = streamed(client)
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "4")
    assert [delta.role for delta in deltas[1:]] == [None] * (len(deltas) - 1)
    assert "".join(delta.content or "" for delta in deltas) == "46"
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1


def test_requested_usage_is_the_last_chunk(client: OpenAI) -> None:
    *chunks, last = streamed(client, stream_options={"include_usage": True})
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (15, 3, 18)


def test_the_role_is_sent_with_the_first_content(client: OpenAI) -> None:
    deltas = [chunk.choices[0].delta for chunk in streamed(client, "starting")]
    assert [(delta.role, delta.content) for delta in deltas] == [("assistant", "Hel"), (None, "lo"), (None, None)]


def test_the_first_of_two_finish_reasons_is_kept(client: OpenAI) -> None:
    ends = [chunk.choices[0].finish_reason for chunk in streamed(client, "twice")]
    assert ends == [None, "stop"]
    assert client.chat.completions.create(model="twice", messages=user("hi")).choices[0].finish_reason == "stop"


def test_streamed_choices_equal_whole_ones(client: OpenAI) -> None:
    asked: dict[str, Any] = {"n": 2, "temperature": 2, "seed": 7, "max_tokens": 8, "logprobs": True}
    whole = client.chat.completions.create(model="demo", messages=user("x"), **asked)
    texts, roles, ends, tokens = ["", ""], [0, 0], ["", ""], [0, 0]
    for chunk in streamed(client, text="x", **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            roles[choice.index] += choice.delta.role is not None
            ends[choice.index] += choice.finish_reason or ""
            tokens[choice.index] += len(choice.logprobs.content or ()) if choice.logprobs else 0
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert tokens == [len(choice.logprobs.content or ()) for choice in whole.choices if choice.logprobs]
    assert roles == [1, 1]


def test_a_broken_stream_raises_an_error_after_its_content(client: OpenAI) -> None:
    stream = client.chat.completions.create(model="breaking", messages=user("hi"), stream=True)
    assert next(stream).choices[0].delta.content == "Hel"
    with pytest.raises(openai.APIError) as caught:
        next(stream)
    assert caught.value.code == "upstream_disconnected"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_without_a_finish_raises_an_error(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.APIError) as caught:
        list(client.chat.completions.create(model="endless", messages=user("hi"), stream=stream))
    assert caught.value.code == "upstream_incomplete"


# ---------------------------------------------------------------- raw completions


def test_a_prompt_may_have_four_forms(client: OpenAI, served: Gateway) -> None:
    one, three = "12+34=?", ["1+1=?", "2+3=?", "40+2=?"]
    shapes: dict[str, tuple[Any, list[str]]] = {  # shape: (prompt, texts)
        "string": (raw(one), ["46"]),
        "strings": ([raw(text) for text in three], ["2", "5", "42"]),
        "token ids": (ids(served, one), ["46"]),
        "lists of token ids": ([ids(served, text) for text in three], ["2", "5", "42"]),
    }
    for shape, (prompt, texts) in shapes.items():
        answer = client.completions.create(model="demo", prompt=prompt, stop="<eob>", max_tokens=8)
        assert [(choice.index, choice.text) for choice in answer.choices] == list(enumerate(texts)), shape
        assert {choice.finish_reason for choice in answer.choices} == {"stop"}, shape


def test_prompts_keep_their_order_in_a_stream(client: OpenAI) -> None:
    prompts = [raw(f"{a}+{a}=?") for a in range(10, 15)]
    texts = [""] * 5
    for chunk in client.completions.create(model="demo", prompt=prompts, stop="<eob>", stream=True):
        assert chunk.object == "text_completion"
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == ["20", "22", "24", "26", "28"]


def test_choices_are_ordered_by_prompt(client: OpenAI) -> None:
    answer = client.completions.create(model="demo", prompt=[raw("1+1=?"), raw("2+3=?")], n=2, stop="<eob>")
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "2"), (1, "2"), (2, "5"), (3, "5")]


def test_an_echo_has_the_prompt_and_its_log_probabilities(client: OpenAI) -> None:
    prompts = [raw("1+1=?"), raw("2+3=?")]
    answer = client.completions.create(model="demo", prompt=prompts, echo=True, logprobs=2, max_tokens=1)
    for choice, prompt, said in zip(answer.choices, prompts, "25", strict=True):
        assert choice.text == prompt + said
        assert choice.logprobs is not None
        tokens = choice.logprobs.tokens or []
        assert "".join(tokens) == choice.text
        assert choice.logprobs.token_logprobs is not None
        assert choice.logprobs.token_logprobs[0] is None
        assert all(value is not None and value <= 0 for value in choice.logprobs.token_logprobs[1:])
        offsets = choice.logprobs.text_offset or []
        assert [choice.text[at : at + len(token)] for at, token in zip(offsets, tokens, strict=True)] == tokens


def test_a_prompt_can_be_scored_without_generating(client: OpenAI) -> None:
    answer = client.completions.create(model="demo", prompt=raw("1+1=?") + "2", echo=True, logprobs=1, max_tokens=0)
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == (raw("1+1=?") + "2", "length")
    assert choice.logprobs is not None
    assert (choice.logprobs.tokens or [])[-1] == "2"
    assert (choice.logprobs.token_logprobs or [])[-1] > -0.1


# ---------------------------------------------------------------- models, headers, the extension


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    listed = list(client.models.list())
    assert [model.id for model in listed][:2] == ["demo", "slow"]
    card = client.models.retrieve("demo")
    assert (card.id, card.object, card.owned_by) == ("demo", "model", "meta-gateway")
    assert card.model_extra == {"max_model_len": 512}
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_headers_give_model_template_policy_and_target(client: OpenAI, stream: bool) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model="demo", messages=user("1+1=?"), stream=stream, extra_headers={"x-request-id": "mine-1"}
    )
    headers = answer.headers
    assert answer.http_response.status_code == 200
    assert headers["x-request-id"] == "mine-1"
    assert headers["x-gateway-model"] == "demo"
    assert headers["x-gateway-template"].startswith("sft-demo@sha256:")
    assert headers["x-gateway-prompt-sha256"] == hashlib.sha256(raw("1+1=?").encode()).hexdigest()
    assert (headers["x-gateway-target"], headers["x-gateway-attempts"]) == ("demo/0", "1")
    assert headers["x-gateway-policy"] == "eval"
    assert float(headers["x-gateway-overhead-ms"]) >= 0
    assert int(headers["openai-processing-ms"]) >= 0
    assert "temperature=0" in headers["x-gateway-notice"]
    answer.http_response.close()


def test_the_sdk_reads_the_request_id(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=user("1+1=?"))
    assert (answer._request_id or "").startswith("req_")


def test_a_requested_explanation_is_part_of_the_answer(client: OpenAI) -> None:
    asked = {"gateway": {"explain": True}}
    whole = client.chat.completions.create(model="demo", messages=user("1+1=?"), extra_body=asked)
    explanation = whole.model_extra["gateway"]  # type: ignore[index]
    assert (explanation["prompt"], explanation["stop"]) == (raw("1+1=?"), ["<eob>"])
    assert explanation["params"]["temperature"] == 0
    assert (explanation["target"], explanation["attempts"]) == ("demo/0", 1)
    first, *others = streamed(client, text="1+1=?", extra_body=asked)
    early = first.model_extra["gateway"]  # type: ignore[index]
    assert explanation.pop("overhead_ms") > 0
    assert early.pop("overhead_ms") > 0
    assert early == explanation
    assert all("gateway" not in (chunk.model_extra or {}) for chunk in others)


# ---------------------------------------------------------------- errors


def test_errors_raise_the_sdks_exception_classes(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="demo", messages=user("hi"), temperature=9)
    assert (bad.value.code, bad.value.param, bad.value.type) == (
        "invalid_value",
        "temperature",
        "invalid_request_error",
    )
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nobody", messages=user("hi"))
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="demo", messages=user("1+1=?" * 500))
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="limited", messages=user("hi"))
    assert (limited.value.code, limited.value.type) == ("upstream_rate_limited", "rate_limit_error")
    assert 1 <= int(limited.value.response.headers["retry-after"]) <= 3
    with pytest.raises(openai.InternalServerError) as failing:
        client.chat.completions.create(model="failing", messages=user("hi"), stream=True)
    assert (failing.value.status_code, failing.value.code) == (502, "upstream_error")
    assert failing.value.request_id is not None


RETRIED = {  # model: (error code, the SDK retries)
    "refused": ("upstream_auth_failed", False),  # will fail the same way
    "failing": ("upstream_error", False),  # the gateway has already retried
    "gone": ("upstream_unreachable", True),  # tried once; may be back soon
}


@pytest.mark.parametrize("model", RETRIED)
def test_the_sdk_retries_only_retryable_errors(served: Gateway, model: str) -> None:
    code, again = RETRIED[model]
    labels = {"endpoint": "chat", "model": model, "outcome": code}
    before = served.metric("gateway_requests_total", **labels)
    with connect(served, retries=1) as client, pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model=model, messages=user("hi"))
    assert caught.value.response.headers.get("x-should-retry") == (None if again else "false")
    assert served.wait_until_idle()
    assert served.metric("gateway_requests_total", **labels) - before == (2 if again else 1)


def test_a_wrong_key_is_an_authentication_error(tmp_path: Path) -> None:
    files = {**HELLO, "keys.yaml": key_file({"gk-right": 'models: ["al*"]'})}
    target = "{template: chat, targets: [{speaks: scripted, script: hello.yaml}]}"
    config = f"models:\n  allowed: {target}\n  other: {target}\nkeys: {{file: keys.yaml}}\n"
    with (
        gateway(tmp_path, config, files=files) as g,
        connect(g, "gk-right") as right,
        connect(g, "gk-wrong") as wrong,
    ):
        assert right.chat.completions.create(model="allowed", messages=user("hi")).choices[0].message.content == "Hello"
        with pytest.raises(openai.AuthenticationError) as caught:
            wrong.chat.completions.create(model="allowed", messages=user("hi"))
        assert caught.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        with pytest.raises(openai.NotFoundError):  # the same as for a model that does not exist
            right.chat.completions.create(model="other", messages=user("hi"))
        assert [model.id for model in right.models.list()] == ["allowed"]


# ---------------------------------------------------------------- leaving, and the async client


def busy(served: Gateway) -> int:
    """Running choices in the demo's engine, which all its models share."""
    runtime = served.runtime
    return runtime.resources.load_engine(runtime.state.stack.snapshot.models["slow"].targets[0]).active


def test_closing_a_stream_early_frees_the_engine(client: OpenAI, served: Gateway) -> None:
    before = served.metric("gateway_client_gone_total", phase="mid_stream")
    stream = client.completions.create(
        model="slow", prompt=raw("1+1=?"), max_tokens=490, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    assert busy(served) == 1
    stream.close()
    assert eventually(lambda: busy(served) == 0)
    assert eventually(lambda: served.metric("gateway_client_gone_total", phase="mid_stream") == before + 1)
    assert served.wait_until_idle()


def test_a_clients_timeout_frees_the_engine(client: OpenAI, served: Gateway) -> None:
    for timeout in (0.3, 1, 3, 9):  # a busy machine needs longer to read the requests
        expected = served.metric("gateway_client_gone_total", phase="before_first") + 2
        with pytest.raises(openai.APITimeoutError):
            client.completions.create(model="slow", prompt=raw("1+1=?"), max_tokens=200, timeout=timeout)
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model="silent", messages=user("hi"), stream=True, timeout=timeout)
        assert eventually(lambda: busy(served) == 0)
        assert served.wait_until_idle()
        if served.metric("gateway_client_gone_total", phase="before_first") == expected:
            break
    assert served.metric("gateway_client_gone_total", phase="before_first") == expected


def test_the_async_client_sends_many_calls_at_once(served: Gateway) -> None:
    async def ask(client: AsyncOpenAI, a: int, stream: bool) -> str:
        messages = user(f"{a}+{a}=?")
        if stream:
            chunks = await client.chat.completions.create(model="demo", messages=messages, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
        answer = await client.chat.completions.create(model="demo", messages=messages)
        return answer.choices[0].message.content or ""

    async def run() -> list[str]:
        http = openai.DefaultAsyncHttpxClient(trust_env=False, verify=False)
        async with AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0, http_client=http) as client:
            return await asyncio.gather(*[ask(client, a, a % 2 == 0) for a in range(10, 26)])

    assert asyncio.run(run()) == [str(2 * a) for a in range(10, 26)]
