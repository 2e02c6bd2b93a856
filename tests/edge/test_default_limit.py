"""The default token limit fits the engine's context, tested with a server that counts tokens as vLLM does."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.backend.openai.error_mapping import error_for_status
from gateway.calls.run import policy_changes
from gateway.config.snapshot import ParamsPolicy, PolicySpec
from gateway.core.errors import UpstreamRejectedRequest
from metatemplate.values.prompt import Notice
from tests.support.serving import Gateway, gateway

CONTEXT = 1024
CONFIG = """
models:
  counted: {{template: sft-demo, targets: [{{speaks: completions, url: "{url}", engine: vllm}}]}}
  sglang: {{template: sft-demo, targets: [{{speaks: completions, url: "{url}", engine: sglang}}]}}
  shorter: {{template: sft-demo, max_model_len: 100, targets: [{{speaks: completions, url: "{url}", engine: vllm}}]}}
  evaluated: {{template: sft-demo, policy: eval, targets: [{{speaks: completions, url: "{url}", engine: vllm}}]}}
  mute: {{template: sft-demo, targets: [{{speaks: completions, url: "{url}/mute/v1", engine: vllm}}]}}
  bounded:
    {{template: sft-demo, max_model_len: 100, targets: [{{speaks: completions, url: "{url}/mute/v1", engine: vllm}}]}}
"""


class Engine(ThreadingHTTPServer):
    """An engine with one token for each word; it refuses calls over its context, and ``n`` with temperature 0."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[tuple[str, Any]] = []


