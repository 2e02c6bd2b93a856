"""``prompt_logprobs``, ``echo`` and ``return_token_ids``: of the embedded demo model, and through a second gateway.

The second gateway has the first as its vLLM engine, so that the checks of a target's values run on real values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.serving import ROOT, Gateway, gateway
from tests.support.upstream.server import FaultyUpstream

INNER = f"""
models:
  demo: {{template: sft-demo, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}
"""
OUTER = """
models:
  text:
    {{template: sft-demo, tokenizer: {tokenizer},
      targets: [{{speaks: completions, url: "{url}", model: demo, engine: vllm}}]}}
  talk: {{template: chat, targets: [{{speaks: chat, url: "{url}", model: demo, engine: vllm}}]}}
  local:
    {{template: sft-demo, tokenizer: {tokenizer},
      targets: [{{speaks: completions, url: "{url}", model: demo, engine: openai}}]}}
  other-tokenizer:
    {{template: sft-demo, tokenizer: {other},
      targets: [{{speaks: completions, url: "{url}", model: demo, engine: vllm}}]}}
  ignoring: {{template: sft-demo, targets: [{{speaks: completions, url: "{ignoring}"}}]}}
  wrong: {{template: sft-demo, targets: [{{speaks: completions, url: "{wrong}"}}]}}
  sglang: {{template: sft-demo, targets: [{{speaks: completions, url: "{ignoring}", engine: sglang}}]}}
  sglang-chat: {{template: chat, targets: [{{speaks: chat, url: "{ignoring}", engine: sglang}}]}}
  dropping: {{template: sft-demo, policy: dropping, targets: [{{speaks: completions, url: "{ignoring}"}}]}}
"""
SUM = [{"role": "user", "content": "1+1=?"}]
SOLVED = [*SUM, {"role": "assistant", "content": "2"}]
WHOLE = "<HUMAN>: 1+1=?<eoh>\n<BOT>: 2<eob>\n"
PROMPT_IDS = [1, 380, 29, 224, 20, 14, 20, 343, 383, 202, 381, 29, 224]
ANSWER_IDS = [21, 384]


@dataclass(frozen=True)
class World:
    """The two gateways and the faulty upstream."""

    inner: Gateway
    outer: Gateway
    up: FaultyUpstream

    def chat(self, model: str, messages: list[dict[str, str]], **fields: Any) -> httpx.Response:
        served = self.inner if model == "demo" else self.outer
        return served.http.post(
            "/v1/chat/completions", json={"model": model, "messages": messages, "temperature": 0, **fields}
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    inside, outside = tmp_path_factory.mktemp("inner"), tmp_path_factory.mktemp("outer")
    tokenizer = json.loads((ROOT / "demo" / "model" / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-1]
    files = {"policies/dropping.yaml": "params: {unknown: drop}", "tokenizer.json": json.dumps(tokenizer)}
    with gateway(inside, INNER) as inner, FaultyUpstream() as up:
        config = OUTER.format(
            url=inner.url,
            tokenizer=ROOT / "demo" / "model",
            other=outside / "tokenizer.json",
            ignoring=up.url("ok"),
            wrong=up.url("quirk-stop-reason"),
        )
        with gateway(outside, config, files=files) as outer:
            yield World(inner, outer, up)


def tokens_of(answer: httpx.Response) -> str:
    """The text whose tokens have log probabilities, from the second token on."""
    entries = answer.json()["prompt_logprobs"]
    assert entries[0] is None
    return "".join([str(next(iter(entry.values()))["decoded_token"]) for entry in entries[1:]])


def notices(answer: httpx.Response) -> str:
    return str(answer.headers.get("x-gateway-notice", ""))


# ---------------------------------------------------------------- log probabilities of a chat


@pytest.mark.parametrize("model", ["demo", "text"])
def test_aisbench_gets_the_log_probabilities_of_the_complete_conversation(world: World, model: str) -> None:
    answer = world.chat(model, SOLVED, prompt_logprobs=0, max_tokens=512, stream=False)
    assert answer.status_code == 200, answer.text
    assert tokens_of(answer) == WHOLE
    assert "prompt_logprobs" not in answer.json()["choices"][0]
    assert "whole_conversation: add_generation_prompt=false; clamped_parameter: max_tokens=1" in notices(answer)


def test_an_explicit_add_generation_prompt_needs_no_notice(world: World) -> None:
    answer = world.chat("demo", SOLVED, prompt_logprobs=0, add_generation_prompt=False, max_tokens=1)
    assert tokens_of(answer) == WHOLE
    assert "whole_conversation" not in notices(answer)


def test_a_generation_prompt_that_is_asked_for_is_written(world: World) -> None:
    answer = world.chat("demo", SOLVED, prompt_logprobs=0, add_generation_prompt=True, max_tokens=1)
    assert tokens_of(answer) == WHOLE + "<BOT>: "


def test_a_question_with_prompt_logprobs_is_answered(world: World) -> None:
    answer = world.chat("demo", SUM, prompt_logprobs=2)
    assert answer.json()["choices"][0]["message"]["content"] == "2"
    entry = answer.json()["prompt_logprobs"][3]
    assert len(entry) == 3
    assert [score["rank"] for score in entry.values()][1:] == [1, 2]


def test_a_chat_target_is_told_to_open_no_answer(world: World) -> None:
    answer = world.chat("talk", SOLVED, prompt_logprobs=0)
    assert answer.status_code == 200, answer.text
    assert tokens_of(answer) == WHOLE


def test_the_right_answer_is_likelier_than_a_wrong_one(world: World) -> None:
    def score(text: str) -> float:
        messages = [*SUM, {"role": "assistant", "content": text}]
        entries = world.chat("demo", messages, prompt_logprobs=0).json()["prompt_logprobs"][1:]
        return sum(float(next(iter(entry.values()))["logprob"]) for entry in entries)

    assert max("2345", key=score) == "2"


def test_echo_begins_the_answer_with_the_message_that_it_continues(world: World) -> None:
    messages = [{"role": "user", "content": "20+21=?"}, {"role": "assistant", "content": "4"}]
    fields: dict[str, Any] = {"echo": True, "continue_final_message": True}
    for model in ("demo", "text"):
        assert world.chat(model, messages, **fields).json()["choices"][0]["message"]["content"] == "41"
    streamed = world.chat("demo", messages, stream=True, **fields).text
    assert "".join(delta.get("content", "") for delta in deltas(streamed)) == "41"


def test_echo_with_logprobs_scores_the_conversation_as_vllm_does(world: World) -> None:
    answer = world.chat("demo", SOLVED, echo=True, logprobs=True, top_logprobs=1)
    assert tokens_of(answer) == WHOLE
    assert answer.json()["choices"][0]["message"]["content"].startswith("2")


def test_completions_keep_the_log_probabilities_in_the_choice(world: World) -> None:
    body = {"model": "demo", "prompt": ["1+", "2"], "prompt_logprobs": 0, "max_tokens": 1}
    answer = world.inner.http.post("/v1/completions", json=body).json()
    assert [len(choice["prompt_logprobs"]) for choice in answer["choices"]] == [3, 2]
    assert "prompt_logprobs" not in answer


REFUSED: dict[str, tuple[str, dict[str, Any], int, str, str]] = {
    "the target ignores them": ("ignoring", {}, 502, "upstream_ignored_parameter", "ignored prompt_logprobs"),
    "another prompt is scored": ("wrong", {}, 502, "upstream_invalid_response", "for 2 tokens, but the prompt has"),
    "an engine that does not have them": ("sglang", {}, 400, "unsupported_parameter", "not support prompt_logprobs"),
    "an engine that would open an answer": ("sglang-chat", {}, 400, "unsupported_parameter", "generation prompt"),
    "a policy that drops them": ("dropping", {}, 400, "unsupported_parameter", "policy drops prompt_logprobs"),
    "a stream": ("demo", {"stream": True}, 400, "invalid_value", "a stream cannot contain"),
    "not a number": ("demo", {"prompt_logprobs": True}, 400, "invalid_value", "whole number"),
    "below -1": ("demo", {"prompt_logprobs": -2}, 400, "invalid_value", "whole number"),
    "too many for the engine": ("demo", {"prompt_logprobs": 21}, 400, "invalid_value", "between 0 and 20"),
    "no log probabilities asked for": (
        "demo",
        {"prompt_logprobs": None, "add_generation_prompt": False},
        400,
        "invalid_value",
        "or prompt_logprobs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_scores_that_would_be_wrong_are_an_error(world: World, name: str) -> None:
    model, fields, status, code, part = REFUSED[name]
    answer = world.chat(model, SOLVED, **{"prompt_logprobs": 0, **fields})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert part in error["message"]


def test_render_shows_the_complete_conversation(world: World) -> None:
    body = {"model": "demo", "messages": SOLVED, "add_generation_prompt": False}
    shown = world.inner.http.post("/v1/render", json=body).json()
    assert shown["prompt"] == WHOLE
    assert shown["params"]["max_tokens"] == 1


# ---------------------------------------------------------------- token ids


def deltas(stream: str) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks(stream) for choice in chunk["choices"]]


def chunks(stream: str) -> list[dict[str, Any]]:
    events = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


@pytest.mark.parametrize("model", ["demo", "text", "talk"])
def test_token_ids_of_the_target(world: World, model: str) -> None:
    answer = world.chat(model, SUM, return_token_ids=True)
    assert answer.status_code == 200, answer.text
    assert answer.json()["prompt_token_ids"] == PROMPT_IDS
    assert answer.json()["choices"][0]["token_ids"] == ANSWER_IDS
    assert "token_ids" not in notices(answer)


@pytest.mark.parametrize("model", ["demo", "text", "talk", "local"])
def test_streamed_token_ids_are_in_the_first_chunk_and_in_each_delta(world: World, model: str) -> None:
    first, *rest = chunks(world.chat(model, SUM, return_token_ids=True, stream=True).text)
    assert first["prompt_token_ids"] == PROMPT_IDS
    assert not [chunk for chunk in rest if "prompt_token_ids" in chunk]
    ids = [token for chunk in (first, *rest) for token in chunk["choices"][0].get("token_ids", ())]
    assert ids == (ANSWER_IDS if model != "local" else ANSWER_IDS[:1])


def test_without_ids_of_the_target_the_tokenizer_makes_them(world: World) -> None:
    answer = world.chat("local", SUM, return_token_ids=True)
    assert answer.json()["prompt_token_ids"] == PROMPT_IDS
    assert answer.json()["choices"][0]["token_ids"] == ANSWER_IDS[:1]  # the stop has no text
    assert "local_token_ids" in notices(answer)


def test_ids_that_differ_from_the_tokenizers_give_a_notice(world: World) -> None:
    long = [{"role": "user", "content": "What is the sum of one and two, please? The cat and the dog."}]
    answer = world.chat("other-tokenizer", long, return_token_ids=True, max_tokens=1)
    assert answer.status_code == 200, answer.text
    assert (
        answer.json()["prompt_token_ids"] == world.chat("text", long, return_token_ids=True).json()["prompt_token_ids"]
    )
    assert "token_ids_differ: the prompt differs from token" in notices(answer)


def test_a_target_that_ignores_the_request_for_ids_is_an_error(world: World) -> None:
    for fields in ({}, {"stream": True}):
        answer = world.chat("ignoring", SUM, return_token_ids=True, **fields)
        assert (answer.status_code, answer.json()["error"]["param"]) == (502, "return_token_ids")


def test_completions_have_the_ids_in_each_choice(world: World) -> None:
    body = {"model": "text", "prompt": ["1+", "2"], "return_token_ids": True, "max_tokens": 1, "temperature": 0}
    answer = world.outer.http.post("/v1/completions", json=body)
    assert [choice["prompt_token_ids"] for choice in answer.json()["choices"]] == [[1, 20, 14], [1, 21]]
    assert all(len(choice["token_ids"]) == 1 for choice in answer.json()["choices"])
