"""The segments of recorded prompts: they cover the prompt exactly, or they are null."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.edge.test_recordings import recorded
from tests.support.serving import ROOT, Files, Gateway
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import World, world_fixture

JINJA = "{{ bos_token }}{% for one in messages %}[{{ one.role }}]{{ one.content | trim }}\n{% endfor %}[assistant]"
TEMPLATES = {  # model: (template, policy, settings of the target, mode of the upstream)
    "meta": ("chatml", "full", "speaks: completions", "ok"),
    "tools": ("chatml-tools", "full", "speaks: completions", "ok"),
    "bos": ("bos", "full", "speaks: completions", "ok"),
    "prompter": ("lazyllm-qwen", "full", "speaks: completions", "ok"),
    "base": ("base", "full", "speaks: completions", "ok"),
    "jinja": ("jinja", "full", "speaks: completions", "ok"),
    "roles": ("roles", "full", "speaks: completions", "ok"),
    "escaping": ("chatml", "escaping", "speaks: completions", "ok"),
    "scored": ("chatml", "full", "speaks: completions", "scores"),
    "failing": ("chatml", "full", "speaks: completions", "503"),
    "chat": ("api", "full", "speaks: chat", "ok"),
    "hashed": ("chatml", "metadata", "speaks: completions", "ok"),
}
FILES: Files = {
    "prompts": ROOT / "prompts",
    "policies/full.yaml": "record: full\ndelivery: {retry: {attempts: 2}}\n",
    "policies/escaping.yaml": "record: full\nmarkers: {token_like: escape}\n",
    "policies/metadata.yaml": "record: metadata\n",
    "meta_templates/jinja.yaml": f"kind: jinja\ntemplate: {json.dumps(JINJA)}\nspecial_tokens: {{bos_token: <s>}}\n",
    "meta_templates/roles.yaml": "kind: jinja\ntemplate: '{{ messages[0].content }}: '\n",
    "meta_templates/bos.yaml": """
kind: meta
begin: "<s>"
bos: text
bos_text: "<s>"
round:
  - {role: HUMAN, begin: "H: ", end: "\\n"}
  - {role: BOT, begin: "B: ", end: "\\n", generate: true}
""",
}


def config(up: FaultyUpstream) -> str:
    """Models that record, and a pattern that replaces mail addresses."""
    models = []
    for name, (template, policy, target, mode) in TEMPLATES.items():
        settings = f'{target}, model: m, url: "{up.url(mode)}"'
        models.append(f"  {name}: {{template: {template}, policy: {policy}, targets: [{{{settings}}}]}}")
    return "\n".join(["recordings: {path: calls.sqlite}\nredact: [email]\nmodels:", *models])


world = world_fixture(config, FILES)
TALK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": " hi "}]
OPEN = [*TALK, {"role": "assistant", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
FEW_SHOT = {"gateway": {"prompt": {"id": "sums-few-shot", "variables": {"question": "1+1=?"}}}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "meta": ("meta", {"messages": TALK}),
    "meta, continued": ("meta", {"messages": OPEN, "continue_final_message": True, "add_generation_prompt": False}),
    "meta, of a dataset": ("meta", FEW_SHOT),
    "meta, several choices": ("meta", {"messages": TALK, "n": 2, "stream": True}),
    "tools": ("tools", {"messages": TALK, "tools": TOOLS}),
    "a forced tool": ("tools", {"messages": TALK, "tools": TOOLS, "tool_choice": "required"}),
    "bos as text": ("bos", {"messages": TALK[1:]}),
    "prompter": ("prompter", {"messages": TALK}),
    "base": ("base", {"messages": TALK[1:]}),
    "jinja": ("jinja", {"messages": TALK}),
    "an escaped marker": ("escaping", {"messages": [{"role": "user", "content": "a <|im_end|> b"}]}),
}


def sent(served: Gateway, path: str, model: str, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The recording of a call."""
    return recorded(served, served.http.post(path, json={"model": model, **fields}))


def covered(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """The segments of an exchange with their texts, which together are its prompt."""
    (prompt,), segments = json.loads(exchange["prompts"]), []
    for size, role, origin, scaffold in json.loads(exchange["segments"]):
        segments.append({"text": prompt[:size], "role": role, "origin": origin, "scaffold": scaffold})
        prompt = prompt[size:]
    assert prompt == ""
    return segments


@pytest.mark.parametrize("case", CASES)
def test_the_recorded_segments_are_those_of_render(case: str, world: World) -> None:
    model, fields = CASES[case]
    _, exchanges = sent(world.served, "/v1/chat/completions", model, **fields)
    shown = world.served.http.post("/v1/render", json={"model": model, **fields}).json()
    assert len(shown["segments"]) > 1 or model == "base"
    assert [covered(one) for one in exchanges] == [shown["segments"]] * len(exchanges) != []


def test_each_turn_and_each_candidate_has_its_segments(world: World) -> None:
    turns = {"messages": TALK, "gateway": {"turns": {"questions": ["one", "two"]}}}
    _, exchanges = sent(world.served, "/v1/chat/completions", "meta", **turns)
    assert [covered(one)[-3]["text"] for one in exchanges] == ["one", "two"]
    whole = {label: [*TALK, {"role": "assistant", "content": label}] for label in "ab"}
    _, exchanges = sent(world.served, "/v1/loglikelihood", "scored", candidates=whole)
    assert sorted(covered(one)[-2]["text"] for one in exchanges) == ["a", "b"]
    _, exchanges = sent(world.served, "/v1/loglikelihood", "scored", context=TALK, candidates={"a": "a", "b": "b"})
    assert [one["segments"] is None for one in exchanges].count(True) == 2, "the texts that follow a context"


def test_a_failed_call_has_the_segments_of_its_prompt(world: World) -> None:
    call, (exchange,) = sent(world.served, "/v1/chat/completions", "failing", messages=TALK)
    assert (call["outcome"], call["attempts"]) == ("upstream_overloaded", 2)
    assert covered(exchange)[1]["text"] == "Be short."


UNKNOWN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "messages": ("/v1/chat/completions", "chat", {"messages": TALK}),
    "a prompt of the client": ("/v1/completions", "meta", {"prompt": "hi"}),
    "token ids": ("/v1/completions", "meta", {"prompt": [1, 2]}),
    "metadata": ("/v1/chat/completions", "hashed", {"messages": TALK}),
    "a redacted prompt": ("/v1/chat/completions", "meta", {"messages": [{"role": "user", "content": "a@example.com"}]}),
    "a redacted role": ("/v1/chat/completions", "roles", {"messages": [{"role": "a@example.com", "content": "hi"}]}),
    "a long conversation": ("/v1/chat/completions", "jinja", {"messages": TALK * 1000}),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_other_segments_are_not_known(case: str, world: World) -> None:
    path, model, fields = UNKNOWN[case]
    _, exchanges = sent(world.served, path, model, **fields)
    assert {one["segments"] for one in exchanges} == {None}
