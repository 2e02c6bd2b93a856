"""Recorded cases as a prompt file and a request, as ``tests/fuzz/fuzz-opencompass`` runs random ones."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest

from metatemplate.errors import MetaTemplateError
from metatemplate.files.problems import SpecError
from tests.support.serving import ROOT

PATH = runpy.run_path(str(ROOT / "tests" / "fuzz" / "product_path.py"))
FILES = ("opencompass.jsonl", "opencompass-further.jsonl")
ROWS = [line for name in FILES for line in (ROOT / "tests/conformance" / name).read_text(encoding="utf-8").splitlines()]
CASES: dict[str, Any] = {
    case["id"]: case
    for case in map(json.loads, ROWS)
    if case["kind"] in PATH["KINDS"]
    and "result" in case["expected"]
    and (case["kind"] != "multiturn" or "infer_mode" in case["input"])
}
OTHER_TEMPLATE = "p0028"
"""An MMPromptTemplate without content parts: its file is that of a PromptTemplate."""
NO_LABELS = "has no labels, so there are no candidates"
REFUSED = {
    "d3-without-end": NO_LABELS,
    "d3-tokens-no-map": NO_LABELS,
    "p0026": NO_LABELS,
    "q-ppl-not-masked": NO_LABELS,
    "q-sep-in-ice-gen": "has a template for each label",
    "q-fixk-none": "needs ice_template, which writes the examples",
    "q-raw-ice-text": "must be a list, not text",
}
"""Id of a case that the package renders → the reason for which the gateway refuses the file or the request."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*REFUSED, OTHER_TEMPLATE)])
def test_a_recorded_case_is_rendered_on_the_path_of_a_request(name: str) -> None:
    case = CASES[name]
    got = json.loads(json.dumps(PATH["KINDS"][case["kind"]](case["input"])))
    assert got == PATH["comparable"](case["kind"], case["expected"]["result"])


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_that_no_request_can_bring_is_refused_with_its_reason(name: str) -> None:
    case = CASES[name]
    with pytest.raises((MetaTemplateError, SpecError), match=REFUSED[name]):
        PATH["KINDS"][case["kind"]](case["input"])
