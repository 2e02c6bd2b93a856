"""``POST /v1/loglikelihood``: what is sent for a candidate, how the answer is read, and what is refused."""

from __future__ import annotations

import json
import logging
import math
import socket
from typing import Any

import httpx
import pytest

from tests.edge.raw import HEAD
from tests.support import world as common
from tests.support.serving import eventually
from tests.support.upstream.modes_scores import FAULTS, logprob
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import world_fixture

PATH = "/v1/loglikelihood"
MARKED = """
kind: meta
begin: "<s>"
bos: text
bos_text: "<s>"
round:
  - {role: HUMAN, begin: "H: ", end: "\\n"}
  - {role: BOT, begin: "B: ", end: "\\n", generate: true}
end: "E"
"""

TARGETS: dict[str, tuple[str, str, dict[str, Any]]] = {  # model: (template, the target, options of the mode)
    "shown": ("sft-demo", "speaks: completions", {"bos": "shown"}),
    "hidden": ("sft-demo", "speaks: completions", {"bos": "hidden"}),
    "no-bos": ("sft-demo", "speaks: completions", {}),
    "end-token": ("sft-demo", "speaks: completions", {"bos": "hidden", "end": "token"}),
    "end-not-listed": ("sft-demo", "speaks: completions, engine: llamacpp", {"bos": "hidden", "end": "none"}),
    "vllm": ("sft-demo", "speaks: completions, engine: vllm", {"bos": "shown"}),
    "vllm-chat": ("chat", "speaks: chat, engine: vllm", {}),
    "bos-in-template": ("marked", "speaks: completions, engine: vllm", {"bos": "shown"}),
    "bos-of-engine": ("marked", "speaks: completions, engine: sglang", {"bos": "hidden"}),
    "prompter": ("lazyllm-qwen", "speaks: completions", {}),
    "unable": ("chat", "speaks: chat", {}),
    "tgi": ("sft-demo", "speaks: completions, engine: tgi", {}),
    "pairs": ("sft-demo", "speaks: completions", {"size": 2}),
    "vllm-pairs": ("sft-demo", "speaks: completions, engine: vllm", {"size": 2}),
    "silent": ("sft-demo", "speaks: completions", {}),
    "failing": ("sft-demo", "speaks: completions", {}),
    **{f"echo-{fault}": ("sft-demo", "speaks: completions", {"fault": fault}) for fault in FAULTS},
    **{f"vllm-{fault}": ("sft-demo", "speaks: completions, engine: vllm", {"fault": fault}) for fault in FAULTS},
}
MODES = {"failing": "503", "silent": "hang-headers"}
"""The modes of the upstream other than ``scores``."""
ECHOES = ("shown", "hidden", "no-bos", "end-token", "end-not-listed")
PROMPTS = {
    "choice": """
input_columns: [question, A, B]
prompt_template:
  template:
    A: {round: [{role: HUMAN, prompt: "{question}"}, {role: BOT, prompt: "{A}"}]}
    B: {round: [{role: HUMAN, prompt: "{question}"}, {role: BOT, prompt: "{B}"}]}
""",
    "texts": """
input_columns: [question]
ice_template: {template: {"yes": "Q {question} yes", "no": "Q {question} no"}}
prompt_template: {template: {"yes": "</E>{question}? yes", "no": "</E>{question}? no"}, ice_token: "</E>"}
output_column: answer
""",
    "one": """
input_columns: [question]
prompt_template: {template: "{question}"}
""",
}
POLICIES = {"forcing": "params: {force: {max_tokens: 9}}", "refusing": "params: {forbid: [logprobs]}"}

TEXTS = {"a": "1+1=2", "b": "1+1=11"}
TALKS = {
    label: [{"role": "user", "content": "1+1=?"}, {"role": "assistant", "content": text}]
    for label, text in (("a", "2"), ("b", "11"))
}