class Answer(BaseHTTPRequestHandler):
    server: Engine
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body))
        count = len(body["prompt"].split())
        if self.path == "/tokenize" and "refuse" in body["prompt"]:
            self._send_json(400, {"error": {"message": "no such text", "code": 400}})
        elif self.path == "/tokenize":
            self._send_json(200, {"count": count, "max_model_len": CONTEXT, "tokens": [1] * count})
        elif "tokenize" in self.path:
            self._send_json(404, {"detail": "Not Found"})
        elif count + body["max_tokens"] > CONTEXT:
            message = f"max_tokens is too large: {body['max_tokens']} beside {count} of {CONTEXT} tokens"
            self._send_json(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})
        elif body.get("seed") == 77:
            message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            self._send_json(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})
        elif body.get("n", 1) > 1 and body.get("temperature") == 0:
            message = "n must be 1 when using greedy sampling, got 2."
            self._send_json(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})
        else:
            choice = {"index": 0, "text": "hi", "finish_reason": "stop", "logprobs": None}
            self._send_json(200, {"object": "text_completion", "choices": [choice]})

    def _send_json(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def served(engine: Engine, tmp_path: Path) -> Iterator[Gateway]:
    with gateway(tmp_path, CONFIG.format(url=f"http://127.0.0.1:{engine.server_port}")) as made:
        yield made


def limits(engine: Engine) -> list[int]:
    return [body["max_tokens"] for path, body in engine.asked if "tokenize" not in path]


WORDS = 400
LONG = "word " * WORDS


@pytest.mark.parametrize("model", ["counted", "sglang"])
@pytest.mark.parametrize("text", ["hi", LONG], ids=["short", "long"])
def test_the_default_limit_fits_the_context(served: Gateway, engine: Engine, model: str, text: str) -> None:
    for _ in range(3):
        answer = served.chat(model, text)
        assert answer.status_code == 200, answer.text
        (limit,) = set(limits(engine))
        assert 0 < limit <= CONTEXT
        assert f"default_parameter: max_tokens={limit}" in answer.headers["x-gateway-notice"]


def test_a_shorter_configured_context_length_is_used(served: Gateway, engine: Engine) -> None:
    assert served.chat("shorter").status_code == 200
    assert limits(engine)[0] < 100


def test_with_a_limit_of_the_client_the_prompt_is_not_counted(served: Gateway, engine: Engine) -> None:
    assert served.chat("counted", max_tokens=5).status_code == 200
    assert [path for path, _ in engine.asked] == ["/completions"]


def test_an_engine_without_a_tokenize_endpoint_is_queried_once(served: Gateway, engine: Engine) -> None:
    for _ in range(3):
        served.chat("mute")
    assert limits(engine) == [2048] * 3
    assert len([path for path, _ in engine.asked if "tokenize" in path]) == 1


def test_a_configured_length_bounds_the_limit_of_an_engine_that_does_not_count(served: Gateway, engine: Engine) -> None:
    assert served.chat("bounded").status_code == 200
    assert limits(engine) == [99]


def test_a_failed_count_does_not_stop_later_counts(served: Gateway, engine: Engine) -> None:
    served.chat("counted", "refuse " + LONG)
    assert served.chat("counted", LONG).status_code == 200
    assert limits(engine)[-1] < CONTEXT - WORDS + 1


def test_the_model_list_shows_the_context_length_of_the_engine(served: Gateway) -> None:
    served.chat("counted")
    card = served.http.get("/v1/models/counted").json()
    assert card["max_model_len"] == CONTEXT


def test_a_refusal_names_the_parameters_set_by_the_policy(served: Gateway) -> None:
    answer = served.chat("evaluated", n=2)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "policies/eval.yaml had set temperature=0 (params.default)" in message
    assert "n must be 1" in message


def test_a_refusal_of_something_else_names_no_policy(served: Gateway) -> None:
    message = served.chat("evaluated", seed=77).json()["error"]["message"]
    assert "--enable-auto-tool-choice" in message
    assert "policies" not in message


ABOUT = {  # an engine's message: the parameter that the policy has set
    "Temperature must not be zero": "temperature",
    "Unsupported value: 'temperature' does not support 0": "temperature",
    "generationConfig.topP is out of range": "top_p",
    "top p must be below 1": "top_p",
    "max_completion_tokens is too large": "max_tokens",
    "max_new_tokens is out of range": "max_tokens",
    "generationConfig.maxOutputTokens is too large": "max_tokens",
    "num_predict must be positive": "max_tokens",
    "presence-penalty must be below 2": "presence_penalty",
    "at most 4 stop_sequences": "stop",
    "Invalid type for 'stop'": "stop",
    "the tokens of `stop[0]`": "stop",
}


@pytest.mark.parametrize("line", ABOUT)
def test_an_engines_spelling_of_a_parameter_is_recognised(line: str) -> None:
    policy = PolicySpec(name="eval", params=ParamsPolicy(force=dict.fromkeys(ABOUT.values(), 0)))
    notices = [Notice("forced_parameter", f"{name}=0") for name in (*dict.fromkeys(ABOUT.values()), "seed", "user")]
    added = policy_changes(policy, notices, UpstreamRejectedRequest(f"the model's server refused the request: {line}"))
    assert added == f"; policies/eval.yaml had set {ABOUT[line]}=0 (params.force)"


FORCED = {  # an engine's message and its field: the parameters of policy eval that it may be about
    "the word stop in a sentence": ("the user asked the engine to stop", None, []),
    "a field": ("not allowed here", "stop", ["stop"]),
    "no reason": ("", None, ["stop", "user", "top_k"]),
}


@pytest.mark.parametrize(("message", "param", "named"), FORCED.values(), ids=FORCED)
def test_a_common_word_is_no_parameter_and_without_a_reason_each_may_be(
    message: str, param: str | None, named: list[str]
) -> None:
    policy = PolicySpec(name="eval", params=ParamsPolicy(force={"stop": 0, "user": 0, "top_k": 0}))
    notices = [Notice("forced_parameter", f"{name}=0") for name in policy.params.force]
    body = orjson.dumps({"error": {"message": message, "param": param}})
    error = error_for_status(400, body)
    assert isinstance(error, UpstreamRejectedRequest)
    added = policy_changes(policy, notices, error)
    assert re.findall(r"(\w+)=0", added) == named


def test_a_refusal_of_the_clients_own_values_names_no_policy(served: Gateway) -> None:
    message = served.chat("evaluated", n=2, temperature=0, max_tokens=5).json()["error"]["message"]
    assert "n must be 1" in message
    assert "policies" not in message
