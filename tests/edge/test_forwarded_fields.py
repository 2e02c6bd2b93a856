"""The fields of a request that are forwarded to a target, recorded by a real upstream."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from gateway.backend.openai.request.control_fields import STEERING
from tests.support.serving import eventually
from tests.support.world import World, world_fixture

CONFIG = """
models:
  text: {{template: sft-demo, targets: [{{speaks: completions, url: "{url}"}}]}}
  base: {{template: base, targets: [{{speaks: completions, url: "{url}"}}]}}
  talk: {{template: chat, targets: [{{speaks: chat, url: "{url}"}}]}}
  allowing: {{template: chat, policy: allowing, targets: [{{speaks: chat, url: "{url}", engine: sglang}}]}}
  dropping: {{template: sft-demo, policy: dropping, targets: [{{speaks: completions, url: "{url}"}}]}}
  careful: {{template: sft-demo, policy: careful, targets: [{{speaks: completions, url: "{url}", engine: vllm}}]}}
  rendering: {{template: chat, targets: [{{speaks: chat, url: "{url}", engine: vllm}}]}}
  rendering-too: {{template: chat, targets: [{{speaks: chat, url: "{url}", engine: sglang}}]}}
  forced: {{template: chat, policy: forced, targets: [{{speaks: chat, url: "{url}", engine: vllm}}]}}
  carried: {{template: chat, policy: carried, targets: [{{speaks: chat, url: "{url}"}}]}}
