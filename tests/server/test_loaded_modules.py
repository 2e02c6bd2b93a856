"""A gateway imports what its configuration names, before it answers its first request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.process import Process, serving
from tests.support.loaded import CONFIGURATIONS, code_lines, command, file_of, files_of, imported
from tests.support.upstream.server import FaultyUpstream

MAX_MODULES, MAX_LINES = 220, 14_500
"""The most modules, and lines of code, of a server of a string model with two endpoints."""
TALK = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"messages": TALK},
        {"messages": TALK, "stream": True},
        {"messages": TALK, "logprobs": True, "n": 2, "stop": ["x"]},
        {"messages": TALK, "response_format": SCHEMA},
        {"messages": TALK, "tools": TOOLS, "tool_choice": "required"},
        {
            "messages": [
                *TALK,
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": ""},
            ]
        },
        {"messages": TALK, "add_generation_prompt": False, "echo": True},
        {"messages": TALK, "gateway": {"explain": True}},
        {"messages": TALK, "gateway": {"turns": {"mode": "every"}}},
        {"gateway": {"prompt": {"id": "sum", "variables": {"question": "1+1"}}}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.b/c"}}]}]},
    ],
    "/v1/completions": [{"prompt": "hi"}, {"prompt": ["a", "b"], "stream": True}, {"prompt": [1, 2]}],
    "/v1/embeddings": [{"input": "hi"}],
    "/v1/responses": [{"input": "hi"}, {"input": "hi", "stream": True}],
    "/v1/responses/input_tokens": [{"input": "hi"}],
    "/v1/loglikelihood": [{"messages": TALK, "candidates": {"A": "a", "B": "b"}}],
    "/v1/render": [{"messages": TALK}, {"messages": TALK, "tools": TOOLS}],
    "/v1/chat/completions/render": [{"messages": TALK}],
    "/v1/completions/render": [{"prompt": "hi"}],
    "/v1/tokenize": [{"prompt": "hi"}, {"messages": TALK}],
    "/v1/detokenize": [{"tokens": [1]}],
}
"""Path → bodies, without the model. Some are refused by some models: an error must not import anything either."""
PAGES = (
    "/",
    "/viewer",
    "/viewer/prompt",
    "/viewer/recordings",
    "/viewer/runs",
    "/openapi.json",
    "/metrics",
    "/status",
    "/v1/models",
    "/tokenizer_info",
    "/viewer/assets/none",
)


def started(folder: Path, name: str, url: str) -> Iterator[tuple[Process, Path]]:
    """A gateway with one of the configurations, and the file of the modules that it has imported."""
    modules = folder / "modules.txt"
    with serving(folder, files_of(name, url), command(modules)) as served:
        yield served, modules


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_request_imports_a_module(name: str, tmp_path: Path) -> None:
    with FaultyUpstream() as up:
        for served, modules in started(tmp_path, name, up.url("ok")):
            headers = {"authorization": "Bearer secret"}
            assert served.http.get("/health/ready").status_code == 200
            before = imported(modules)
            models = [card["id"] for card in served.http.get("/v1/models", headers=headers).json()["data"]]
            assert models
            answered = 0
            for path, bodies in REQUESTS.items():
                for body in bodies:
                    for model in models:
                        answer = served.http.post(path, json={"model": model, **body}, headers=headers)
                        answered += answer.status_code == 200
            for page in PAGES:
                served.http.get(page, headers=headers)
            served.http.post("/viewer/prompt", data={"model": models[0], "user": "hi"}, headers=headers)
            assert answered >= 2 * len(models)
            assert imported(modules) - before == set()


def test_a_server_of_a_string_model_has_little_code(tmp_path: Path) -> None:
    for served, modules in started(tmp_path, "two endpoints of a string model", "http://127.0.0.1:9/v1"):
        assert served.http.get("/health/ready").status_code == 200
        found = imported(modules)
        assert len(found) <= MAX_MODULES
        assert sum(code_lines(file_of(one)) for one in found) <= MAX_LINES
