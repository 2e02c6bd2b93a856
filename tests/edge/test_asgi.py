"""The gateway as a Starlette application: mounted, wrapped, and run by uvicorn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

import gateway
from tests.support.serving import eventually, run_uvicorn, write_files

CONFIG = """
models:
  hello: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  org/slow: {template: chat, targets: [{speaks: scripted, script: slow.yaml}]}
"""
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    scripts = {"hello.yaml": "[Hel, lo, {finish: stop}]", "slow.yaml": "[one, {pause: 20}, two, {finish: stop}]"}
    write_files(tmp_path, {"gateway.yaml": CONFIG, **scripts})
    return tmp_path / "gateway.yaml"


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Run an application in uvicorn; yields its base URL."""
    with run_uvicorn(app) as port:
        yield f"http://127.0.0.1:{port}"


class Marks(BaseHTTPMiddleware):
    """A user's middleware that adds a header."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["x-seen"] = request.url.path
        return response


async def home(request: Request) -> Response:
    return PlainTextResponse("home")


@pytest.fixture(params=["alone", "mounted", "wrapped"])
def base(request: pytest.FixtureRequest, config: Path) -> Iterator[str]:
    app = gateway.create_app(config)
    if request.param == "wrapped":
        app.add_middleware(Marks)
    if request.param != "mounted":
        with served(app) as address:
            yield address
        return
    outer = Starlette(
        routes=[Route("/", home), Mount("/a b/llm", app)],
        middleware=[Middleware(Marks)],
        lifespan=app.router.lifespan_context,
    )
    with served(outer) as address:
        assert httpx.get(address, verify=False, timeout=60).text == "home"
        yield f"{address}/a%20b/llm"


@pytest.mark.parametrize("path", ["/v1/v1/models", "/models"])
def test_an_error_names_the_base_url_of_the_application(base: str, path: str) -> None:
    answer = httpx.get(f"{base}{path}", verify=False, timeout=60)
    assert answer.status_code == 404
    assert f"such as {base}/v1;" in answer.json()["error"]["message"]


def test_the_openai_sdk_works_with_the_application(base: str) -> None:
    with openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(model="hello", messages=MESSAGES)
        assert answer.choices[0].message.content == "Hello"
        with client.chat.completions.create(model="hello", messages=MESSAGES, stream=True) as stream:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello"
        assert [model.id for model in client.models.list()] == ["hello", "org/slow"]
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="nope", messages=MESSAGES)
        assert caught.value.code == "model_not_found"


PATHS = {  # method, path, status, code
    "liveness": ("GET", "/health/live", 200, None),
    "metrics": ("GET", "/metrics", 200, None),
    "a model with a slash": ("GET", "/v1/models/org/slow", 200, None),
    "an encoded slash": ("GET", "/v1/models/org%2Fslow", 200, None),
    "below a model": ("GET", "/org%2Fslow/v1/models/hello", 200, None),
    "in a run": ("GET", "/run/n-1/org%2Fslow/v1/models/hello", 200, None),
    "a wrong name of a run": ("GET", "/run/a%20b/v1/models", 400, "invalid_value"),
    "HEAD": ("HEAD", "/v1/models", 200, None),
    "an encoded path": ("GET", "/v1%2Fmodels", 404, "route_not_found"),
    "no such path": ("GET", "/nothing/here", 404, "route_not_found"),
    "the wrong method": ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
    "no JSON": ("POST", "/v1/chat/completions", 415, "unsupported_media_type"),
}


def test_errors_of_every_path_are_openai_error_objects(base: str) -> None:
    for name, (method, path, status, code) in PATHS.items():
        answer = httpx.request(method, base + path, verify=False, timeout=60)
        assert answer.status_code == status, name
        assert answer.headers["x-request-id"], name
        assert code is None or answer.json()["error"]["code"] == code, name
    assert httpx.get(f"{base}/v1/chat/completions", verify=False, timeout=60).headers["allow"] == "POST"
    assert (
        httpx.get(f"{base}/v1/models", headers={"host": "evil.example"}, verify=False, timeout=60).json()["error"][
            "code"
        ]
        == "bad_host"
    )


def test_the_page_and_the_openapi_document_name_the_path_of_the_application(base: str) -> None:
    page = httpx.get(f"{base}/", verify=False, timeout=60).text
    assert f"<code>{base}/v1</code>" in page
    assert f"curl {base}/v1/chat/completions" in page
    root = urlsplit(base).path
    assert f'<a href="{root}/openapi.json">' in page
    document = httpx.get(f"{base}/openapi.json", verify=False, timeout=60).json()
    assert document["servers"] == [{"url": root or "/"}]
    for wrong in ("/v1/v1/models", "/chat/completions"):
        answer = httpx.get(f"{base}{wrong}", verify=False, timeout=60)
        assert f" such as {base}/v1; " in answer.json()["error"]["message"]


def test_a_client_that_leaves_a_stream_ends_its_call(base: str) -> None:
    body = {"model": "org/slow", "messages": MESSAGES, "stream": True}
    with httpx.stream("POST", f"{base}/v1/chat/completions", json=body, verify=False, timeout=60) as answer:
        assert "one" in next(answer.iter_text())
    assert eventually(
        lambda: (
            'gateway_client_gone_total{phase="mid_stream"} 1.0'
            in httpx.get(f"{base}/metrics", verify=False, timeout=60).text
        )
    )
    assert (
        'gateway_in_flight{endpoint="chat",model="org/slow"} 0.0'
        in httpx.get(f"{base}/metrics", verify=False, timeout=60).text
    )


def test_a_running_stream_is_completed_before_uvicorn_ends(config: Path) -> None:
    (config.parent / "slow.yaml").write_text("[one, {pause: 1}, two, {finish: stop}]")
    body = {"model": "org/slow", "messages": MESSAGES, "stream": True}
    with ExitStack() as stack:
        with served(gateway.create_app(config)) as address:
            call = httpx.stream(
                "POST",
                f"{address}/v1/chat/completions",
                json=body,
                headers={"connection": "close"},
                verify=False,
                timeout=60,
            )
            chunks = stack.enter_context(call).iter_text()
            assert "one" in next(chunks)
            rest = stack.enter_context(ThreadPoolExecutor(1)).submit(lambda: "".join(chunks))
        assert "two" in rest.result()
        assert rest.result().endswith("data: [DONE]\n\n")


def test_the_lifespan_reloads_changed_files(config: Path) -> None:
    with served(gateway.create_app(config)) as address:
        config.write_text(CONFIG.replace("hello:", "hi:"))
        assert eventually(
            lambda: httpx.get(f"{address}/v1/models", verify=False, timeout=60).json()["data"][0]["id"] == "hi"
        )


def test_a_broken_configuration_is_refused_with_all_problems(config: Path) -> None:
    config.write_text(CONFIG.replace("template: chat", "template: chatt"))
    with pytest.raises(gateway.ConfigError) as caught:
        gateway.create_app(config)
    assert len(caught.value.problems) == 2


def test_the_asgi_module_serves_the_file_that_the_environment_names(config: Path) -> None:
    code = "import gateway.asgi; print(sorted(route.path for route in gateway.asgi.app.routes)[:3])"
    clean = {name: value for name, value in os.environ.items() if name != "GATEWAY_CONFIG"}
    for env, status, text in (
        ({**clean, "GATEWAY_CONFIG": str(config)}, 0, "['/', '/detokenize', '/favicon.ico']"),
        (clean, 1, "GATEWAY_CONFIG: not set; name the configuration file, such as gateway.yaml"),
    ):
        ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert ended.returncode == status
        assert (ended.stdout + ended.stderr).strip().endswith(text)
