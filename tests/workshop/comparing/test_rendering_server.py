"""``gateway parity --reference URL``: a real server on loopback that renders as vLLM and as llama.cpp do."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.workshop.chat_folders import read_chat_folder
from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.errors import MetaTemplateError
from metatemplate.templates.registry import dialogue_of
from metatemplate.templates.spec import Example, ToolsSpec
from metatemplate.tokenizer import Tokenizer
from tests.cli.command import command
from tests.support.serving import ROOT, run_uvicorn, write_files

CHAT = """\
{{- bos_token }}
{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content | default('') }}
{%- if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{{ '<|end|>\\n' }}{% endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- if brief == 'no' %}{{ raise_exception('brief is not allowed') }}{% elif brief %}({{ brief }}){% endif %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
FILES: dict[str, str] = {
    "meta_templates/model/chat_template.jinja": CHAT,
    "meta_templates/model/tokenizer_config.json": '{"bos_token": "<s>", "eos_token": "</s>"}',
    "meta_templates/own.yaml": "kind: jinja\nfile: model/chat_template.jinja\ntools: {parser: hermes}\n",
    "meta_templates/dated.jinja": "{{ strftime_now('%Y') }}",
    "meta_templates/dated.yaml": "kind: jinja\nfile: dated.jinja\n",
    "gateway.yaml": """\
models:
  own:
    template: own
    tokenizer: meta_templates/model
    targets: [{speaks: completions, url: "http://127.0.0.1:1/v1", engine: vllm, model: org/own}]
""",
}


TOKENIZER = {"meta_templates/model/tokenizer.json": ROOT / "demo" / "model" / "tokenizer.json"}


@dataclass
class Played:
    """A server that renders the chat template of a folder in the dialect of an engine."""

    folder: Path
    dialect: str
    served: str = "org/own"
    key: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of the requests for a prompt."""

    def prompt(self, body: dict[str, Any]) -> str:
        """Render as the engine does: with the variables of the request, and with today's date."""
        self.bodies.append(body)
        spec = read_chat_folder(self.folder / "chat_template.jinja", None, body.get("chat_template_kwargs")).spec
        assert spec.jinja is not None
        spec = replace(spec, tools=ToolsSpec(parser="json"), jinja=replace(spec.jinja, clock=""))
        example = Example(
            tuple(body["messages"]),
            continue_final_message=body["continue_final_message"],
            tools=tuple(body.get("tools", ())),
        )
        opens = body["add_generation_prompt"] or body["continue_final_message"]
        return JinjaTemplate(spec).render(dialogue_of(example, whole=not opens)).text

    async def render(self, request: Request) -> JSONResponse:
        body = {"add_generation_prompt": True, "continue_final_message": False, **await request.json()}
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "a key is needed"}}, 401)
        if self.dialect == "vllm" and body["model"] != self.served:
            return JSONResponse({"error": {"message": "no such model"}}, 404)
        try:
            text = self.prompt(body)
        except MetaTemplateError as error:  # llama.cpp answers with 500
            return JSONResponse({"error": {"message": error.message}}, 400 if self.dialect == "vllm" else 500)
        if self.dialect == "vllm":
            return JSONResponse({"token_ids": self.tokens.tokenize(text, False)})
        if self.dialect == "wrong":
            return JSONResponse({"prompt": None})
        return JSONResponse({"prompt": text.removeprefix("<s>")})

    @property
    def tokens(self) -> Tokenizer:
        """The tokenizer of the served model."""
        return Tokenizer(self.folder / "tokenizer.json")

    async def detokenize(self, request: Request) -> JSONResponse:
        return JSONResponse({"prompt": self.tokens.detokenize((await request.json())["tokens"])})

    async def tokenize(self, request: Request) -> JSONResponse:
        body = await request.json()
        assert (body["content"], body["add_special"], body["with_pieces"]) == ("", True, True)
        return JSONResponse({"tokens": [{"id": 1, "piece": "<s>"}]})

    async def models(self, request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": self.served, "object": "model"}]})

    def routes(self) -> list[Route]:
        """The endpoints of the dialect."""
        ways = {
            "vllm": [("/v1/chat/completions/render", self.render), ("/detokenize", self.detokenize)],
            "llamacpp": [("/apply-template", self.render), ("/tokenize", self.tokenize)],
            "wrong": [("/apply-template", self.render), ("/tokenize", self.tokenize)],
            "none": [],
        }[self.dialect]
        return [Route("/v1/models", self.models), *[Route(path, way, methods=["POST"]) for path, way in ways]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("servers")
    write_files(place, {**FILES, **TOKENIZER})
    return place


@contextmanager
def served(played: Played) -> Iterator[str]:
    with run_uvicorn(Starlette(routes=played.routes())) as port:
        yield f"http://127.0.0.1:{port}"


def parity(folder: Path, *arguments: str, **env: Any) -> tuple[int, Any]:
    """The exit code, and the report or the error."""
    ended = command(folder, "parity", *arguments, "--json", **env)
    assert b"Traceback" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else ended.stderr.decode()


@pytest.mark.parametrize("suffix", ["", "/v1"])
@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
def test_a_server_with_the_same_template_makes_the_same_prompts(folder: Path, dialect: str, suffix: str) -> None:
    played = Played(folder / "meta_templates" / "model", dialect)
    with served(played) as url:
        code, report = parity(folder, "own", "--reference", url + suffix)
    assert [case["name"] for case in report["cases"] if case["verdict"] != "same"] == []
    assert (code, report["counts"]["same"], report["reference"]) == (0, 55, f"{url}{suffix}, model org/own")
    assert report["cases"][0]["reference"]["text"].startswith("<s><|user|>What is 1+1?")
    assert len(played.bodies) == 56  # each case, and the question whether the server renders


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
def test_a_server_with_another_template_differs(folder: Path, tmp_path: Path, dialect: str) -> None:
    write_files(
        tmp_path,
        {**FILES, **TOKENIZER, "meta_templates/model/chat_template.jinja": CHAT.replace("<|end|>\\n", "<|end|>")},
    )
    with served(Played(tmp_path / "meta_templates" / "model", dialect)) as url:
        code, report = parity(folder, "own", "--reference", url, "--case", "one turn")
    [case] = report["cases"]
    assert (code, case["verdict"], case["at"]) == (1, "differs", len("<s><|user|>What is 1+1?<|end|>"))


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
def test_variables_reach_the_server_and_a_refusal_is_one_of_the_template(folder: Path, dialect: str) -> None:
    for value, verdict in (("yes", "differs"), ("no", "refused by the reference")):
        with served(Played(folder / "meta_templates" / "model", dialect)) as url:
            kwargs = json.dumps({"brief": value})
            code, report = parity(folder, "own", "--reference", url, "--kwargs", kwargs, "--case", "one turn")
        [case] = report["cases"]
        assert (code, case["verdict"]) == (1, verdict)
        assert ("(yes)" in case["reference"]["text"]) == (value == "yes")
        assert ("brief is not allowed" in case["reference"]["refused"]) == (value == "no")


def test_a_template_that_writes_the_date_gets_the_present_time_as_on_the_server(folder: Path, tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {**FILES, **TOKENIZER, "meta_templates/model/chat_template.jinja": FILES["meta_templates/dated.jinja"]},
    )
    with served(Played(tmp_path / "meta_templates" / "model", "vllm")) as url:
        code, report = parity(folder, "--template", "dated", "--reference", url, "--case", "one turn")
    assert report["cases"][0]["ours"]["text"] == str(datetime.now().year)
    assert code == 0


def test_the_first_model_of_the_server_is_asked_if_it_does_not_list_ours(folder: Path) -> None:
    played = Played(folder / "meta_templates" / "model", "vllm", served="another")
    with served(played) as url:
        code, report = parity(folder, "own", "--reference", url, "--case", "one turn")
    assert (code, report["reference"]) == (0, f"{url}, model another")
    assert {body["model"] for body in played.bodies} == {"another"}


def test_the_key_of_the_target_at_the_address_is_sent(folder: Path) -> None:
    with served(Played(folder / "meta_templates" / "model", "vllm", key="sesame")) as url:
        config = FILES["gateway.yaml"].replace("http://127.0.0.1:1/v1", f"{url}/v1")
        (folder / "keyed.yaml").write_text(config.replace("engine:", "key: env:ENGINE_KEY, engine:"))
        (folder / "open.yaml").write_text(config)
        arguments = ("own", "--reference", url, "--case", "one turn", "--config")
        assert parity(folder, *arguments, "keyed.yaml", ENGINE_KEY="sesame")[0] == 0
        code, error = parity(folder, *arguments, "open.yaml")
    assert (code, "refused the gateway's key" in error) == (2, True)


@pytest.mark.parametrize(
    ("dialect", "words"),
    [("none", "renders no prompts: it has neither /v1/chat/completions/render"), ("wrong", "sent no prompt")],
)
def test_a_server_that_sends_no_prompt_is_no_reference(folder: Path, dialect: str, words: str) -> None:
    with served(Played(folder / "meta_templates" / "model", dialect)) as url:
        code, error = parity(folder, "own", "--reference", url)
    assert (code, words in error) == (2, True)


def test_a_server_that_does_not_answer_is_no_reference(folder: Path) -> None:
    with served(Played(folder / "meta_templates" / "model", "vllm")) as url:
        pass
    code, error = parity(folder, "own", "--reference", url)
    assert (code, "no prompts to compare with: the model's server does not accept connections" in error) == (2, True)


def test_a_server_that_is_silent_is_given_up_after_ten_seconds(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code, error = parity(folder, "own", "--reference", f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert (code, "the model's server did not answer /v1/models within 10 s" in error) == (2, True)


def test_options_for_a_file_are_refused(folder: Path) -> None:
    for option in (("--engine", "own"), ("--variant", "rag")):
        code, error = parity(folder, "own", "--reference", "http://127.0.0.1:1", *option)
        assert code == 2
        assert f"{option[0]} applies only to a chat template, but http://127.0.0.1:1 is a server" in error
