"""Notes that are the same for every format."""

from __future__ import annotations

import pytest

from gateway.workshop.importer.draft import bos_notes

BEGINNINGS = {
    "a BOS in the text": ("<s>[INST] hi", "none", True),
    "a BOS in the text, and one by the engine": ("<|begin_of_text|>hi", "engine", True),
    "with full-width bars": ("<｜begin▁of▁sentence｜>hi", "none", True),
    "a declared BOS": ("<s>[INST] hi", "text", False),
    "the mark of a role": ("<|im_start|>user", "none", False),
    "a longer word": ("<sys>hi", "none", False),
    "a BOS behind other text": ("hi<s>", "none", False),
}


@pytest.mark.parametrize(("prompt", "bos", "warns"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_prompt_that_begins_with_a_bos_gets_a_warning_unless_it_is_declared(
    prompt: str, bos: str, warns: bool
) -> None:
    assert len(bos_notes(prompt, bos)) == warns
