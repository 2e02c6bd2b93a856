"""``/``, ``/version`` and ``/openapi.json``, and the errors for wrong paths and models."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from gateway.edge.about.models import MODEL_PATH
from gateway.edge.app import App
from metatemplate.version import VERSION
from tests.support.serving import Gateway, gateway
from tests.support.world import HELLO, gateway_fixture, key_file

MODELS = """
models:
  open-a: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  "<b>": {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  secret: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""
STATES = """
  idle: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  down: {template: chat, targets: [{speaks: scripted, script: down.yaml}]}
  long: {template: chat, targets: [{speaks: scripted, script: long.yaml}]}
"""
FILES = {
    **HELLO,
    "down.yaml": "[{error: upstream_model_missing}]\n",
    "long.yaml": "[{error: context_length_exceeded}]\n",
}
KEY = {"authorization": "Bearer gk_some"}


served = gateway_fixture(MODELS, HELLO)
in_all_states = gateway_fixture(MODELS + STATES, FILES)


KEY_FILE = key_file({"gk_some": "models: [open-*]"})
keyed = gateway_fixture("keys: {file: keys.yaml}\n" + MODELS, {**HELLO, "keys.yaml": KEY_FILE})
"""A gateway whose key ``gk_some`` may not use the model ``secret``."""


class Page(HTMLParser):
    """The elements of a page. Fails for an element that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str | None] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "link", "input", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def models_on(page: str) -> list[str]:
    return [unescape(name) for name in re.findall(r'<th scope="row">(?:<a [^>]*>)?<code>(.*?)</code>', page)]


def test_the_page_shows_the_version_the_models_and_every_path(served: Gateway) -> None:
    answer = served.http.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert f"<p>meta-gateway {VERSION}</p>" in answer.text
    assert models_on(answer.text) == ["open-a", "<b>", "secret"]
    rows = re.findall(r"<td>(GET|POST)</td><td><code>(.*?)</code>", answer.text)
    icon = "/favicon.ico"
    assert sorted(rows) == sorted((method, path) for path, method in routes(served).items() if path != icon)


def test_the_page_is_well_formed_and_works_without_a_network(served: Gateway) -> None:
    found = Page(served.http.get("/").text).addresses
    assert {urlsplit(address or "").netloc for address in found} == {""}
    for address in found:
        assert served.http.get(str(address)).status_code == 200


def test_the_command_on_the_page_works(served: Gateway) -> None:
    found = re.search(r"<code>(curl .*?)</code></pre>", served.http.get("/").text)
    assert found is not None
    program, url, *options = shlex.split(unescape(found[1]))
    assert (program, options[0], options[2]) == ("curl", "-H", "-d")
    name, _, value = options[1].partition(": ")
    answer = served.http.post(url, headers={name: value}, content=options[3])
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"


def test_the_python_program_on_the_page_works(served: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"<code>(from openai .*?)</code></pre>", served.http.get("/").text, re.DOTALL)
    assert found is not None
    exec(unescape(found[1]), {})
    assert capsys.readouterr().out == "Hello\n"


def test_a_failing_target_is_never_green(in_all_states: Gateway) -> None:
    def chips() -> dict[str, tuple[str, str]]:
        found = re.findall(
            r'<code>([^<]*/0)</code> <(?:a|span) class="chip (\w+)"[^>]*>(.*?)</', in_all_states.http.get("/").text
        )
        return {unescape(name): (colour, state) for name, colour, state in found}

    for model, status in (("down", 502), ("long", 400), ("secret", 200)):
        assert in_all_states.chat(model).status_code == status
    assert chips()["down/0"] == ("bad", "in use, the last attempt failed")
    assert chips()["long/0"] == ("warn", "in use, the last attempt refused")
    assert chips()["secret/0"] == ("good", "in use")
    assert chips()["idle/0"] == ("muted", "not used yet")
    for _ in range(4):
        in_all_states.chat("down")
    assert chips()["down/0"] == ("bad", "avoided, 5 of the last 5 failed")


def test_visitors_without_a_key_are_led_to_the_form_for_signing_in(keyed: Gateway) -> None:
    link = '<a href="/viewer/sign-in">Sign in</a> with a client key'
    assert link in keyed.http.get("/").text
    assert '<a class="visitor" href="/viewer/sign-in">Sign in</a>' in keyed.http.get("/").text
    assert 'name="key"' in keyed.http.get("/viewer/sign-in").text
    assert "Sign in" not in keyed.http.get("/", headers=KEY).text


def test_without_the_viewer_there_is_no_link_to_a_form(tmp_path: Path) -> None:
    config = f"server: {{viewer: 'off'}}\nkeys: {{file: keys.yaml}}\n{MODELS}"
    with gateway(tmp_path, config, files={**FILES, "keys.yaml": KEY_FILE}) as closed:
        page = closed.http.get("/").text
        assert "shown to clients that send a key" in page
        assert "/sign-in" not in page


def test_without_a_key_the_page_names_no_models(keyed: Gateway) -> None:
    page = keyed.http.get("/").text
    assert models_on(page) == []
    assert "secret" not in page
    assert "open-a" not in page


def test_with_a_key_the_page_names_the_models_of_the_key(keyed: Gateway) -> None:
    assert models_on(keyed.http.get("/", headers=KEY).text) == ["open-a"]
    assert keyed.http.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_version_has_the_form_of_vllm(served: Gateway) -> None:
    assert served.http.get("/version").json() == {"version": VERSION}


def test_browsers_get_an_icon_without_a_key_on_both_listeners(keyed: Gateway) -> None:
    answer = keyed.http.get("/favicon.ico")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    assert ElementTree.fromstring(answer.text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "/favicon.ico" in App(keyed.runtime.state, admin=True).routes


# ---------------------------------------------------------------- /openapi.json


NAMED = {
    MODEL_PATH: "/v1/models/{model}",
    "/v1/tokenizer_info": "/{model}/v1/tokenizer_info",
    "/tokenizer_info": "/{model}/tokenizer_info",
}
"""Path of a GET request for one model → the path with the name of the model."""


def routes(served: Gateway) -> dict[str, str]:
    """Path → method of every path that the gateway serves."""
    found = App(served.runtime.state, viewer=served.runtime.pages[0]).routes
    return {NAMED.get(path, path): method for path, (method, _) in found.items()}


def test_the_openapi_document_has_every_path(served: Gateway) -> None:
    document = served.http.get("/openapi.json").json()
    methods = {path: [name.upper() for name in item] for path, item in document["paths"].items()}
    assert methods == {path: [method] for path, method in routes(served).items()}


def test_the_schemas_of_the_openapi_document_are_valid(served: Gateway) -> None:
    document = served.http.get("/openapi.json").json()
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for reference in re.findall(r'"#/([^"]+)"', json.dumps(document)):
        place: Any = document
        for step in reference.split("/"):
            place = place[step]


MESSAGES = [{"role": "user", "content": "hi"}]
BODIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "chat": ("/v1/chat/completions", {"model": "open-a", "messages": MESSAGES}, True),
    "a field of an engine": ("/v1/chat/completions", {"model": "open-a", "messages": MESSAGES, "top_k": 1}, True),
    "no messages": ("/v1/chat/completions", {"model": "open-a"}, False),
    "turns": ("/v1/chat/completions", {"model": "open-a", "gateway": {"turns": {"questions": ["hi"]}}}, True),
    "turns without questions": ("/v1/chat/completions", {"model": "open-a", "gateway": {"turns": None}}, False),
    "an option in place of messages": ("/v1/chat/completions", {"model": "open-a", "gateway": {"repeat": 1}}, False),
    "no prompt": ("/v1/completions", {"model": "open-a"}, False),
    "a negative token id": ("/v1/completions", {"model": "open-a", "prompt": [-1]}, False),
    "a token id of 32 bits": ("/v1/completions", {"model": "open-a", "prompt": [[2**31]]}, False),
    "tokens out of range": ("/v1/detokenize", {"model": "open-a", "tokens": [-1]}, False),
    "no candidates": ("/v1/loglikelihood", {"model": "open-a"}, False),
    "empty candidates": ("/v1/loglikelihood", {"model": "open-a", "candidates": {}}, False),
    "a text without a prompt": ("/v1/tokenize", {"model": "open-a", "gateway": {"prompt": {"id": "a"}}}, False),
    "no input": ("/v1/responses", {"model": "open-a"}, False),
    "an input that is null": ("/v1/responses", {"model": "open-a", "input": None}, False),
    "a misspelt option": ("/v1/render", {"model": "open-a", "messages": MESSAGES, "gateway": {"explian": 1}}, False),
    "a hot temperature": ("/v1/chat/completions", {"model": "open-a", "messages": MESSAGES, "temperature": 3}, False),
    "no model": ("/v1/chat/completions", {"messages": MESSAGES}, False),
    "a response": ("/v1/responses", {"model": "open-a", "input": "hi"}, True),
    "a number as input": ("/v1/responses", {"model": "open-a", "input": 5}, False),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_openapi_document_accepts_the_bodies_that_the_gateway_accepts(served: Gateway, name: str) -> None:
    path, body, accepted = BODIES[name]
    document = served.http.get("/openapi.json").json()
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert Draft202012Validator({**document, **schema}).is_valid(body) == accepted
    assert (served.http.post(path, json=body).status_code == 200) == accepted


REQUIRED = {
    "ChatRequest": {"model", "messages"},
    "CompletionRequest": {"model", "prompt"},
    "EmbeddingRequest": {"model", "input"},
    "ResponsesRequest": {"model", "input"},
    "LoglikelihoodRequest": {"model", "candidates"},
    "TokenizeText": {"model", "prompt"},
    "TokenizeMessages": {"model", "messages"},
    "DetokenizeRequest": {"model", "tokens"},
}


def test_the_schemas_list_the_required_fields(served: Gateway) -> None:
    schemas = served.http.get("/openapi.json").json()["components"]["schemas"]
    assert {name: set(schemas[name]["required"]) for name in REQUIRED} == REQUIRED


@pytest.mark.parametrize("path", ["/version", "/openapi.json"])
def test_facts_about_the_gateway_need_no_key(keyed: Gateway, path: str) -> None:
    assert keyed.http.get(path).status_code == 200


# ---------------------------------------------------------------- wrong paths and models

BASE_URL = "a client's base_url must end in one /v1, such as {}; the client adds the rest"
OTHER_API = ": it belongs to {}'s API, and this gateway has OpenAI's; use /v1/chat/completions"
PATHS = {
    "/v1/v1/chat/completions": f"the path has /v1 twice; {BASE_URL}",
    "/chat/completions": f"unknown path; {BASE_URL}",
    "/open-a/chat/completions": f"unknown path; {BASE_URL}",
    "/v1/chat/completions/chat/completions": f"unknown path; {BASE_URL}",
    "/v1/chat/completion": 'unknown path (did you mean "/v1/chat/completions"?)',
    "/v1/chat/completions/": 'unknown path (did you mean "/v1/chat/completions"?)',
    "/v1/assistants": "unknown path: this gateway does not have this part of OpenAI's API; GET / lists all paths",
    "/v1/files": "unknown path: the gateway stores no files; gateway run sends a file of requests",
    "/v1/responses/resp_1": "unknown path: the gateway stores no responses; keep the answer of POST /v1/responses",
    "/v1/engines": "unknown path; GET / lists all paths",
    "/v1/messages": f"unknown path{OTHER_API.format('Anthropic')}",
    "/api/generate": f"unknown path{OTHER_API.format('Ollama')}",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_wrong_path_gets_a_hint(served: Gateway, path: str) -> None:
    answer = served.http.post(path, json={"model": "open-a", "messages": MESSAGES})
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, PATHS[path].format(served.url))


def unknown(served: Gateway, model: str, headers: dict[str, str]) -> str:
    answer = served.http.post("/v1/chat/completions", json={"model": model, "messages": MESSAGES}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    message: str = answer.json()["error"]["message"]
    return message


LIST = "; GET /v1/models lists the models"


def test_an_unknown_model_gets_the_name_that_was_meant(served: Gateway) -> None:
    assert unknown(served, "opena", {}) == f'no model "opena" (did you mean "open-a"?){LIST}'
    assert unknown(served, "gpt-4", {}) == f'no model "gpt-4" (known: <b>, open-a, secret){LIST}'


def test_only_models_of_the_key_are_suggested(keyed: Gateway) -> None:
    way = "use one of its models (GET /v1/models lists them), or ask the operator for a key that allows it"
    for model in ("nosuch", "secret"):  # one that does not exist, and one that the key may not use
        assert unknown(keyed, model, KEY) == f'this key may use no model "{model}" (it may use: open-a); {way}'
