"""YAML without surprises (``docs/spec/reliability.md`` F13)."""

from __future__ import annotations

import time

import pytest

from metatemplate.files.yaml import MAX_ALIASES, MAX_BYTES, MAX_DEPTH, parse

SCALARS = {  # as written: what it means
    "no": "no",
    "on": "on",
    "Yes": "Yes",
    "012": "012",
    "0x1F": "0x1F",
    "0o17": "0o17",
    "1_000": "1_000",
    "12:30": "12:30",
    "2027-06-30": "2027-06-30",
    "1.2.3": "1.2.3",
    "1.": "1.",
    "e3": "e3",
    ".nan": ".nan",
    "1e999": "1e999",
    "12345678901234567890": "12345678901234567890",
    "<eob>": "<eob>",
    "None": "None",
    "12": 12,
    "-3": -3,
    "0": 0,
    "1.5": 1.5,
    "1e3": 1000.0,
    ".5": 0.5,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    '"true"': "true",
    "'12'": "12",
    '"a\\nb"': "a\nb",
}


@pytest.mark.parametrize("written", SCALARS)
def test_a_scalar_means_what_it_looks_like(written: str) -> None:
    document = parse(f"key: {written}\n".encode(), "a.yaml")
    value = document.value["key"]
    assert (value, type(value)) == (SCALARS[written], type(SCALARS[written]))
    assert document.problems == []


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse(b"{no: 1, 012: 2, 50256: 3, null: 4, true: 5}", "a.yaml").value == {
        "no": 1,
        "012": 2,
        "50256": 3,
        "null": 4,
        "true": 5,
    }


def test_every_key_and_entry_knows_its_line() -> None:
    document = parse(b"a:\n  b:\n    - x\n    - y: 1\n\n      z: |\n        text\nc: 3\n", "a.yaml")
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "b", 0): 3,
        ("a", "b", 1): 4,
        ("a", "b", 1, "y"): 4,
        ("a", "b", 1, "z"): 6,
        ("c",): 8,
    }
    assert document.line(("a", "b", 1, "missing")) == 4
    assert document.problem(("a", "b", 1, "z"), "is odd").key == "a.b[1].z"


def test_few_aliases_are_followed() -> None:
    document = parse(b"a: &x {k: [1]}\nb: *x\n", "a.yaml")
    assert document.value == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert document.line(("b", "k")) == 2


BILLION = "a0: &a0 [x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
FEW_BUT_HUGE = f"a: &a [{', '.join('x' * 30_000)}]\nb: [*a, *a, *a, *a]\n"
MERGES = "a: &a {k: v}\nb: &b {<<: [" + ", ".join(["*a"] * 15) + "]}\n"

REFUSED = {  # name: (text, line of the problem, a word of it)
    "object tag": ("a: !!python/object/apply:os.system [ls]\n", 1, "tags"),
    "own tag": ("a: 1\nb: !env KEY\n", 2, "tags"),
    "non-specific tag": ("a: ! 12\n", 1, "tags"),
    "alias bomb": (BILLION, 4, "aliases"),
    "few aliases of something huge": (FEW_BUT_HUGE, 2, "values"),
    "an alias inside its own anchor": ("a: &a [*a]\n", 1, "alias"),
    "an alias to nothing": ("a: *b\n", 1, "alias"),
    "merge": (MERGES, 2, "merge keys"),
    "duplicate key": ("a: 1\nb: 2\na: 3\n", 3, "this key occurs twice, first on line 1"),
    "duplicate in flow": ("{a: 1, a: 2}\n", 1, "occurs twice"),
    "too deep": ("[" * 5000, 1, "nested deeper"),
    "too deep in blocks": ("".join(" " * n + "a:\n" for n in range(MAX_DEPTH + 2)), MAX_DEPTH + 2, "nested deeper"),
    "second document": ("a: 1\n---\nb: 2\n", 2, "second document"),
    "complex key": ("? [a, b]\n: 1\n", 1, "a key must be plain text"),
    "alias as key": ("a: &x y\n*x : 1\n", 2, "a key must be plain text"),
    "control character": ("a: 1\nb: \x07\n", 2, "control characters"),
    "lone surrogate": ('a: "\\ud800"\n', 1, "not valid YAML"),
    "unclosed quote": ('a: 1\nb: "x\nc: 2\n', 2, "the quote that begins here is not closed"),
    "unclosed quote and a document": ("a: 1\nb: 'x\n---\n", 2, "the quote that begins here is not closed"),
    "unclosed quote above a quote": ('a: 1\nb: "x\nc: 2\nd: "y"\n', 2, "closed only by the next quote, on line 4"),
    "unclosed quote in a list": ('a: ["x]\nb: ["y"]\n', 1, "closed only by the next quote, on line 2"),
    "a mistake below a long quote": ('a: "x\n  y"\n @z\n', 3, "cannot start any token"),
    "unknown directive": ("%FOO 1\n---\na: 1\n", 1, "not valid YAML"),
    "too large": ("#" * (MAX_BYTES + 1), 0, "larger than 1024 KiB"),
    "ten megabytes": ("a: b\n" * 2_000_000, 0, "larger than 1024 KiB"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_plain_data_is_refused_quickly_at_its_line(name: str) -> None:
    text, line, word = REFUSED[name]
    began = time.process_time()
    document = parse(text.encode(), "a.yaml")
    assert [(problem.file, problem.line) for problem in document.problems][:1] == [("a.yaml", line)]
    assert word in document.problems[0].message
    assert time.process_time() - began < 5


def test_the_alias_limit_is_exact() -> None:
    text = "a: &a x\nb: [" + ", ".join(["*a"] * MAX_ALIASES) + "]\n"
    assert parse(text.encode(), "a.yaml").problems == []
    assert parse((text + "c: *a\n").encode(), "a.yaml").problems


def test_bytes_that_are_not_utf8_are_refused_at_their_line() -> None:
    document = parse(b"a: 1\nb: \xff\n", "a.yaml")
    assert str(document.problems[0]) == "a.yaml:2: the file is not UTF-8; save it as UTF-8"


def test_a_byte_order_mark_is_no_content() -> None:
    assert parse(b"\xef\xbb\xbfa: 1\n", "a.yaml").value == {"a": 1}


def test_problems_of_syntax_hold_nothing_of_the_file() -> None:
    for text in ("key: sk-canary: x", "a: 'sk-canary", "[sk-canary", "a: &sk-canary *sk-canary", "%sk-canary\n--- x"):
        document = parse(text.encode(), "a.yaml")
        assert document.problems
        assert "canary" not in "".join(str(problem) for problem in document.problems)
