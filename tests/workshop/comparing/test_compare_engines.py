"""``tests/fuzz/compare-engines`` on a few published templates, with the engines of the test environment."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.serving import ROOT, WAIT_SECONDS


def test_the_tables_count_equal_prompts_and_name_the_causes_of_others() -> None:
    names = ["Qwen-Qwen3-0.6B", "SmolVLM-256M-Instruct", "Abdelkareem-supra-50m"]
    ended = subprocess.run(
        [sys.executable, "tests/fuzz/compare-engines", "--only", *names, "--show"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    out = re.sub(r"llama.cpp b\d+", "llama.cpp", re.sub(r"minijinja [\d.]+", "minijinja", ended.stdout))
    # 55 conversations with each template
    assert "\n| llama.cpp | 4 | 3 | 157 | 16 | 41 | 6 | 0 |\n" in out
    assert "\n| llama.cpp | differs | texts are lists of parts | 1 | 41 |\n" in out
    assert "\n| minijinja | 4 | 3 | 151 | 22 | 0 | 0 | 47 |\n" in out
    assert "| minijinja | refused by the reference | syntax error: unknown statement generation | 1 | 47 |\n" in out
    assert "llama.cpp: differs: texts are lists of parts: HuggingFaceTB-SmolVLM-256M-Instruct\n" in out
