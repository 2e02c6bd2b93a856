"""A model that fails, and the models that answer instead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.serving import Gateway, gateway
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream, refused_url
from tests.support.world import key_file

TEMPLATE = """\
kind: meta
round:
  - {{role: HUMAN, begin: "<{0}>", end: "\\n"}}
  - {{role: BOT, begin: "<{0}-bot>", end: "\\n", generate: true}}
"""
POLICY = "delivery: {fallback: true, retry: {attempts: 3}}\n"
STREAMED = "delivery: {fallback: true, stream_upstream: true}\n"
TURNS = {"turns": {"questions": ["one", "two", "three"]}}


@pytest.fixture(scope="module")
def served(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    files = {
        "policies/substitutes.yaml": POLICY,
        "policies/streamed.yaml": STREAMED,
        "meta_templates/first.yaml": TEMPLATE.format("first"),
        "meta_templates/second.yaml": TEMPLATE.format("second"),
        "keys.yaml": key_file({"all": 'models: ["*"]', "one": "models: [down, breaks-off]"}),
    }

    def model(name: str, template: str, url: str, *fallback: str) -> str:
        target = f'{{speaks: completions, url: "{url}", model: m}}'
        given = f"policy: substitutes, fallback: [{', '.join(fallback)}], " if fallback else ""
        return f"  {name}: {{template: {template}, {given}targets: [{target}]}}\n"

    ok, down = up.url("ok"), refused_url()
    config = "keys: {file: keys.yaml}\nmodels:\n" + "".join(
        (
            model("good", "second", ok),
            model("also-down", "second", down),
            model("down", "first", down, "also-down", "good"),
            model("refuses", "first", up.url("400-echo", message="no"), "good"),
            model("breaks-off", "first", up.url("drop-midstream"), "good"),
            model("hopeless", "first", down, "also-down"),
            model("tires", "first", up.url("fails-at", text="two"), "also-down", "good"),
            model("drops", "first", up.url("fails-at", text="two", s="1"), "also-down", "good").replace(
                "substitutes", "streamed"
            ),
        )
    )
    with gateway(tmp_path_factory.mktemp("fallback"), config, files=files) as one:
        one.http.headers["authorization"] = "Bearer all"
        yield one


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_answer_of_another_model_says_so(served: Gateway, up: FaultyUpstream, stream: bool) -> None:
    answer = served.chat("down", "hi", stream=stream)
    assert answer.status_code == 200
    assert up.requests[-1].body["prompt"] == "<second>hi\n<second-bot>", "the prompt has the other model's template"
    assert answer.headers["x-gateway-model"] == "good"
    assert answer.headers["x-gateway-target"] == "good/0"
    assert answer.headers["x-gateway-attempts"] == "3"
    notices = answer.headers["x-gateway-notice"]
    assert "fallback: down=upstream_unreachable; fallback: also-down=upstream_unreachable" in notices
    assert '"model":"good"' in answer.text


def tokens(served: Gateway) -> float:
    """The tokens that the client's key has used."""
    assert served.wait_until_idle()
    series = served.runtime.metrics.snapshot().series["gateway_key_tokens_total"]
    return sum(value for (key, _, _), (value, *_) in series.items() if key == "all")


@pytest.mark.parametrize(
    ("model", "error"),
    [("tires", "upstream_error"), ("drops", "upstream_disconnected")],
    ids=["a failed turn", "a turn that breaks off"],
)
def test_a_dialogue_starts_again_whole_with_the_next_model(
    served: Gateway, up: FaultyUpstream, model: str, error: str
) -> None:
    before, counted = up.request_count, tokens(served)
    answer = served.http.post("/v1/chat/completions", json={"model": model, "gateway": TURNS})
    body = answer.json()
    turn = body["gateway"]["turns"][0]["usage"]["total_tokens"]
    assert tokens(served) - counted == body["usage"]["total_tokens"] + turn, (
        "the answered turn of the failed model counts"
    )
    assert answer.status_code == 200, body
    assert (body["model"], answer.headers["x-gateway-model"]) == ("good", "good")
    turns = body["gateway"]["turns"]
    assert [turn["content"] for turn in turns] == [TEXT] * 3
    assert body["usage"]["total_tokens"] == sum(turn["usage"]["total_tokens"] for turn in turns)
    notices = answer.headers["x-gateway-notice"]
    assert f"fallback: {model}={error}; fallback: also-down=upstream_unreachable" in notices
    prompts = [request.body["prompt"] for request in up.requests[before:]]
    first = "<second>one\n<second-bot>"
    assert prompts[-3] == first, "the first turn is sent again"
    assert prompts[-1] == f"{first}{TEXT}\n<second>two\n<second-bot>{TEXT}\n<second>three\n<second-bot>"
    assert len(prompts) == 5
    assert answer.headers["x-gateway-attempts"] == "6"


def test_a_dialogue_that_no_model_can_answer_has_the_last_error(served: Gateway) -> None:
    answer = served.http.post("/v1/chat/completions", json={"model": "hopeless", "gateway": TURNS})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert "also-down/0" in answer.json()["error"]["message"]
    assert answer.headers["x-gateway-model"] == "also-down"


def test_scores_are_not_those_of_another_model(served: Gateway) -> None:
    body = {"model": "down", "candidates": {"A": "yes", "B": "no"}}
    answer = served.http.post("/v1/loglikelihood", json=body)
    assert answer.json()["error"]["code"] == "upstream_unreachable"
    assert "good" not in answer.text


def test_if_every_model_fails_the_last_error_is_sent(served: Gateway) -> None:
    answer = served.chat("hopeless")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert "also-down/0" in answer.json()["error"]["message"]
    assert answer.headers["x-gateway-attempts"] == "2"
    assert answer.headers["x-should-retry"] == "false", "an SDK would send the call to both models again"


def test_a_refused_request_is_not_sent_to_another_model(served: Gateway) -> None:
    assert served.chat("refuses").json()["error"]["code"] == "upstream_rejected_request"


def test_an_answer_that_has_begun_is_not_replaced(served: Gateway) -> None:
    answer = served.chat("breaks-off", stream=True)
    assert '"code":"upstream_disconnected"' in answer.text
    assert answer.headers["x-gateway-model"] == "breaks-off"


def test_a_raw_prompt_is_not_sent_to_another_model(served: Gateway) -> None:
    answer = served.http.post("/v1/completions", json={"model": "down", "prompt": "hi"})
    assert answer.json()["error"]["code"] == "upstream_unreachable"


def test_a_key_gets_no_answer_of_a_model_that_it_may_not_use(served: Gateway) -> None:
    answer = served.chat("down", key="one")
    assert answer.json()["error"]["code"] == "upstream_unreachable"
    assert "good" not in answer.text
