"""Dataset prompts and turns over HTTP, answered by the demo model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import ROOT, Gateway
from tests.support.world import gateway_fixture

CONFIG = f"""
models:
  demo:
    template: sft-demo
    policy: eval
    targets: [{{speaks: embedded, path: {ROOT / "demo" / "model"}}}]
"""


served = gateway_fixture(CONFIG, {"prompts": ROOT / "prompts"})


def post(served: Gateway, options: dict[str, Any], path: str = "/v1/chat/completions", **fields: Any) -> Any:
    return served.http.post(path, json={"model": "demo", "gateway": options, **fields})


def few_shot(**more: Any) -> dict[str, Any]:
    return {"prompt": {"id": "sums-few-shot", "variables": {"question": "12+34=?"}, **more}}


def test_a_prompt_takes_the_place_of_the_messages(served: Gateway) -> None:
    answer = post(served, few_shot())
    assert answer.json()["choices"][0]["message"]["content"] == "46"
    assert answer.headers["x-gateway-dataset-prompt"].startswith("sums-few-shot@sha256:")
    assert answer.headers["x-gateway-template"].startswith("sft-demo@sha256:")
    assert post(served, few_shot(), "/v1/completions").json()["choices"][0]["text"] == "46"


def test_a_completion_with_echo_says_that_its_stops_are_not_enforced(served: Gateway) -> None:
    notices = post(served, few_shot(), "/v1/completions", echo=True).headers["x-gateway-notice"]
    assert "stop_not_enforced: echo" in notices.split("; ")
    assert "stop_not_enforced" not in post(served, few_shot(), "/v1/completions").headers["x-gateway-notice"]


def test_render_shows_the_prompt(served: Gateway) -> None:
    body = post(served, few_shot(examples=[{"question": "5+5=?", "answer": "10"}]), "/v1/render").json()
    assert body["prompt"] == "<HUMAN>: 5+5=?<eoh>\n<BOT>: 10<eob>\n<HUMAN>: 12+34=?<eoh>\n<BOT>: "
    assert "".join(segment["text"] for segment in body["segments"]) == body["prompt"]
    assert body["dataset_prompt"].startswith("sums-few-shot@sha256:")


def test_a_streamed_answer_is_the_same(served: Gateway) -> None:
    text = post(served, few_shot(), stream=True).text
    assert text.endswith("data: [DONE]\n\n")
    assert '"content":"46"' in text or '"content":"4"' in text


def test_the_label_with_the_right_sum_is_the_likeliest(served: Gateway) -> None:
    variables = {"question": "12+34=?", "A": "45", "B": "46", "C": "56", "D": "47"}
    body = {"model": "demo", "prompt": {"id": "sums-choice", "variables": variables}}
    answer = served.http.post("/v1/loglikelihood", json=body)
    assert answer.json()["prediction"] == "B", answer.text
    assert answer.headers["x-gateway-dataset-prompt"].startswith("sums-choice@sha256:")


def test_render_shows_every_turn_with_the_answers_of_the_dataset(served: Gateway) -> None:
    body = post(served, {"turns": {"questions": ["1+2=?", "3+4=?"], "answers": ["3"]}}, "/v1/render").json()
    first = "<HUMAN>: 1+2=?<eoh>\n<BOT>: "
    assert [turn["prompt"] for turn in body["turns"]] == [first, first + "3<eob>\n<HUMAN>: 3+4=?<eoh>\n<BOT>: "]


QUESTIONS = ["1+2=?", "3+4=?"]
TURNS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "a dataset prompt": (
        {"turns": {"mode": "every"}, "prompt": {"id": "sums-dialogue", "variables": {"question": QUESTIONS}}},
        {},
        ["3", "7"],
    ),
    "questions": ({"turns": {"questions": QUESTIONS}}, {}, ["3", "7"]),
    "only the last question": ({"turns": {"mode": "last", "questions": QUESTIONS, "answers": ["3"]}}, {}, ["7"]),
    "questions after messages": (
        {"turns": {"questions": QUESTIONS}},
        {"messages": [{"role": "user", "content": "5+5=?"}, {"role": "assistant", "content": "10"}]},
        ["3", "7"],
    ),
    "the assistant messages": (
        {"turns": {"mode": "every_with_gt"}},
        {
            "messages": [
                {"role": "user", "content": "1+2=?"},
                {"role": "assistant", "content": "3"},
                {"role": "user", "content": "5+2=?"},
            ]
        },
        ["3", "7"],
    ),
}


@pytest.mark.parametrize("case", TURNS)
def test_a_call_with_turns_has_every_answer(served: Gateway, case: str) -> None:
    options, fields, answers = TURNS[case]
    response = post(served, options, **fields)
    body = response.json()
    turns = body["gateway"]["turns"]
    assert [turn["content"] for turn in turns] == answers
    assert body["choices"][0]["message"]["content"] == answers[-1]
    assert body["usage"]["prompt_tokens"] == sum(turn["usage"]["prompt_tokens"] for turn in turns)
    assert response.headers["x-gateway-attempts"] == str(len(answers))


REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "an unknown prompt": (
        "/v1/chat/completions",
        {"prompt": {"id": "sum"}},
        {},
        'no dataset prompt "sum" in prompts/ (did you mean "sums"?)',
    ),
    "messages beside a prompt": (
        "/v1/chat/completions",
        {"prompt": {"id": "sums"}},
        {"messages": [{"role": "user", "content": "x"}]},
        "gateway.prompt replaces messages, prompt and gateway.variables; send only one of these fields",
    ),
    "a raw prompt beside a prompt": (
        "/v1/completions",
        {"prompt": {"id": "sums"}},
        {"prompt": "x"},
        "gateway.prompt replaces messages, prompt and gateway.variables; send only one of these fields",
    ),
    "an unknown key": (
        "/v1/chat/completions",
        {"prompt": {"id": "sums", "vars": {}}},
        {},
        'gateway.prompt.vars: unknown key (did you mean "variables"?)',
    ),
    "a stream of turns": (
        "/v1/chat/completions",
        {"turns": {"questions": ["1+1=?"]}},
        {"stream": True},
        "a call with turns cannot be streamed and has only one choice; leave stream and n out",
    ),
    "turns without the answers they need": (
        "/v1/chat/completions",
        {"turns": {"mode": "last", "questions": ["1+1=?", "2+2=?"]}},
        {},
        "mode last requires one answer for each question; only the last answer may be missing",
    ),
    "turns of a prompt with one turn": (
        "/v1/chat/completions",
        {"turns": {}, "prompt": {"id": "sums", "variables": {"question": "1"}}},
        {},
        "prompt sums has only one turn; set multi_turn: true in the prompt file",
    ),
    "token ids of turns": (
        "/v1/chat/completions",
        {"turns": {"questions": ["1"]}},
        {"return_token_ids": True},
        "a call with turns returns no return_token_ids; leave it out",
    ),
    "no turns at all": (
        "/v1/chat/completions",
        {"turns": {}},
        {},
        "a call with turns needs messages, questions or a dataset prompt",
    ),
    "turns of a raw prompt": (
        "/v1/completions",
        {"turns": {"questions": ["1"]}},
        {"prompt": "x"},
        "turns require messages; send the turns to /v1/chat/completions",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_cannot_be_answered_is_refused(served: Gateway, case: str) -> None:
    path, options, fields, message = REFUSED[case]
    answer = post(served, options, path, **fields)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)


def test_a_changed_prompt_file_is_used_after_a_reload(tmp_path: Path) -> None:
    from gateway.config.files.watcher import FileWatcher

    (tmp_path / "prompts").mkdir()
    (tmp_path / "gateway.yaml").write_text("x: 1")
    watcher = FileWatcher([tmp_path / "gateway.yaml"])
    (tmp_path / "prompts" / "new.yaml").write_text("description: x")
    assert [watcher.changed(), watcher.changed()] == [False, True]


EXCHANGE = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "1"}]
TURNS_TOO_MANY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "messages": ({"turns": {}}, {"messages": EXCHANGE * 65}),
    "a dataset prompt": (
        {"turns": {}, "prompt": {"id": "sums-dialogue", "variables": {"question": ["1"] * 65}}},
        {},
    ),
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/render"])
@pytest.mark.parametrize("case", TURNS_TOO_MANY)
def test_the_number_of_turns_is_limited(served: Gateway, case: str, path: str) -> None:
    options, fields = TURNS_TOO_MANY[case]
    answer = post(served, options, path, **fields)
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "a call has at most 64 turns, not 65",
    )


def test_a_null_prompt_is_no_prompt(served: Gateway) -> None:
    answer = post(served, {"prompt": None, "turns": None}, echo=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("messages is missing; ")


def test_a_prompt_with_labels_or_turns_is_not_answered_by_accident(served: Gateway) -> None:
    choice = {"question": "1+1=?", "A": "1", "B": "2", "C": "3", "D": "4"}
    answer = post(served, {"prompt": {"id": "sums-choice", "variables": choice}})
    message = "prompt sums-choice has a template for each label; send the request to /v1/loglikelihood"
    assert answer.json()["error"]["message"] == message
    shown = post(served, {"prompt": {"id": "sums-choice", "variables": choice}}, "/v1/render").json()
    assert shown["labels"]["B"] == "<HUMAN>: 1+1=?<eoh>\n<BOT>: 2<eob>\n"
    answer = post(served, {"prompt": {"id": "sums-dialogue", "variables": {"question": ["1+1=?"]}}})
    assert answer.json()["error"]["message"] == "prompt sums-dialogue has several turns; add gateway.turns, such as {}"


def test_the_times_of_a_dialogue_are_those_of_all_its_turns(served: Gateway) -> None:
    headers = post(served, {"turns": {"questions": ["1+2=?", "3+4=?", "5+6=?"]}}).headers
    assert 0 <= float(headers["x-gateway-overhead-ms"]) <= float(headers["openai-processing-ms"]) + 1
    assert served.metric("gateway_upstream_first_token_seconds_sum", model="demo", target="demo/0") >= 0


def test_a_path_with_one_prompt_refuses_turns(served: Gateway) -> None:
    answer = post(served, {"turns": {"questions": ["1"]}}, "/tokenize", messages=[{"role": "user", "content": "1"}])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "gateway.turns")


def test_a_long_dataset_prompt_is_refused_at_every_path(served: Gateway) -> None:
    options = {"prompt": {"id": "sums", "variables": {"question": "1" * 2_100_000}}}
    for path in ("/v1/chat/completions", "/v1/completions"):
        answer = post(served, options, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
