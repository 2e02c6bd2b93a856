"""Templates without a generating role, as the AISBench document first prints them: served for scoring only."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.serving import Files
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import World, world_fixture

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "d4"
SUMS = [("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?"), ("assistant", "4")]
ASKED = [("system", "Solve the following math questions"), *SUMS]
TEMPLATES = {"rounds": SUMS, "reserved": ASKED, "begin-end": ASKED}
"""Template of the document → the conversation of the document's output."""
API = """
round:
  - {role: HUMAN, api_role: HUMAN}
  - {role: BOT, api_role: BOT}
"""
PROMPT = """
input_columns: [question]
output_column: answer
prompt_template: {template: {round: [{role: HUMAN, prompt: "{question}"}, {role: BOT, prompt: "{answer}"}]}}
"""
NO_ROLE = "this model's template has no role with generate: true, so it renders only complete conversations for scoring"


def config(up: FaultyUpstream) -> str:
    url = up.url("scores")
    target = dict.fromkeys((*TEMPLATES, "exact"), f'{{speaks: completions, url: "{url}"}}')
    target["api"] = f'{{speaks: chat, engine: vllm, url: "{url}"}}'
    lines = [f"  {name}: {{template: {name}, targets: [{text}]}}" for name, text in target.items()]
    return "\n".join(["models:", *lines])


FILES: Files = {
    **{f"meta_templates/{name}.yaml": GOLDEN / f"{name}.yaml" for name in TEMPLATES},
    "meta_templates/exact.yaml": (GOLDEN / "rounds.yaml").read_text(encoding="utf-8") + "\nturns: opencompass\n",
    "meta_templates/api.yaml": API,
    "prompts/sums.yaml": PROMPT,
}
world = world_fixture(config, FILES)


def messages(turns: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in turns]


def score(world: World, model: str, turns: list[tuple[str, str]]) -> httpx.Response:
    candidates = {"a": messages(turns), "b": messages([*turns[:-1], ("assistant", "11")])}
    return world.served.http.post("/v1/loglikelihood", json={"model": model, "candidates": candidates})


@pytest.mark.parametrize("name", [*TEMPLATES, "exact"])
def test_a_conversation_is_scored_as_the_document_prints_it(world: World, name: str) -> None:
    answer = score(world, name, TEMPLATES.get(name, SUMS))
    assert answer.status_code == 200, answer.text
    golden = (GOLDEN / f"{'rounds' if name == 'exact' else name}.txt").read_text(encoding="utf-8")
    assert golden in {request.body["prompt"] for request in world.up.requests[-2:]}


def test_an_api_template_scores_messages(world: World) -> None:
    assert score(world, "api", SUMS).status_code == 200
    sent = [request.body for request in world.up.requests[-2:]]
    assert messages(SUMS) in [body["messages"] for body in sent]
    assert {body["add_generation_prompt"] for body in sent} == {False}


@pytest.mark.parametrize("model", ["rounds", "exact", "api"])
def test_an_answer_cannot_be_requested(world: World, model: str) -> None:
    prompt = {"model": model, "gateway": {"prompt": {"id": "sums", "variables": {"question": "1+1=?"}}}}
    for answer in (world.served.chat(model), world.served.http.post("/v1/chat/completions", json=prompt)):
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith(NO_ROLE)
