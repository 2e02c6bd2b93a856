"""Tool loops of the OpenAI SDK with model families: their published templates, and engines that answer as they do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.journeys.test_tools import ADD, World, ask, both_ways, said
from tests.metatemplate.answers.published import FAMILIES, Writer, template_files
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import world_fixture

NAMES = {
    "Qwen3-Coder": "qwen",
    "Nemotron 3": "nemotron",
    "GLM-5": "glm",
    "Kimi K2": "kimi",
    "DeepSeek V4": "deepseek",
    "MiniMax M2": "minimax",
    "Gemma 4": "gemma",
    "gpt-oss": "gpt-oss",
}
"""The models, by their families."""
ANSWERS = {family: Writer(family).written([ADD], [("add", {"a": 12, "b": 34})], "I add.") for family in NAMES}


def models(up: FaultyUpstream) -> str:
    rows = []
    for family, answer in ANSWERS.items():
        end = FAMILIES[family].end
        thought = answer.text.removesuffix(answer.said)
        url = up.url("text", text=f"{answer.text}{end}leak", then=f"{thought}46{end}leak", when="46")
        target = f'{{speaks: completions, url: "{url}", engine: vllm}}'
        rows.append(f"  {NAMES[family]}: {{template: {NAMES[family]}, targets: [{target}]}}\n")
    return "models:\n" + "".join(rows)


FILES = {path: text for family in NAMES for path, text in template_files(family, NAMES[family]).items()}
world = world_fixture(models, FILES, World)


@both_ways
@pytest.mark.parametrize("family", NAMES)
def test_a_tool_is_called_and_its_result_is_used(world: World, family: str, stream: bool) -> None:
    written, question = ANSWERS[family], [{"role": "user", "content": "Question?"}]
    choice = ask(world, NAMES[family], question, tools=[ADD], stream=stream).choices[0]
    assert world.prompt().startswith(written.prompt)  # Gemma's goes on with an empty thought
    content, calls, finish = said(choice)
    content = (content or "").strip()  # not all templates trim it when it comes back
    assert (content, calls, finish) == (written.content, [("add", '{"a": 12, "b": 34}')], "tool_calls")
    assert getattr(choice.message, "reasoning", "").strip() == written.reasoning
    (call,) = choice.message.tool_calls
    history: list[Any] = [
        *question,
        {"role": "assistant", "content": content, "tool_calls": [call.model_dump(include={"id", "type", "function"})]},
        {"role": "tool", "tool_call_id": call.id, "name": "add", "content": "46"},
    ]
    answer = ask(world, NAMES[family], history, tools=[ADD], stream=stream).choices[0]
    assert said(answer) == ("46", [], "stop")
    assert written.said.strip() in world.prompt()