"""
FILES = {
    "policies/forced.yaml": "params: {force: {chat_template_kwargs: {enable_thinking: false}}}",
    "policies/carried.yaml": "media: {https: refuse}",
    "policies/allowing.yaml": "params: {allow: [lora_path]}",
    "policies/dropping.yaml": "params: {unknown: drop, allow: [priority]}",
    "policies/careful.yaml": "params: {unknown: reject, allow: [priority, top_k]}",
}


world = world_fixture(lambda up: CONFIG.format(url=up.url("ok")), FILES)


def error(answer: httpx.Response) -> tuple[int, str, str]:
    error_object = answer.json()["error"]
    return answer.status_code, error_object["code"], error_object["message"]


# ---------------------------------------------------------------- media

IMAGE = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]


def test_an_https_image_is_forwarded_unchanged_to_a_chat_target(world: World) -> None:
    assert world.served.chat("talk", IMAGE).status_code == 200
    assert world.sent()["messages"] == [{"role": "user", "content": IMAGE}]


def test_a_policy_refuses_https_images(world: World) -> None:
    before = world.up.request_count
    status, code, message = error(world.served.chat("carried", IMAGE))
    assert (status, code) == (400, "media_not_allowed")
    assert "must be a data: URI" in message
    assert world.up.request_count == before


@pytest.mark.parametrize("url", ["https://example.com/a.png", "file:///etc/passwd", "data:image/png;base64,AAAA"])
def test_a_text_model_refuses_images_before_the_policy(world: World, url: str) -> None:
    status, code, message = error(world.served.chat("text", [{"type": "image_url", "image_url": {"url": url}}]))
    assert (status, code) == (400, "media_not_supported")
    assert message.startswith("this model accepts only text")


# ---------------------------------------------------------------- fields that steer an engine


@pytest.mark.parametrize("field", sorted(STEERING))
def test_a_control_field_is_refused_by_name(world: World, field: str) -> None:
    before = world.up.request_count
    for model in ("text", "talk"):
        status, code, message = error(world.served.chat(model, **{field: 1}))
        assert (status, code) == (400, "forbidden_parameter")
        assert f"params.allow: [{field}]" in message
    assert world.up.request_count == before


def test_control_fields_are_refused_for_raw_prompts_and_embeddings(world: World) -> None:
    for path, said in (("completions", {"prompt": "a"}), ("embeddings", {"input": "a"})):
        answer = world.served.http.post(f"/v1/{path}", json={"model": "text", "priority": 1, **said})
        assert error(answer)[:2] == (400, "forbidden_parameter")


@pytest.mark.parametrize(
    ("model", "sent", "left_out"),
    [
        ("allowing", {"lora_path": "a", "top_k": 5}, set()),
        ("dropping", {"priority": 1}, {"lora_path", "top_k"}),
        ("careful", {"priority": 1, "top_k": 5}, set()),
    ],
)
def test_a_policy_allows_the_control_fields_that_it_lists(
    world: World, model: str, sent: dict[str, Any], left_out: set[str]
) -> None:
    answer = world.served.chat(model, **sent, **dict.fromkeys(left_out, 1))
    assert answer.status_code == 200, answer.text
    assert sent.items() <= world.sent().items()
    assert left_out.isdisjoint(world.sent())
    assert ("dropped_parameter" in answer.headers.get("x-gateway-notice", "")) == bool(left_out)


@pytest.mark.parametrize("model", ["allowing", "careful"])
def test_a_policy_refuses_control_fields_that_it_does_not_list(world: World, model: str) -> None:
    assert error(world.served.chat(model, request_id="a"))[:2] == (400, "forbidden_parameter")


@pytest.mark.parametrize("field", ["top_k", "min_p", "repetition_penalty", "ignore_eos", "structured_outputs"])
def test_sampling_fields_of_engines_are_forwarded(world: World, field: str) -> None:
    assert world.served.chat("text", **{field: 1}).status_code == 200
    assert world.sent()[field] == 1


def test_a_misspelled_field_is_in_the_header_and_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    meant = world.served.chat("rendering", tempratur=0)
    other = world.served.chat("rendering", mirostat=1)
    notice = "unverified_parameter: tempratur (did you mean temperature?)"
    assert meant.headers["x-gateway-notice"] == notice
    assert other.headers["x-gateway-notice"] == "unverified_parameter: mirostat"

    def line(answer: httpx.Response) -> str:
        request_id = answer.headers["x-request-id"]
        return "".join([text for text in caplog.messages if text.startswith(request_id)])

    assert eventually(lambda: line(meant).endswith(f' notices="{notice}"'))
    assert eventually(lambda: line(other))
    assert "notices" not in line(other)


# ---------------------------------------------------------------- variables for the target's own template


@pytest.mark.parametrize("model", ["rendering", "rendering-too"])
def test_template_variables_are_forwarded_to_an_engine_that_renders(world: World, model: str) -> None:
    answer = world.served.chat(model, chat_template_kwargs={"enable_thinking": False})
    assert answer.status_code == 200
    assert world.sent()["chat_template_kwargs"] == {"enable_thinking": False}
    assert "unverified_parameter" not in answer.headers.get("x-gateway-notice", "")


def test_a_policy_s_variables_win_over_the_client_s(world: World) -> None:
    answer = world.served.chat("forced", chat_template_kwargs={"enable_thinking": True})
    assert world.sent()["chat_template_kwargs"] == {"enable_thinking": False}
    assert "forced_parameter: chat_template_kwargs" in answer.headers["x-gateway-notice"]


@pytest.mark.parametrize("field", ["messages", "prompt"])
def test_an_embeddings_request_with_a_conversation_is_refused(world: World, field: str) -> None:
    before = world.up.request_count
    answer = world.served.http.post("/v1/embeddings", json={"model": "text", "input": "hi", field: [{"role": "user"}]})
    assert error(answer)[0] == 400
    assert answer.json()["error"]["param"] == field
    assert world.up.request_count == before


@pytest.mark.parametrize("model", ["talk", "text"])
def test_template_variables_are_forwarded_to_no_other_target(world: World, model: str) -> None:
    answer = world.served.chat(model, chat_template_kwargs={"enable_thinking": False})
    assert error(answer)[:2] == (400, "forbidden_parameter")


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template": "{{ 1 }}"},
        {"chat_template_kwargs": {"chat_template": "{{ 1 }}"}},
        {"chat_template_kwargs": {"tokenize": True}},
        {"chat_template_kwargs": {"conversation": []}},
    ],
    ids=str,
)
def test_no_request_chooses_the_template_of_an_engine(world: World, fields: dict[str, Any]) -> None:
    before = world.up.request_count
    assert error(world.served.chat("rendering", **fields))[:2] == (400, "forbidden_parameter")
    assert world.up.request_count == before


def test_a_base_model_gets_the_texts_joined_by_line_breaks(world: World) -> None:
    messages = [{"role": "system", "content": "Solve."}, {"role": "user", "content": "1+1=?"}]
    body = {"model": "base", "messages": messages, "stop": ["\n"]}
    assert world.served.http.post("/v1/chat/completions", json=body).status_code == 200
    assert (world.sent()["prompt"], world.sent()["stop"]) == ("Solve.\n1+1=?", ["\n"])
