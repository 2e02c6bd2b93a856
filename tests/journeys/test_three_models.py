"""One evaluation script with three targets: in process, a chat server, the same server through LiteLLM.

The chat server is a second gateway that serves the demo. Only the model's name changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.journeys.sdk import connect, user
from tests.support.serving import ROOT, gateway

MODELS = ("demo", "over-chat", "over-litellm")
SUMS = [(1, 1), (12, 34), (40, 2), (9, 90)]

SERVER = f"models: {{demo: {{template: sft-demo, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}}}"
CLIENT = """
models:
  demo:         {{template: sft-demo, policy: eval, targets: [{{speaks: embedded, path: {root}/demo/model}}]}}
  over-chat:    {{template: chat, policy: eval, targets: [{{speaks: chat, url: "{url}", model: demo}}]}}
  over-litellm: {{template: chat, policy: eval, targets: [{{speaks: litellm, url: "{url}", model: openai/demo}}]}}
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    with (
        gateway(tmp_path_factory.mktemp("server"), SERVER) as server,
        gateway(tmp_path_factory.mktemp("client"), CLIENT.format(root=ROOT, url=server.url)) as served,
        connect(served) as one,
    ):
        yield one


def evaluate(client: OpenAI, model: str) -> list[tuple[str | None, str, int, int]]:
    """The evaluation script: text, finish reason and token counts of every answer."""
    rows: list[tuple[str | None, str, int, int]] = []
    for a, b in SUMS:
        messages = user(f"{a}+{b}=?")
        answer = client.chat.completions.create(model=model, messages=messages, max_tokens=8)
        choice, usage = answer.choices[0], answer.usage
        assert answer.model == model
        assert usage is not None
        rows.append((choice.message.content, choice.finish_reason, usage.prompt_tokens, usage.completion_tokens))
    return rows


def evaluate_streaming(client: OpenAI, model: str) -> list[tuple[str, str | None, int]]:
    """As ``evaluate``, with streams."""
    rows: list[tuple[str, str | None, int]] = []
    for a, b in SUMS:
        text, finish, counted = "", None, 0
        messages = user(f"{a}+{b}=?")
        for chunk in client.chat.completions.create(
            model=model, messages=messages, max_tokens=8, stream=True, stream_options={"include_usage": True}
        ):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = finish or choice.finish_reason
            counted += chunk.usage.completion_tokens if chunk.usage else 0
        rows.append((text, finish, counted))
    return rows


@pytest.mark.parametrize("model", MODELS)
def test_the_eval_script_gives_the_same_result_for_every_model(client: OpenAI, model: str) -> None:
    rows = evaluate(client, model)
    assert [(text, finish) for text, finish, _, _ in rows] == [(str(a + b), "stop") for a, b in SUMS]
    assert rows == evaluate(client, "demo")


@pytest.mark.parametrize("model", MODELS)
def test_streams_give_the_same_result(client: OpenAI, model: str) -> None:
    assert evaluate_streaming(client, model) == evaluate_streaming(client, "demo")
    assert [text for text, _, _ in evaluate_streaming(client, model)] == [str(a + b) for a, b in SUMS]


@pytest.mark.parametrize("model", MODELS)
def test_stop_and_n_give_the_same_result_for_every_model(client: OpenAI, model: str) -> None:
    messages = user("12+34=?")
    answer = client.chat.completions.create(model=model, messages=messages, stop=["6"], n=2, max_tokens=8)
    assert [(c.index, c.message.content, c.finish_reason) for c in answer.choices] == [
        (0, "4", "stop"),
        (1, "4", "stop"),
    ]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_returns_log_probabilities(client: OpenAI, model: str) -> None:
    messages = user("12+34=?")
    answer = client.chat.completions.create(model=model, messages=messages, logprobs=True, top_logprobs=2, max_tokens=8)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert [(token.token, len(token.top_logprobs)) for token in logprobs.content or ()] == [("4", 2), ("6", 2)]
