"""Models with Hugging Face chat templates, called over HTTP: ordinary, slow and failing templates."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx

from tests.support.serving import WAIT_SECONDS, Gateway, gateway, write_files
from tests.support.world import gateway_fixture

CONFIG = """
models:
  good: {template: good, targets: [{speaks: scripted, script: answer.yaml}]}
  pairs: {template: pairs, targets: [{speaks: scripted, script: answer.yaml}]}
  caller: {template: caller, targets: [{speaks: scripted, script: calls.yaml}]}
  plain: {template: chatml, targets: [{speaks: scripted, script: answer.yaml}]}
"""

FILES = {
    "answer.yaml": "[{text: '42'}, {text: '<|im_end|> lost'}, {finish: stop}]\n",
    "meta_templates/good.yaml": """
kind: jinja
file: good/chat_template.jinja
request_kwargs: [enable_thinking]
examples:
  - messages: [{role: user, content: hi}]
    prompt: "<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\n"
""",
    "meta_templates/good/chat_template.jinja": (
        "{% for m in messages %}"
        "{% if m.role == 'critic' %}{{ raise_exception('Nobody asked the ' ~ m.role) }}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{{ '<|im_start|>assistant\\n' if add_generation_prompt }}"
        "{% if enable_thinking is false %}<think></think>{% endif %}"
    ),
    "meta_templates/good/tokenizer_config.json": '{"eos_token": "<|im_end|>"}',
    "calls.yaml": """
- {text: '<think>hm</think><tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'}
- {finish: stop}
""",
    "meta_templates/caller.yaml": """
kind: jinja
template: "{{ tools | tojson }}{{ messages[0].content }}"
tools: {parser: hermes}
thinking: {begin: "<think>", end: "</think>"}
""",
    # Quadratic in the messages, so 2000 messages take longer than the time limit of its process.
    "meta_templates/pairs.yaml": """
kind: jinja
template: |
  {%- for one in messages %}{% for other in messages %}{% set x = one.content ~ other.content | upper %}{% endfor %}
  {%- endfor %}
  {{- messages[0].content }}
""",
}


served = gateway_fixture(CONFIG, FILES)


def prompt_of(served: Gateway, model: str, text: str, **fields: object) -> object:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    answer = served.http.post("/v1/render", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["prompt"]


def test_an_answer_is_cut_at_the_tokenizers_eos(served: Gateway) -> None:
    answer = served.chat("good", "hi")
    assert answer.json()["choices"][0]["message"]["content"] == "42"
    assert answer.headers["x-gateway-template"].startswith("good@sha256:")


def test_render_shows_the_prompt_and_the_origin_of_its_segments(served: Gateway) -> None:
    """The client's marker is escaped by a word joiner after its first character."""
    body = {"model": "good", "messages": [{"role": "user", "content": "<|im_end|>"}]}
    shown = served.http.post("/v1/render", json=body).json()
    assert shown["prompt"] == "<|im_start|>user\n<\u2060|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert [(one["text"], one["origin"]) for one in shown["segments"]] == [
        ("<|im_start|>user\n", "template"),
        ("<\u2060|im_end|>", "messages[0]"),
        ("<|im_end|>\n", "template"),
        ("<|im_start|>assistant\n", "generate"),
    ]
    assert shown["stop"] == ["<|im_end|>"]


def test_a_request_sets_only_the_variables_that_the_file_lists(served: Gateway) -> None:
    prompt = prompt_of(served, "good", "hi", chat_template_kwargs={"enable_thinking": False})
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think></think>"
    for model, param in (("good", "chat_template_kwargs.x"), ("plain", "chat_template_kwargs")):
        answer = served.chat(model, chat_template_kwargs={"x": 1})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "forbidden_parameter"
        assert answer.json()["error"]["param"] == param


def test_an_error_raised_by_the_template_is_a_400(served: Gateway) -> None:
    body = {"model": "good", "messages": [{"role": "critic", "content": "x"}]}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages"
    assert "Nobody asked the critic" in answer.json()["error"]["message"]


def test_tools_are_rendered_and_tool_calls_parsed(served: Gateway) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert prompt_of(served, "caller", "hi", tools=tools) == '[{"type": "function", "function": {"name": "f"}}]hi'
    answer = served.chat("caller", "hi", tools=tools).json()["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["reasoning_content"] == "hm"
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert served.chat("good", "hi", tools=tools).status_code == 400


def test_a_long_conversation_is_rendered_in_a_subprocess(served: Gateway) -> None:
    text = "word " * 100_000
    assert prompt_of(served, "good", text) == f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert served.chat("good", text).status_code == 200


LONG = {"model": "pairs", "messages": [{"role": "user", "content": "x" * 200}] * 2000}


def test_a_render_over_its_time_limit_is_stopped_and_the_next_call_works(served: Gateway) -> None:
    answer = served.http.post("/v1/chat/completions", json=LONG)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "template_error"
    assert "took longer than 0.8 s" in answer.json()["error"]["message"]
    assert prompt_of(served, "pairs", "hi") == "hi"


def test_a_long_render_does_not_block_other_calls(served: Gateway) -> None:
    slow = threading.Thread(target=served.http.post, args=("/v1/chat/completions",), kwargs={"json": LONG})
    slow.start()
    answered = 0
    with httpx.Client(base_url=served.root, timeout=60, trust_env=False, verify=False) as other:
        while slow.is_alive():
            body = {"model": "good", "messages": [{"role": "user", "content": "hi"}]}
            assert other.post("/v1/chat/completions", json=body).status_code == 200
            answered += 1
    assert answered > 10


def test_a_reload_reads_a_changed_template_file(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    with gateway(tmp_path, CONFIG) as found:
        before = found.chat("good", "hi").headers["x-gateway-template"]
        path = tmp_path / "meta_templates/good/chat_template.jinja"
        path.write_text(path.read_text(encoding="utf-8") + "{# new #}", encoding="utf-8")
        end = time.monotonic() + WAIT_SECONDS
        while found.chat("good", "hi").headers["x-gateway-template"] == before and time.monotonic() < end:
            time.sleep(0.05)
        assert found.chat("good", "hi").headers["x-gateway-template"] != before
