"""The models that template files name, and the templates that are similar to an unknown name."""

from __future__ import annotations

from pathlib import Path

import pytest

from metatemplate.files.template_models import (
    HELP,
    MAX_SIMILAR,
    help_for,
    made_for,
    models_of,
    patterns_of,
    similar_templates,
)

HEADERS = {
    "one line": ("# A form.\n#\n# For: my-model-7b.\n# From: x\n", ["my-model-7b"]),
    "lines with releases": (
        "# A form.\n#\n# For:\n#   a-7b, a-13b (0.2.4, 0.5.4)\n#   b (0.2.4 with an id) on vLLM\n# From: c\n",
        ["a-7b, a-13b", "b on vLLM"],
    ),
    "parentheses that are no releases": ("# For:\n#   a (old tokenizer)\n", ["a (old tokenizer)"]),
    "no comment": ("round: []\n", []),
    "a text in the file": ('begin: "\\n# For: x"\n', []),
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_models_of_a_template_are_those_of_its_comment(name: str) -> None:
    text, models = HEADERS[name]
    assert models_of(text) == models


FILES = {
    "zeta-3": "# For:\n#   zeta-3-8b-instruct\n",
    "lazyllm-zeta": "# For: models under names such as zeta-2.5-7b.\n",
    "eta": "# For:\n#   eta-7b\n",
    **{f"theta-{number}": "" for number in range(9)},
}
SIMILAR = {
    "zeta3": ["zeta-3"],
    "ZETA-3": ["zeta-3", "lazyllm-zeta"],
    "org/Zeta-2.5-7B": ["lazyllm-zeta"],
    "zeta-2.5": ["lazyllm-zeta"],
    "eta": ["eta", "lazyllm-zeta", "theta-0", "theta-1", "theta-2"],
    "eta-13b-chat": ["eta"],
    "iota": [],
    "-a-": [],
}


@pytest.mark.parametrize("word", SIMILAR)
def test_similar_templates_have_the_word_in_their_name_or_models(tmp_path: Path, word: str) -> None:
    for name, text in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "zeta-link.yaml").symlink_to("nothing.yaml")
    found = similar_templates(word, tmp_path.glob("*.yaml"))
    assert found == SIMILAR[word]
    assert len(found) <= MAX_SIMILAR
    listed = f"; similar: {', '.join(found)}" if found else ""
    assert help_for(word, tmp_path.glob("*.yaml")) == f"{listed}; {HELP}"


PATTERNS = {
    "a list": ('for: ["Eta-*", eta]\n', ["Eta-*", "eta"]),
    "one text": ("for: eta-*\n", ["eta-*"]),
    "no key": ("round: []\n", []),
    "no mapping": ("- for\n", []),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_the_patterns_of_a_template_are_its_key_for(tmp_path: Path, name: str) -> None:
    text, patterns = PATTERNS[name]
    (tmp_path / "a.yaml").write_text(text)
    assert patterns_of(tmp_path / "a.yaml") == patterns


MADE = {
    "org/Eta-7B": ["eta"],
    "eta-7b": ["eta"],
    "eta-7b-coder": ["eta", "eta-coder"],
    "eta": [],
    "eta-7b/theta": [],
    "theta-eta-7b": [],
}


@pytest.mark.parametrize("model", MADE)
def test_a_template_is_for_a_model_if_a_pattern_is_the_whole_last_part_of_its_name(model: str) -> None:
    assert made_for(model, {"eta": ["Eta-[0-9]*"], "eta-coder": ["x", "*-coder"], "iota": []}) == MADE[model]
