"""A written file holds the keys of the draft, with any texts in them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.workshop.importer.draft import Draft
from gateway.workshop.importer.yaml_writer import write_yaml
from metatemplate.files.yaml import parse

# Lone surrogates cannot be encoded, and no source that was read as UTF-8 holds one.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KEYS: Any = st.fixed_dictionaries(
    {"kind": st.just("meta"), "description": TEXTS, "begin": TEXTS, "template": TEXTS},
    optional={
        "round": st.lists(st.fixed_dictionaries({"role": TEXTS, "generate": st.booleans()}), max_size=3),
        "stop": st.lists(TEXTS, max_size=3),
        "eos_token_id": st.integers(0, 10**6),
        "roles": st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3),
        "special_tokens": st.dictionaries(TEXTS.filter(bool), TEXTS, min_size=1, max_size=3),
        "history": st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=2),
        "examples": st.lists(
            st.fixed_dictionaries(
                {
                    "messages": st.lists(
                        st.fixed_dictionaries({"role": TEXTS, "content": TEXTS}), min_size=1, max_size=2
                    ),
                    "prompt": TEXTS,
                }
            ),
            min_size=1,
            max_size=2,
        ),
    },
)


@given(keys=KEYS, notes=st.lists(TEXTS, max_size=3), origin=TEXTS)
def test_a_file_is_read_back_as_it_was(keys: dict[str, Any], notes: list[str], origin: str) -> None:
    draft = Draft("x", origin, "0" * 64, keys, tuple(notes))
    document = parse(write_yaml(draft, [origin, *notes]).encode(), "x.yaml")
    assert document.problems == []
    assert document.value == keys


def test_a_header_cannot_become_keys() -> None:
    draft = Draft("x", "a\nkind: chat\r\n\x85\u2028b", "0" * 64, {"kind": "meta"}, ("c\n- d",))
    text = write_yaml(draft, ("e\nf",))
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == ["kind: meta"]


def test_roles_stand_in_flow_and_programs_on_their_lines() -> None:
    keys = {
        "kind": "jinja",
        "template": "{% if a %}\n  b\n\n{% endif %}\n",
        "round": [{"role": "HUMAN", "begin": "a\n"}],
    }
    assert write_yaml(Draft("x", "o", "0" * 64, keys)).split("\n\n", 1)[1] == (
        'kind: jinja\ntemplate: |\n  {% if a %}\n    b\n\n  {% endif %}\nround:\n  - {role: HUMAN, begin: "a\\n"}\n'
    )
