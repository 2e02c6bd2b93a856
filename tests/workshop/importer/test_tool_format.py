"""``gateway import FOLDER`` finds the format of tool calls in a call that the chat template writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.command import command
from tests.presets.published import source

FORMATS = {
    "hermes": "Qwen-Qwen3-0.6B@a55ee1",
    "qwen3_coder": "Qwen-Qwen3-Coder-30B-A3B-Instruct",
    "glm45": "zai-org-GLM-4.5-Air",
    "kimi_k2": "moonshotai-Kimi-K2-Instruct",
    "deepseek_v32": "deepseek-ai-DeepSeek-V3.2",
    "deepseek_v4": "unsloth-DeepSeek-V4-Flash",
    "minimax_m2": "MiniMaxAI-MiniMax-M2",
    "mistral": "mistralai-Ministral-3-14B-Instruct-2512",
    "gemma4": "google-gemma-4-31B-it",
    "functiongemma": "unsloth-functiongemma-270m-it",
    "nemotron_json": "nvidia-NVIDIA-Nemotron-Nano-12B-v2",
    "harmony": "openai-gpt-oss-120b",
}
"""Format → a published chat template that writes calls in it."""
FOUND = "the chat template writes calls in the format of `tools`"
HINT = "the chat template supports tools; to accept them, declare the format"


def imported(folder: Path, name: str) -> tuple[dict[str, object], str]:
    """The keys of the imported file, and the lines on standard error."""
    (folder / "model").mkdir()
    (folder / "model/chat_template.jinja").write_text(source(name), "utf-8")
    ended = command(folder, "import", "model")
    assert ended.returncode == 0, ended.stderr
    keys: dict[str, object] = yaml.safe_load((folder / "meta_templates/model.yaml").read_text("utf-8"))
    return keys, ended.stderr.decode() + ended.stdout.decode()


@pytest.mark.parametrize("parser", FORMATS)
def test_the_format_of_the_calls_is_declared(tmp_path: Path, parser: str) -> None:
    keys, told = imported(tmp_path, FORMATS[parser])
    assert keys["tools"] == {"parser": parser}
    assert (FOUND in told, HINT in told) == (True, False)


OTHERS = {
    "writes no calls": "HuggingFaceTB-SmolLM3-3B@3e0e27",
    "writes calls in another format": "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
}


@pytest.mark.parametrize("name", OTHERS.values(), ids=OTHERS)
def test_a_chat_template_that_writes_no_known_calls_gets_the_advice(tmp_path: Path, name: str) -> None:
    keys, told = imported(tmp_path, name)
    assert "tools" not in keys
    assert (FOUND in told, HINT in told) == (False, True)


def test_a_chat_template_without_a_list_of_tools_gets_no_key(tmp_path: Path) -> None:
    keys, told = imported(tmp_path, "deepseek-ai-DeepSeek-V3.1")
    assert "tools" not in keys
    assert (FOUND in told, HINT in told) == (False, False)
