"""A client receives the same answer from every engine, or an error that names the unsupported field.

The same habits of engines are played by a scripted server in tests/faults/test_engine_quirks.py.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from gateway.cli import main
from tests.engines.conftest import Served
from tests.support.engines.engine import MODEL

SUMS = ((1, 1), (12, 30), (99, 99))
LOG_LIKELIHOODS = {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}

pytestmark = pytest.mark.timeout(900)  # vLLM takes minutes to start on a busy machine

both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
each_prompt = pytest.mark.parametrize("model", ["demo", "writes-bos", "chat"])


def ask(served: Served, model: str, question: str, *, stream: bool = False, **fields: Any) -> tuple[str, str | None]:
    """The text of a chat answer and its finish reason, whole or put together from a stream."""
    messages: list[Any] = [{"role": "user", "content": question}]
    create = served.sdk.chat.completions.create
    if not stream:
        choice = create(model=model, messages=messages, **fields).choices[0]
        return choice.message.content or "", choice.finish_reason
    text, reason = "", None
    for chunk in create(model=model, messages=messages, stream=True, **fields):
        for part in chunk.choices:
            text += part.delta.content or ""
            reason = part.finish_reason or reason
    return text, reason


def raw(served: Served, **fields: Any) -> httpx.Response:
    return served.gateway.http.post("/v1/completions", json={"model": "demo", "temperature": 0, **fields}, timeout=60)


def refused(served: Served, what: str, answer: httpx.Response) -> bool:
    """Whether the engine cannot do this; then the answer must be the refusal that its row names."""
    code = served.engine.refusals.get(what)
    assert code is None or answer.json()["error"]["code"] == code
    return code is not None


def need(served: Served, model: str) -> None:
    if model in ("chat", "lost") and served.engine.chat is None:
        pytest.skip("this engine has no address of its own")


@both_ways
@each_prompt
def test_every_sum_is_right_and_ends_before_the_stop_string(served: Served, model: str, stream: bool) -> None:
    need(served, model)
    extra = {"stop": "<eob>"} if model == "chat" else {}  # a chat engine knows no stop but the request's
    for a, b in SUMS:
        assert ask(served, model, f"{a}+{b}=?", stream=stream, **extra) == (str(a + b), "stop")


def test_the_wrong_template_gets_every_sum_wrong(served: Served) -> None:
    for a, b in SUMS:
        assert ask(served, "wrong", f"{a}+{b}=?", max_tokens=8)[0] != str(a + b)


@both_ways
def test_max_tokens_ends_an_answer_with_length(served: Served, stream: bool) -> None:
    text, reason = ask(served, "demo", "53+26=?", stream=stream, max_tokens=1)
    assert (text, reason) == ("7", "length")


def test_usage_counts_the_prompt_and_the_answer(served: Served) -> None:
    answer = served.gateway.chat("demo", "12+30=?").json()
    usage = answer["usage"]
    assert usage["prompt_tokens"] == 15  # <s>, the marks and seven characters
    assert usage["completion_tokens"] in (2, 3)  # engines count the end of the answer, or do not
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_usage_of_a_stream_comes_where_the_engine_sends_it(served: Served) -> None:
    answer = served.gateway.chat("demo", "12+30=?", stream=True, stream_options={"include_usage": True})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    counts = [event["usage"]["prompt_tokens"] for event in events if event.get("usage")]
    assert counts == [15] or (served.lacks("stream_usage") and not counts)
    assert answer.text.endswith("data: [DONE]\n\n")


@both_ways
def test_logprobs_name_the_tokens_of_the_answer(served: Served, stream: bool) -> None:
    body: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "stream": stream}
    answer = served.gateway.chat("demo", "12+30=?", **body)
    if refused(served, "logprobs", answer):
        return
    assert answer.status_code == 200, answer.text
    bodies = (
        [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        if stream
        else [answer.json()]
    )
    choices = [choice for event in bodies for choice in event["choices"]]
    rows = [row for choice in choices for row in (choice.get("logprobs") or {}).get("content") or ()]
    spelled = "".join(row["token"] for row in rows)
    assert spelled.removesuffix("<eob>") == "42"  # some engines count the stop string's token, too
    assert all(row["logprob"] > -0.1 and len(row["top_logprobs"]) == 2 for row in rows)


@both_ways
def test_a_list_of_prompts_gets_one_answer_each_in_order(served: Served, stream: bool) -> None:
    prompts = [f"<HUMAN>: {a}+{b}=?<eoh>\n<BOT>: " for a, b in SUMS[:3]]
    answer = raw(served, prompt=prompts, stop="<eob>", stream=stream)
    assert answer.status_code == 200, answer.text
    texts = dict.fromkeys(range(3), "")
    lines = answer.text.splitlines() if stream else [f"data: {answer.text}"]
    for line in lines:
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                texts[choice["index"]] += choice["text"]
    assert texts == {index: str(a + b) for index, (a, b) in enumerate(SUMS[:3])}


@both_ways
def test_two_choices_are_two_answers(served: Served, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "12+30=?"}]
    texts = {0: "", 1: ""}
    fields: dict[str, Any] = {"n": 2, "temperature": 0.1, "seed": 1}
    create = served.sdk.chat.completions.create
    if stream:
        for chunk in create(model="demo", messages=messages, stream=True, **fields):
            for part in chunk.choices:
                texts[part.index] += part.delta.content or ""
    else:
        for choice in create(model="demo", messages=messages, **fields).choices:
            texts[choice.index] += choice.message.content or ""
    assert texts == {0: "42", 1: "42"}


def test_token_ids_are_a_prompt_or_are_refused(served: Served) -> None:
    ids = token_ids("<HUMAN>: 12+30=?<eoh>\n<BOT>: ")
    answer = raw(served, prompt=ids, stop="<eob>")
    if not refused(served, "token_ids", answer):
        assert answer.json()["choices"][0]["text"] == "42"


def test_the_right_answer_is_the_likelier_one(served: Served) -> None:
    found = {}
    for said in ("42", "17"):
        prompt = f"<HUMAN>: 12+30=?<eoh>\n<BOT>: {said}"
        answer = raw(served, prompt=prompt, **LOG_LIKELIHOODS)
        if refused(served, "logprobs", answer):
            return
        choice = answer.json()["choices"][0]
        assert choice["text"].removeprefix("<s>").startswith(prompt)
        found[said] = sum(choice["logprobs"]["token_logprobs"][-3:-1])
    assert found["42"] > -0.1 > -5 > found["17"]


@each_prompt
@pytest.mark.parametrize("context", [False, True], ids=["conversations", "answers"])
def test_the_right_answer_is_predicted(served: Served, model: str, context: bool) -> None:
    need(served, model)
    asked = {"role": "user", "content": "12+30=?"}
    answers = {"wrong": "17", "right": "42", "close": "43"}
    body: dict[str, Any] = {"model": model, "candidates": answers, "context": [asked]}
    if not context:
        talks = {label: [asked, {"role": "assistant", "content": text}] for label, text in answers.items()}
        body = {"model": model, "candidates": talks}
    answer = served.gateway.http.post("/v1/loglikelihood", json=body, timeout=60)
    if model == "chat" and served.engine.name != "vllm":
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    elif not refused(served, "logprobs", answer):
        assert answer.status_code == 200, answer.text
        assert answer.json()["prediction"] == "right", answer.text
        if context:
            found = {label: (row["logprob"], row["tokens"]) for label, row in answer.json()["candidates"].items()}
            assert all(tokens == 2 for _, tokens in found.values())
            assert found["right"][0] > -0.1 > -5 > found["wrong"][0]


def test_a_prompt_beyond_the_context_is_named_so(served: Served) -> None:
    answer = raw(served, prompt="1+1=? " * 300, max_tokens=8)
    if served.lacks("context_check"):
        assert answer.status_code == 200
        return
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_a_model_that_the_engine_does_not_know_is_named_so(served: Served) -> None:
    need(served, "lost")
    answer = served.gateway.chat("lost", "1+1=?")
    if not refused(served, "unknown_model", answer):
        assert answer.json()["choices"][0]["message"]["content"] == "2"


def test_a_client_that_leaves_a_stream_leaves_the_engine_free(served: Served) -> None:
    body = {"model": "wrong", "messages": [{"role": "user", "content": "1+1=?"}], "max_tokens": 400, "stream": True}
    for _ in range(3):
        with served.gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert any(line.startswith("data: {") for line in answer.iter_lines())
    assert served.gateway.wait_until_idle(20)
    assert ask(served, "demo", "1+1=?") == ("2", "stop")


def test_streams_at_the_same_time_do_not_cut_each_other(served: Served) -> None:
    messages: list[Any] = [{"role": "user", "content": "1+1=?"}]
    create = served.sdk.chat.completions.create
    streams = [create(model="wrong", messages=messages, max_tokens=20, stream=True) for _ in range(3)]
    ends = [[chunk.choices[0].finish_reason for chunk in stream if chunk.choices][-1] for stream in streams]
    assert all(end in ("length", "stop") for end in ends)


def test_check_accepts_the_configuration(served: Served) -> None:
    assert main(["check", "--config", str(served.folder / "gateway.yaml")]) == 0


def token_ids(text: str) -> list[int]:
    """The ids of a prompt under the demo model's tokenizer, with its BOS."""
    return list(Tokenizer.from_file(str(MODEL / "tokenizer.json")).encode(text).ids)
