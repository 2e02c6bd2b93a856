"""The model class of docs/in-a-harness.md sends the prompts of the gateway, in lm-eval and without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.support.engines.numpy_server import Llama, Server
from tests.support.harnesses.environment import installed_bin
from tests.support.harnesses.sums import rows
from tests.support.serving import ROOT, Gateway, gateway, run_uvicorn, write_files

PAGE = (ROOT / "docs" / "in-a-harness.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
STAND_IN = {
    "lm_eval/__init__.py": "",
    "lm_eval/api/__init__.py": "",
    "lm_eval/api/model.py": "class LM:\n    tokenizer_name = property(lambda self: '')\n",
}
"""A package in place of lm-eval, with the base class alone."""
PROGRAM = """
import json, sys
from types import SimpleNamespace
from metatemplate_lm import MetaTemplateLM

url, calls = json.load(sys.stdin)
answers = []
for template, messages, add_generation_prompt, options in calls:
    model = MetaTemplateLM(template, url, "demo")
    prompt = model.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)
    answers += model.generate_until([SimpleNamespace(args=(prompt, options))])
print(json.dumps(answers))
"""
"""Sends each conversation with the class of the page."""

USER = {"role": "user", "content": "1+1=?"}
CONVERSATIONS: dict[str, list[dict[str, str]]] = {
    "a question": [USER],
    "a system message and examples": [
        {"role": "system", "content": "Answer with a number."},
        *(USER, {"role": "assistant", "content": "2"}),
        {"role": "user", "content": "  é\n2+2=?\n"},
    ],
    "the beginning of the answer": [USER, {"role": "assistant", "content": "The sum is"}],
}
TEMPLATES = ("sft-demo", "chatml", "mistral-instruct", "vicuna")
"""Templates without a BOS, with the engine's and with one of their own."""
CALLS = [
    (template, messages, messages[-1]["role"] == "user", {"until": ["\n\n"], "max_gen_toks": 4, "do_sample": False})
    for template in TEMPLATES
    for messages in CONVERSATIONS.values()
]


class RecordingServer(Server):
    """The demo model behind ``/v1/completions``. It keeps the bodies that it receives, and leaves stops in the text."""

    def __init__(self) -> None:
        super().__init__(Llama(ROOT / "demo" / "model"), "demo", 0.0)
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(dict(body))
        del body["stop"]  # the base class gets the same object
        return await super().complete(request)


@pytest.fixture(scope="module")
def engine() -> Iterator[RecordingServer]:
    server = RecordingServer()
    with run_uvicorn(server.app()) as port:
        server.url = f"http://127.0.0.1:{port}/v1"
        yield server


@pytest.fixture(scope="module")
def served(engine: RecordingServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    target = f'{{speaks: completions, url: "{engine.url}", model: demo, engine: vllm}}'
    models = "".join(f"  {name}: {{template: {name}, targets: [{target}]}}\n" for name in TEMPLATES)
    files = {"meta_templates": ROOT / "meta_templates"}
    with gateway(tmp_path_factory.mktemp("gateway"), f"models:\n{models}", files=files) as one:
        yield one


@pytest.fixture(params=["lm-eval", "a stand-in"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A Python for the files of the page, which are in ``tmp_path``."""
    write_files(tmp_path, {**FILES, "sums.jsonl": rows(8)})
    if request.param == "a stand-in":
        write_files(tmp_path, STAND_IN)
        return Path(sys.executable)
    return installed_bin() / "python"


def run(python: Path, folder: Path, *arguments: str, given: object = None) -> str:
    """The standard output of a program in ``folder``."""
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "HF_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [python, *arguments], cwd=folder, env=env, input=json.dumps(given), capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_class_sends_the_prompts_of_the_gateway_and_cuts_as_it_does(
    python: Path, engine: RecordingServer, served: Gateway, tmp_path: Path
) -> None:
    engine.bodies.clear()
    answers = json.loads(run(python, tmp_path, "-c", PROGRAM, given=(engine.url, CALLS)))
    sent = list(engine.bodies)
    assert answers[0] == "2"
    for (template, messages, opened, options), body, answer in zip(CALLS, sent, answers, strict=True):
        fields = {} if opened else {"continue_final_message": True, "add_generation_prompt": False}
        asked: dict[str, Any] = {"model": template, "messages": messages, **fields}
        assert body["prompt"] == served.http.post("/v1/render", json=asked).json()["prompt"]
        asked |= {"stop": options["until"], "max_tokens": options["max_gen_toks"], "temperature": 0}
        completion = served.http.post("/v1/chat/completions", json=asked).json()
        assert answer == completion["choices"][0]["message"]["content"]
        for key in ("prompt", "stop", "add_special_tokens", "max_tokens"):
            assert body.get(key) == engine.bodies[-1].get(key), key


def test_the_class_refuses_a_template_of_messages(python: Path, tmp_path: Path) -> None:
    code = "import metatemplate_lm\ntry: metatemplate_lm.MetaTemplateLM('api', 'http://127.0.0.1:9/v1', 'm')\n"
    assert run(python, tmp_path, "-c", f"{code}except ValueError as error: print(error)") == (
        "api writes messages, not a prompt\n"
    )


def test_lm_eval_prints_what_the_page_shows_and_sends_the_prompts_of_the_gateway(
    engine: RecordingServer, served: Gateway, tmp_path: Path
) -> None:
    python = installed_bin() / "python"
    write_files(tmp_path, {**FILES, "sums.jsonl": rows(8)})
    program = FILES["run_sums.py"].replace("http://127.0.0.1:8101/v1", engine.url)
    engine.bodies.clear()
    shown = run(python, tmp_path, "-c", program)
    assert f"$ python run_sums.py\n{shown}```" in PAGE
    examples = [
        {"role": "system", "content": "Answer with a number."},
        *(USER, {"role": "assistant", "content": "2"}),
        *({"role": "user", "content": "2+2=?"}, {"role": "assistant", "content": "4"}),
    ]
    sent = [body["prompt"] for body in engine.bodies]
    questions = [json.loads(line)["question"] for line in rows(8).splitlines()]
    conversations = [[*examples, {"role": "user", "content": question}] for question in questions]
    asked = [{"model": "sft-demo", "messages": messages} for messages in conversations]
    rendered = [served.http.post("/v1/render", json=one).json()["prompt"] for one in asked]
    assert sorted(sent) == sorted(rendered)
