"""``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and vLLM's render path: by the gateway and by an engine.

The second gateway has the first as its vLLM engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from tests.support.serving import ROOT, Files, Gateway, gateway
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import key_file

INNER = f"""
models:
  demo: {{template: sft-demo, policy: with-ids, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}
"""
INNER_FILES = {"policies/with-ids.yaml": "markers: {token_like: token_ids}"}
OUTER = """
keys: {file: keys.yaml}
models:
  text: {template: sft-demo, targets: [{speaks: completions, url: "%(url)s", model: demo, engine: vllm}]}
  talk: {template: chat, targets: [{speaks: chat, url: "%(url)s", model: demo, engine: vllm}]}
  org/jinja:
    template: with-jinja
    tokenizer: %(folder)s
    targets: [{speaks: completions, url: "%(url)s", model: demo, engine: openai}]
  silent: {template: sft-demo, targets: [{speaks: completions, url: "%(other)s", engine: vllm}]}
  none: {template: sft-demo, targets: [{speaks: completions, url: "%(url)s", engine: openai}]}
"""
JINJA = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
TOKENIZER_CONFIG = {
    "bos_token": {"content": "<s>", "lstrip": False},
    "eos_token": "</eos>",
    "chat_template": "not the model's",
    "name_or_path": "/secret",
    "tokenizer_class": "LlamaTokenizerFast",
}
SUM = [{"role": "user", "content": "1+1=?"}]
SOLVED = [*SUM, {"role": "assistant", "content": "2"}]
SUM_IDS = [20, 14, 20, 343]
CHAT_IDS = [1, 380, 29, 224, *SUM_IDS, 383, 202, 381, 29, 224]
WHOLE_IDS = [*CHAT_IDS, 21, 384, 202]


@dataclass(frozen=True)
class World:
    """The two gateways."""

    inner: Gateway
    outer: Gateway

    def post(self, path: str, key: str = "all", **body: Any) -> httpx.Response:
        return self.outer.http.post(path, json=body, headers={"authorization": f"Bearer {key}"})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    inside, outside = tmp_path_factory.mktemp("inner"), tmp_path_factory.mktemp("outer")
    special = 'special_tokens: {eos_token: "</s>"}'
    files: Files = {
        "keys.yaml": key_file({"all": "", "one": "models: [text]"}),
        "tokenizer/tokenizer.json": ROOT / "demo" / "model" / "tokenizer.json",
        "tokenizer/tokenizer_config.json": json.dumps(TOKENIZER_CONFIG),
        "meta_templates/with-jinja.yaml": f"kind: jinja\ntemplate: '{JINJA}'\n{special}\n",
    }
    with gateway(inside, INNER, files=INNER_FILES) as inner, FaultyUpstream() as up:
        names = {"folder": outside / "tokenizer", "url": inner.url, "other": up.url("404-route")}
        with gateway(outside, OUTER % names, files=files) as outer:
            yield World(inner, outer)


PATHS = ("/tokenize", "/v1/tokenize", "/demo/tokenize", "/demo/v1/tokenize")


@pytest.mark.parametrize("path", PATHS)
def test_tokenize_has_vllms_shape_under_every_path(world: World, path: str) -> None:
    answer = world.inner.http.post(path, json={"prompt": "1+1=?", "add_special_tokens": False})
    assert answer.json() == {"count": 4, "max_model_len": 512, "tokens": SUM_IDS, "token_strs": None}


@pytest.mark.parametrize("path", [path.replace("tokenize", "detokenize") for path in PATHS])
def test_detokenize_gives_the_text_with_special_tokens(world: World, path: str) -> None:
    assert world.inner.http.post(path, json={"tokens": CHAT_IDS}).json() == {
        "prompt": "<s><HUMAN>: 1+1=?<eoh>\n<BOT>: "
    }
    assert world.inner.http.post(path, json={"tokens": []}).json() == {"prompt": ""}


@pytest.mark.parametrize("path", ["/tokenizer_info", "/v1/tokenizer_info", "/demo/tokenizer_info"])
def test_tokenizer_info_names_the_special_tokens(world: World, path: str) -> None:
    info = world.inner.http.get(path).json()
    assert (info["bos_token"], info["eos_token"], info["pad_token"]) == ("<s>", "</s>", "<pad>")
    assert info["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "chat_template" not in info  # the model's template is a meta template


def test_the_info_has_the_chat_template_that_is_used_and_no_path(world: World) -> None:
    info = world.outer.http.get("/org/jinja/tokenizer_info", headers={"authorization": "Bearer all"}).json()
    assert info == {
        "bos_token": "<s>",
        "eos_token": "</s>",  # the template's own
        "pad_token": None,
        "tokenizer_class": "LlamaTokenizerFast",
        "chat_template": JINJA,
    }


CONVERSATIONS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "as the model reads it": ({"messages": SUM}, CHAT_IDS),
    "whole": ({"messages": SOLVED, "add_generation_prompt": False}, WHOLE_IDS),
    "continued": ({"messages": SOLVED, "continue_final_message": True}, WHOLE_IDS[:-2]),
    "without special tokens": ({"messages": SUM, "add_special_tokens": False}, CHAT_IDS[1:]),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_messages_are_rendered_with_the_models_template_first(world: World, name: str) -> None:
    body, ids = CONVERSATIONS[name]
    assert world.inner.http.post("/tokenize", json=body).json()["tokens"] == ids


@pytest.mark.parametrize("model", ["text", "talk"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_an_engine_tokenizes_for_a_model_without_a_tokenizer(world: World, model: str, name: str) -> None:
    body, ids = CONVERSATIONS[name]
    answer = world.post(f"/{model}/tokenize", **body, return_token_strs=True).json()
    assert answer["tokens"] == ids
    assert (answer["max_model_len"], len(answer["token_strs"])) == (512, len(ids))


def test_an_engine_detokenizes_and_describes_its_tokenizer(world: World) -> None:
    assert world.post("/text/tokenize", prompt="1+1=?").json()["tokens"] == [1, *SUM_IDS]
    assert world.post("/text/detokenize", tokens=SUM_IDS).json() == {"prompt": "1+1=?"}
    info = world.outer.http.get("/text/tokenizer_info", headers={"authorization": "Bearer all"}).json()
    assert info["eos_token"] == "</s>"


def test_the_only_model_of_a_key_need_not_be_named(world: World) -> None:
    assert world.post("/tokenize", key="one", prompt="1+1=?").json()["count"] == 5
    several = world.post("/tokenize", prompt="1+1=?")
    assert (several.status_code, several.json()["error"]["param"]) == (400, "model")


REFUSED: dict[str, tuple[str, str, dict[str, Any], int, str]] = {
    "a wrong key": ("/tokenize", "wrong", {"prompt": "hi"}, 401, "invalid_api_key"),
    "a model of another key": ("/talk/tokenize", "one", {"prompt": "hi"}, 404, "model_not_found"),
    "another model in the body": ("/text/tokenize", "all", {"model": "talk", "prompt": "hi"}, 400, "invalid_value"),
    "no prompt": ("/text/tokenize", "all", {}, 400, "invalid_value"),
    "a field without effect": ("/text/tokenize", "all", {"prompt": "hi", "stop": "x"}, 400, "invalid_value"),
    "a field without effect beside messages": (
        "/text/tokenize",
        "all",
        {"messages": SUM, "temperature": 0},
        400,
        "unsupported_parameter",
    ),
    "a template of the client": (
        "/text/tokenize",
        "all",
        {"messages": SUM, "chat_template": "x"},
        400,
        "forbidden_parameter",
    ),
    "ids that are none": ("/text/detokenize", "all", {"tokens": ["a"]}, 400, "invalid_value"),
    "ids below 0": ("/text/detokenize", "all", {"tokens": [-1]}, 400, "invalid_value"),
    "ids beyond the vocabulary": ("/text/detokenize", "all", {"tokens": [99999]}, 400, "upstream_rejected_request"),
    "no tokenizer at all": ("/none/tokenize", "all", {"prompt": "hi"}, 400, "unsupported_parameter"),
    "an engine without the path": ("/silent/tokenize", "all", {"prompt": "hi"}, 502, "upstream_model_missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_cannot_be_tokenized_is_refused(world: World, name: str) -> None:
    path, key, body, status, code = REFUSED[name]
    answer = world.post(path, key=key, **body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_only_the_tokenizers_paths_exist_below_a_model_without_v1(world: World) -> None:
    assert world.inner.http.get("/demo/health").status_code == 404
    assert world.inner.http.get("/demo/tokenize").status_code == 405


def test_calls_of_the_tokenizer_are_counted(world: World) -> None:
    before = world.inner.counted("gateway_requests_total", endpoint="tokenize", model="demo", outcome="ok")
    world.inner.http.post("/tokenize", json={"prompt": "hi"})
    after = world.inner.counted("gateway_requests_total", endpoint="tokenize", model="demo", outcome="ok")
    assert after == before + 1


@pytest.mark.parametrize("model", ["text", "org/jinja"])
def test_the_sdk_counts_the_input_tokens_that_tokenize_returns(world: World, model: str) -> None:
    client = openai.OpenAI(base_url=world.outer.url, api_key="all", max_retries=0)
    counted = client.responses.input_tokens.count(model=model, input="1+1=?", instructions="Add.")
    messages = [{"role": "system", "content": "Add."}, *SUM]
    tokenized = world.post("/tokenize", model=model, messages=messages).json()
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", tokenized["count"])


def test_input_tokens_that_cannot_be_counted_are_refused(world: World) -> None:
    answer = world.post("/v1/responses/input_tokens", model="none", input="1+1=?")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "unsupported_parameter")
    assert "the gateway has no tokenizer of model none" in error["message"]
    assert world.post("/v1/responses/input_tokens", model="text").json()["error"]["param"] == "input"


def test_a_marker_that_is_sent_as_token_ids_is_counted_as_the_model_reads_it(world: World) -> None:
    asked = {"model": "demo", "messages": [{"role": "user", "content": "1<eoh>1"}], "return_token_strs": True}
    answer = world.inner.http.post("/tokenize", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["token_strs"].count("<eoh>") == 1, "the end of the turn, and no marker of the client"
    body = {"model": "demo", "input": "1<eoh>1"}
    counted = world.inner.http.post("/v1/responses/input_tokens", json=body).json()
    assert counted["input_tokens"] == answer.json()["count"]
