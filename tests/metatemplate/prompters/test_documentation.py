"""LazyLLM's documentation of prompters: its calls as template files and requests, and the texts that it prints.

The page shows outputs of release 0.1.1; the recorded cases hold its calls and its printed texts.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.metatemplate.templates.samples import dialogue, template
from tests.support.serving import ROOT

CASES = {
    case["id"]: case
    for case in map(json.loads, (ROOT / "tests" / "conformance" / "lazyllm-0.1.1.jsonl").read_text().splitlines())
}
MARKS = {"tool_start_token": "<t>", "tool_args_token": "<a>", "tool_end_token": "</t>"}
"""The gateway reads calls from answers, so a template with tools needs marks; release 0.1.1 has none in the prompt."""
CLASSES = {"AlpacaPrompter": "alpaca", "ChatPrompter": "chat"}
DOCUMENTED = (
    "lz011-doc-alpaca-one-slot",
    "lz011-doc-alpaca-extro-key-spelling",
    "lz011-doc-chat-one-slot",
    "lz011-doc-chat-no-slot",
    "lz011-doc-tools-ctor-alpaca",
    "lz011-doc-tools-ctor-chat",
    "lz011-doc-tools-call-alpaca",
    "lz011-doc-tools-call-chat",
    "lz011-doc-history-pairs-str",
)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_call_of_the_documentation_gives_the_text_that_it_prints(name: str) -> None:
    case = CASES[name]["input"]
    init, call = case["init"], case["call"]
    file: dict[str, Any] = {
        "kind": "prompter",
        "class": CLASSES[case["cls"]],
        "dialect": "0.1",
        "instruction": init["instruction"],
    }
    if "extro_keys" in init:
        file["extra_keys"] = [init["extro_keys"]]
    if "tools" in init or "tools" in call:
        file |= {"tools": {"parser": "lazyllm"}, "marks": MARKS}
    if "tools" in init:
        file["default_tools"] = init["tools"]
    turns = [turn for pair in call.get("history", ()) for turn in zip(("user", "assistant"), pair, strict=True)]
    prompt = template(file).render(dialogue(*turns, ("user", call["input"]), tools=tuple(call.get("tools", ()))))
    assert prompt.text == CASES[name]["expected"]["result"]
    documented = CASES[name]["documented"]
    assert documented["agrees"] is (documented["output"] == prompt.text)