class World(common.World):
    def ask(self, model: str, **fields: Any) -> httpx.Response:
        candidates = {} if "prompt" in fields else {"candidates": TEXTS}
        return self.served.http.post(PATH, json={"model": model, **candidates, **fields})

    def scores(self, model: str, **fields: Any) -> Any:
        answer = self.ask(model, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def last(self, number: int) -> list[Any]:
        """The last bodies that the upstream received; requests of one call have no order."""
        return [request.body for request in self.up.requests[-number:]]


def config(up: FaultyUpstream) -> str:
    lines = ["models:"]
    for model, (template, target, options) in TARGETS.items():
        url = up.url(MODES.get(model, "scores"), **options)
        lines.append(f'  {model}: {{template: {template}, targets: [{{{target}, url: "{url}"}}]}}')
    for policy in POLICIES:
        target = f'{{speaks: completions, url: "{up.url("scores")}"}}'
        lines.append(f"  {policy}: {{template: sft-demo, policy: {policy}, targets: [{target}]}}")
    return "\n".join(lines)


FILES = {
    "meta_templates/marked.yaml": MARKED,
    **{f"policies/{name}.yaml": text for name, text in POLICIES.items()},
    **{f"prompts/{name}.yaml": text for name, text in PROMPTS.items()},
}
world = world_fixture(config, FILES, World)


def total(text: str) -> float:
    """The sum of the log probabilities of a text's characters."""
    return sum(map(logprob, text))


def error(answer: httpx.Response) -> tuple[int, str, str]:
    error_object = answer.json()["error"]
    return answer.status_code, error_object["code"], error_object["message"]


# ---------------------------------------------------------------- the scores


@pytest.mark.parametrize("model", [*ECHOES, "vllm"])
def test_a_string_is_scored_from_its_second_token_on(world: World, model: str) -> None:
    body = world.scores(model)
    for label, text in TEXTS.items():
        known = text if TARGETS[model][2].get("bos") == "shown" else text[1:]
        found = body["candidates"][label]
        assert (found["logprob"], found["tokens"]) == (total(known), len(known))
        assert found["perplexity"] == pytest.approx(math.exp(-total(known) / len(known)))
        assert (found["characters"], found["bytes"]) == (len(text), len(text))


def test_a_string_is_sent_unchanged_with_the_fields_of_lm_eval(world: World) -> None:
    world.scores("no-bos")
    sent = world.last(2)
    assert {body["prompt"] for body in sent} == set(TEXTS.values())
    for body in sent:
        assert (body["echo"], body["logprobs"], body["max_tokens"], body["stream"]) == (True, 1, 1, False)


def test_a_conversation_is_rendered_complete(world: World) -> None:
    body = world.scores("no-bos", candidates=TALKS)
    text = "<HUMAN>: 1+1=?<eoh>\n<BOT>: 2<eob>\n"
    assert text in {one["prompt"] for one in world.last(2)}
    found = body["candidates"]["a"]
    assert (found["logprob"], found["tokens"], found["characters"]) == (total(text[1:]), len(text) - 1, len(text))


def test_a_chat_engine_renders_the_conversation_without_an_open_turn(world: World) -> None:
    found = world.scores("vllm-chat", candidates=TALKS)["candidates"]["a"]
    text = "[user]1+1=?;[assistant]2;"
    assert (found["logprob"], found["tokens"]) == (total(text[1:]), len(text) - 1)
    assert found["characters"] is None
    for body in world.last(2):
        assert (body["prompt_logprobs"], body["add_generation_prompt"], body["max_tokens"]) == (0, False, 1)


@pytest.mark.parametrize(("model", "sent"), [("bos-in-template", "<s>"), ("bos-of-engine", "")])
def test_the_model_reads_one_bos(world: World, model: str, sent: str) -> None:
    found = world.scores(model, candidates=TALKS)["candidates"]["a"]
    text = f"{sent}H: 1+1=?\nB: 2\nE"
    assert text in {body["prompt"] for body in world.last(2)}
    assert (found["logprob"], found["tokens"]) == (total(text[1:]), len(text) - 1)


@pytest.mark.parametrize("model", [*ECHOES, "vllm"])
def test_only_the_tokens_after_a_context_are_scored(world: World, model: str) -> None:
    body = world.scores(model, context="1+1=", candidates={"a": "2", "b": "11"})
    scores = {label: (one["logprob"], one["tokens"], one["characters"]) for label, one in body["candidates"].items()}
    assert scores == {"a": (total("2"), 1, 1), "b": (total("11"), 2, 2)}
    assert {one["prompt"] for one in world.last(3)} == {"1+1=", "1+1=2", "1+1=11"}


EQUAL: dict[str, tuple[str, dict[str, Any], int]] = {  # the model, the request, the number of requests to the engine
    "strings": ("no-bos", {"candidates": {"a": "1+1=2", "b": "1+1=11", "c": "1+1=2"}}, 2),
    "answers after a context": ("vllm", {"context": "1+1=", "candidates": {"a": "2", "b": "2"}}, 2),
    "conversations": ("shown", {"candidates": {"a": TALKS["a"], "b": TALKS["a"], "c": TALKS["b"]}}, 2),
    "conversations that the engine renders": ("vllm-chat", {"candidates": {"a": TALKS["a"], "b": TALKS["a"]}}, 1),
    "answers that the engine writes after a conversation": (
        "vllm-chat",
        {"context": TALKS["a"][:1], "candidates": {"a": "2", "b": "2", "c": "11"}},
        3,
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal_candidates_are_scored_once_and_the_first_wins(world: World, case: str) -> None:
    model, fields, requests = EQUAL[case]
    before = world.up.request_count
    answer = world.ask(model, normalize="none", **fields)
    body = answer.json()
    assert world.up.request_count - before == requests
    assert answer.headers["x-gateway-attempts"] == str(requests)
    equal = [label for label, value in fields["candidates"].items() if value == fields["candidates"]["a"]]
    assert len({json.dumps(body["candidates"][label]) for label in equal}) == 1
    assert body["prediction"] == "a"
    assert body["usage"]["completion_tokens"] == requests


@pytest.mark.parametrize("model", ["pairs", "vllm-pairs"])
def test_a_token_across_the_context_is_scored_with_the_candidate(world: World, model: str) -> None:
    answer = world.ask(model, context="1+1", candidates={"a": "=2", "b": "5"})  # 1+|1=|2 and 1+|15
    found = answer.json()["candidates"]
    assert [(one["logprob"], one["tokens"]) for one in found.values()] == [(total("1=2"), 2), (total("15"), 1)]
    assert "token_across_context: 2" in answer.headers["x-gateway-notice"]


@pytest.mark.parametrize("model", ["no-bos", "vllm", "vllm-chat", "prompter", "bos-of-engine"])
def test_a_candidate_is_the_answer_to_a_conversation(world: World, model: str) -> None:
    context = [{"role": "user", "content": "1+1=?"}]
    found = world.scores(model, context=context, candidates={"a": "2", "b": "11"})["candidates"]
    assert [(one["logprob"], one["tokens"]) for one in found.values()] == [(total("2"), 1), (total("11"), 2)]


def test_the_prediction_has_the_lowest_perplexity_and_the_first_of_equal_ones_wins(world: World) -> None:
    perplexity = world.scores("no-bos", context="=", candidates={"x": "77", "y": "1", "z": "9"})
    assert perplexity["candidates"]["y"]["perplexity"] == perplexity["candidates"]["z"]["perplexity"]
    assert perplexity["prediction"] == "y"


@pytest.mark.parametrize(
    ("normalize", "prediction"),
    [
        ("tokens", "long"),
        ("none", "short"),
        ("characters", "long"),
        ("bytes", "wide"),
    ],
)
def test_the_prediction_depends_on_the_normalization(world: World, normalize: str, prediction: str) -> None:
    # One character is -0.125 (code divisible by 8), -0.25 (remainder 1) or more.
    candidates = {"short": "1", "long": "0001", "wide": "\u4e01"}
    body = world.scores("no-bos", context="=", candidates=candidates, normalize=normalize)
    found = body["candidates"]
    assert [one["logprob"] for one in found.values()] == [-0.25, -0.625, -0.25]
    lengths = {"tokens": (1, 4, 1), "none": (1, 1, 1), "characters": (1, 4, 1), "bytes": (1, 4, 3)}[normalize]
    assert [one["normalized"] for one in found.values()] == [
        one["logprob"] / length for one, length in zip(found.values(), lengths, strict=True)
    ]
    assert (body["prediction"], body["normalize"]) == (prediction, normalize)


# ---------------------------------------------------------------- dataset prompts

CHOICE = {"id": "choice", "variables": {"question": "1+1=?", "A": "2", "B": "11"}}


@pytest.mark.parametrize("model", ["no-bos", "vllm", "vllm-chat"])
def test_the_labels_of_a_dataset_prompt_are_candidates(world: World, model: str) -> None:
    answer = world.ask(model, prompt=CHOICE)
    assert answer.status_code == 200, answer.text
    own = world.scores(model, candidates={"A": TALKS["a"], "B": TALKS["b"]})
    assert answer.json()["candidates"] == own["candidates"]
    assert answer.headers["x-gateway-dataset-prompt"].startswith("choice@sha256:")
    assert answer.headers["x-gateway-template"] != "none"


def test_a_dataset_prompt_with_examples_may_be_text(world: World) -> None:
    examples = [{"question": "a", "answer": "yes"}]
    body = world.scores("no-bos", prompt={"id": "texts", "variables": {"question": "b"}, "examples": examples})
    assert {one["prompt"] for one in world.last(2)} == {"Q a yes\nb? yes", "Q a yes\nb? no"}
    assert list(body["candidates"]) == ["yes", "no"]


# ---------------------------------------------------------------- the answer around the scores


def test_the_headers_and_the_usage_count_all_requests(world: World) -> None:
    answer = world.ask("no-bos", context="1+1=", candidates={"a": "2", "b": "11"})
    assert answer.headers["x-gateway-attempts"] == "3"
    assert answer.headers["x-gateway-template"] == "none"
    assert answer.json()["usage"] == {"prompt_tokens": 4 + 5 + 6, "completion_tokens": 3, "total_tokens": 18}


def test_an_explanation_has_all_prompts_and_the_template(world: World) -> None:
    answer = world.ask("no-bos", candidates=TALKS, gateway={"explain": True})
    shown = answer.json()["gateway"]
    assert [prompt[-9:] for prompt in shown["prompt"]] == [": 2<eob>\n", "11<eob>\n"] or shown["prompt"]
    assert shown["template"] == answer.headers["x-gateway-template"] != "none"
    assert shown["prompt_sha256"] == answer.headers["x-gateway-prompt-sha256"]


def test_a_call_is_counted_under_its_endpoint(world: World) -> None:
    labels = {"endpoint": "loglikelihood", "model": "no-bos", "outcome": "ok"}
    before = world.served.counted("gateway_requests_total", **labels)
    world.scores("no-bos")
    assert world.served.counted("gateway_requests_total", **labels) == before + 1


def test_a_rewritten_role_is_a_notice(world: World) -> None:
    talk = [{"role": "system", "content": "s"}, *TALKS["a"]]
    answer = world.ask("bos-of-engine", candidates={"a": talk})
    assert "fallback_role" in answer.headers["x-gateway-notice"]
    assert "bos_stripped" in answer.headers["x-gateway-notice"]


def test_the_failure_of_one_request_is_the_answer(world: World) -> None:
    answer = world.ask("failing")
    assert error(answer)[:2] == (503, "upstream_overloaded")
    assert answer.headers["x-gateway-target"] == "failing/0"


def test_eight_requests_are_sent_at_a_time_and_end_with_the_client(world: World) -> None:
    before = world.up.request_count
    candidates = {str(number): f"{number}+1=" for number in range(20)}
    body = json.dumps({"model": "silent", "candidates": candidates}).encode()
    head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (PATH.encode(), HEAD, len(body))
    with socket.create_connection(("127.0.0.1", world.served.port)) as link:
        link.sendall(head + body)
        assert world.up.wait(lambda: world.up.active == 8)
    assert world.up.wait(lambda: world.up.active == 0)
    assert world.up.request_count == before + 8


# ---------------------------------------------------------------- answers with a doubt

WRONG = {  # fault: (of echo, of prompt_logprobs)
    "no-echo": ("upstream_ignored_parameter", None),
    "no-logprobs": ("upstream_ignored_parameter", None),
    "null-inside": ("upstream_invalid_response", "upstream_invalid_response"),
    "one-short": ("upstream_invalid_response", "upstream_invalid_response"),
    "no-usage": ("upstream_invalid_response", None),
    "no-list": (None, "upstream_ignored_parameter"),
    "two-entries": (None, "upstream_invalid_response"),
    "not-numbers": (None, "upstream_invalid_response"),
    "two-choices": ("upstream_invalid_response", "upstream_invalid_response"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("way", ["echo", "vllm"])
def test_an_answer_with_a_doubt_is_an_error(world: World, fault: str, way: str) -> None:
    code = WRONG[fault][way == "vllm"]
    answer = world.ask(f"{way}-{fault}")
    assert answer.status_code == (200 if code is None else 502), answer.text
    assert code is None or error(answer)[1] == code


@pytest.mark.parametrize("model", ["echo-no-logprobs", "vllm-no-list"])
def test_an_answer_with_a_doubt_has_a_line_with_its_reason(
    world: World, caplog: pytest.LogCaptureFixture, model: str
) -> None:
    caplog.set_level(logging.WARNING)
    _, code, _ = error(world.ask(model))
    assert eventually(lambda: " loglikelihood " in "".join(caplog.messages))
    lines = [line for line in caplog.messages if "answer_broke_off" in line]
    assert lines
    assert f"model={model} target={model}/0" in lines[0]
    assert f"error={code}" in lines[0]
    assert "reason=\"the model's server ignored " in lines[0]


# ---------------------------------------------------------------- refusals

REFUSED: dict[str, tuple[str, dict[str, Any], str, str]] = {  # name: (model, fields, param, part of the message)
    "a target that cannot": ("unable", {}, "model", "do not return the log probabilities"),
    "an engine without echo": ("tgi", {}, "model", "do not return the log probabilities"),
    "a policy that changes a field": ("forcing", {}, "model", "changes max_tokens"),
    "a policy that forbids a field": ("refusing", {}, "logprobs", "does not allow logprobs"),
    "no candidates": ("no-bos", {"candidates": {}}, "candidates", "is empty"),
    "candidates in a list": (
        "no-bos", {"candidates": ["a"]}, "candidates", 'an object, not a list; write an object of labels and',
    ),
    "an empty candidate": ("no-bos", {"candidates": {"a": ""}}, "candidates.a", "is empty"),
    "an empty conversation": ("no-bos", {"candidates": {"a": []}}, "candidates.a", "is empty"),
    "a number": ("no-bos", {"candidates": {"a": 5}}, "candidates.a", "a string or a list, not a number"),
    "a message without content": (
        "no-bos", {"candidates": {"a": [{"role": "user"}]}}, "candidates.a[0].content", "is missing"),
    "two forms": ("no-bos", {"candidates": {**TEXTS, "c": TALKS["a"]}}, "candidates", "all strings or all lists"),
    "conversations after a context": ("no-bos", {"context": "a", "candidates": TALKS}, "candidates", "must be strings"),
    "candidates and a dataset prompt": ("no-bos", {"prompt": CHOICE, "candidates": TEXTS}, "candidates", "either"),
    "a context and a dataset prompt": ("no-bos", {"prompt": CHOICE, "context": "a"}, "candidates", "either"),
    "an unknown dataset prompt": ("no-bos", {"prompt": {"id": "choise"}}, "prompt.id", "choice"),
    "a dataset prompt without labels": (
        "no-bos", {"prompt": {"id": "one", "variables": {"question": "a"}}}, "prompt.id", "no labels"),
    "a missing variable": ("no-bos", {"prompt": {"id": "choice"}}, "prompt.variables", "lacks question, A, B"),
    "a dataset prompt elsewhere": ("no-bos", {"gateway": {"prompt": CHOICE}}, "gateway.prompt", "field prompt"),
    "too many candidates": (
        "no-bos", {"candidates": dict.fromkeys(map(str, range(129)), "ab")}, "candidates", "at most 128"),
    "an unknown unit": ("no-bos", {"normalize": "words"}, "normalize", "one of tokens, none, characters"),
    "a field of another endpoint": ("no-bos", {"temperature": 0}, "temperature", "this endpoint has no field"),
    "a field of the operator": ("no-bos", {"api_base": "http://a"}, "api_base", "set by the operator"),
    "variables without a template": ("no-bos", {"gateway": {"variables": {"a": 1}}}, "gateway.variables", "variables"),
    "one token": ("no-bos", {"candidates": {"a": "1"}}, "candidates", "send the text before the candidate as context"),
    "strings for a chat engine": ("vllm-chat", {}, "candidates", "accepts only messages"),
    "a text before them": ("vllm-chat", {"context": "a"}, "context", "accepts only messages"),
    "characters that only the engine knows": (
        "vllm-chat", {"candidates": TALKS, "normalize": "characters"}, "normalize", "not known"),
    "a prompter's conversation without an answer": (
        "prompter", {"candidates": {"a": TALKS["a"][:1]}}, "add_generation_prompt", "must end with an assistant"),
    "a role that the template lacks": (
        "no-bos", {"candidates": {"a": [{"role": "judge", "content": "x"}]}}, "messages[0].role", "judge"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_cannot_be_scored_is_refused(world: World, name: str) -> None:
    model, fields, param, part = REFUSED[name]
    answer = world.ask(model, **fields)
    assert answer.status_code == 400, answer.text
    assert (answer.json()["error"]["param"], part in error(answer)[2]) == (param, True), answer.text
