"""Rates, concurrent calls and the queue, over HTTP (rows D01 to D05 of ``docs/spec/reliability.md``)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import httpx
import pytest

from tests.support.serving import Gateway, eventually
from tests.support.world import gateway_fixture, key_file

FILES = {
    "keys.yaml": key_file(
        {
            "three": "limits: {requests_per_minute: 3}",
            "tokens": "limits: {tokens_per_minute: 1000}",
            "uncounted": "limits: {tokens_per_minute: 1000}",
            "single": "limits: {concurrency: 1}",
            "free": "limits: {}",
            "other": "limits: {}",
        }
    ),
    "policies/two.yaml": "limits: {requests_per_minute: 2}\n",
    "policies/queue.yaml": "limits: {concurrency: 1, queue_wait: 60s, queue_size: 1}\n",
    "policies/impatient.yaml": "limits: {concurrency: 1, queue_wait: 10ms}\n",
    "quick.yaml": "[hello, {finish: stop}, {usage: [10, 5]}]\n",
    "uncounted.yaml": "[hello, {finish: stop}]\n",
    "held.yaml": "[hello, {pause: 600}]\n",
    "slow.yaml": "[{pause: 1.5}, hello, {finish: stop}]\n",
}
MODELS = {
    "open": ("default", "quick"),
    "limited": ("two", "quick"),
    "slow": ("default", "slow"),
    "silent-usage": ("default", "uncounted"),
    "queued": ("queue", "slow"),
    "held": ("queue", "held"),
    "impatient": ("impatient", "held"),
}


CONFIG = "keys: {file: keys.yaml}\nmodels:\n" + "".join(
    f"  {name}: {{template: chat, policy: {policy}, targets: [{{speaks: scripted, script: {script}.yaml}}]}}\n"
    for name, (policy, script) in MODELS.items()
)
served = gateway_fixture(CONFIG, FILES)


def start(served: Gateway, model: str, key: str) -> AbstractContextManager[httpx.Response]:
    """A streamed call, which keeps its place in the model's limits until the block ends."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    return served.http.stream("POST", "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})


def test_a_key_beyond_its_rate_gets_429_with_the_numbers(served: Gateway) -> None:
    for left in (2, 1, 0):
        answer = served.chat("open", key="three")
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "3"
        assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
        assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
    refused = served.chat("open", key="three")
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert error["message"].startswith(
        "key three may use 3 requests per minute (limits.requests_per_minute in the key file)"
    )
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert served.chat("open", key="free").status_code == 200, "another key is not affected"


def test_a_model_has_one_rate_for_all_keys(served: Gateway) -> None:
    answers = [served.chat("limited", key=key) for key in ("free", "other", "free")]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "model limited may use 2 requests per minute" in answers[2].json()["error"]["message"]


def test_tokens_are_estimated_and_then_settled(served: Gateway) -> None:
    first = served.chat("open", key="tokens", max_tokens=600)
    assert int(first.headers["x-ratelimit-remaining-tokens"]) < 400, "the estimate has 600 tokens of the answer"
    assert served.wait_until_idle()
    second = served.chat("open", key="tokens", max_tokens=600)
    assert second.status_code == 200, "the first call used 15 tokens"


def test_tokens_of_an_answer_without_usage_stay_estimated(served: Gateway) -> None:
    assert served.wait_until_idle()
    assert eventually(lambda: served.chat("open", key="uncounted", max_tokens=600).status_code == 200)
    assert served.chat("silent-usage", key="uncounted", max_tokens=600).status_code == 200
    assert served.wait_until_idle()
    assert served.chat("silent-usage", key="uncounted", max_tokens=600).status_code == 429


def test_a_call_larger_than_the_bucket_takes_all_of_it(served: Gateway) -> None:
    assert served.wait_until_idle()
    assert eventually(lambda: served.chat("open", key="tokens", max_tokens=100_000).status_code == 200)


def test_an_answer_without_a_limit_has_no_rate_headers(served: Gateway) -> None:
    answer = served.chat("open", key="free")
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


def test_a_key_has_a_limit_of_concurrent_calls(served: Gateway) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: served.chat("slow", key="single"), range(4)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes[0] == 200
    assert codes[-1] == 429
    assert served.chat("slow", key="single").status_code == 200


def test_calls_beyond_a_models_slots_wait_and_then_are_refused(served: Gateway) -> None:
    waits = {"model": "queued", "key": "free"}
    before = served.counted("gateway_queue_wait_seconds_count", **waits)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: served.chat("queued", key="free"), range(8)))
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(answers) - len(refused) >= 2, "one call runs, one waits"
    assert refused, "a third finds the queue full"
    assert {answer.json()["error"]["code"] for answer in refused} == {"overloaded"}
    assert all(1 <= int(answer.headers["retry-after"]) <= 3 for answer in refused)
    assert served.counted("gateway_shed_total", reason="queue_full") == len(refused)
    assert served.wait_until_idle()
    assert served.counted("gateway_queue_wait_seconds_count", **waits) - before == len(answers) - len(refused), (
        "a call that is refused at once has not waited"
    )


def test_a_call_that_waits_too_long_is_refused(served: Gateway) -> None:
    with start(served, "impatient", "free") as first:
        assert served.chat("impatient", key="free").status_code == 503
    assert first.status_code == 200
    assert served.metric("gateway_shed_total", reason="queue_timeout") == 1


def test_the_queue_is_measured_by_model_and_key_and_is_not_the_gateways_own_time(served: Gateway) -> None:
    def status(key: str) -> int:
        with start(served, "held", key) as answer:
            return answer.status_code

    with ThreadPoolExecutor(1) as pool:
        with start(served, "held", "free"):
            waiter = pool.submit(status, "other")
            assert eventually(lambda: served.metric("gateway_queue_length", model="held", key="other") == 1)
        assert waiter.result() == 200
    assert served.wait_until_idle()
    assert served.metric("gateway_queue_length", model="held", key="other") == 0
    sums = {key: served.metric("gateway_queue_wait_seconds_sum", model="held", key=key) for key in ("free", "other")}
    assert sums["other"] > sums["free"]
    call = {"endpoint": "chat", "model": "held", "stream": "true"}
    sums["upstream"] = served.metric("gateway_upstream_seconds_sum", model="held", target="held/0", stream="true")
    sums["gateway"] = served.metric("gateway_overhead_seconds_sum", **call)
    assert sum(sums.values()) == pytest.approx(served.metric("gateway_request_seconds_sum", **call), abs=1e-5)


def test_a_client_that_leaves_the_queue_frees_its_place(served: Gateway) -> None:
    def waiting() -> float:
        return served.metric("gateway_queue_length", model="held", key="other")

    body = {"model": "held", "messages": [{"role": "user", "content": "hi"}]}
    with start(served, "held", "free"):
        served.disconnect(body, when=lambda: waiting() == 1, authorization="Bearer other")
        assert eventually(lambda: waiting() == 0)
    assert served.wait_until_idle()
    with start(served, "held", "free") as answer:
        assert answer.status_code == 200
