"""Texts that match patterns are removed: built-in patterns, pieces of a stream, and patterns that take too long."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from gateway.core.events import Begun, Delta, Event, Finish, TokenLogprob
from gateway.wire.redaction import PATTERNS, REDACTED, RedactionTimeout, Redactor, compile_pattern
from gateway.wire.stored_events import dump_json, named_events

FOUND = {
    "card": ["4111 1111 1111 1111", "378282246310005", "5500-0000-0000-0004"],
    "email": ["bob.x+y@mail.example.com"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819"],
    "ip": ["10.0.0.1"],
    "phone": ["+49 (30) 1234-5678", "(415) 555-2671", "415-555-2671"],
    "secret": [
        "sk-abcdefghijklmnop1234",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_" + "a1" * 18,
        "Bearer abcdefghijklmnop",
        "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE+/=\n-----END RSA PRIVATE KEY-----",
    ],
}
LEFT = {
    "card": ["4111 1111 1111 1112", "12345678901234567890", "2024-01-01 12:00"],
    "email": ["user@localhost", "a @ b.c"],
    "iban": ["ABC 1234", "in 2024 we"],
    "ip": ["1.2.3.4.5", "3.14"],
    "phone": ["1234567890", "2+2=4", "12 345 678"],
    "secret": ["task-force", "sk-short", "the bearer of news"],
}


def redacted(text: str, *patterns: str) -> tuple[str, int]:
    redaction = Redactor(patterns).begin()
    return redaction.text(text), redaction.found


@pytest.mark.parametrize("name", PATTERNS)
def test_a_built_in_pattern_finds_its_texts_and_no_others(name: str) -> None:
    for text in FOUND[name]:
        assert redacted(f"a {text}, b", name) == (f"a {REDACTED}, b", 1), text
    for text in LEFT[name]:
        assert redacted(text, name) == (text, 0), text


@pytest.mark.parametrize("name", PATTERNS)
def test_a_built_in_pattern_takes_no_time_for_a_hostile_text(name: str) -> None:
    for seed in ("1", "1 ", "a@", "a.", "A1", "1.1.", "+1(", "sk-", "eyJaaaaaaaa.", "-----BEGIN PRIVATE KEY-----"):
        redacted(seed * 20_000, name)  # raises RedactionTimeout after a second


def test_matches_that_overlap_are_one_and_regular_expressions_stand_between_slashes() -> None:
    assert redacted("id ACME-77@example.com!", "email", "/ACME-[0-9]+/", "/ple.com!/") == (f"id {REDACTED}", 1)


TEXT = "to bob@example.com and 10.0.0.1, ok"
SLICES = [[TEXT[:cut], TEXT[cut:]] for cut in range(len(TEXT) + 1)] + [
    list(TEXT),
    [TEXT[:4], "", TEXT[4:12], TEXT[12:]],
]


@pytest.mark.parametrize("pieces", SLICES, ids=range(len(SLICES)))
def test_a_match_is_found_in_every_slicing_and_the_number_of_pieces_stays(pieces: Sequence[str]) -> None:
    clean = Redactor(["email", "ip"]).begin().pieces(pieces)
    assert "".join(clean) == f"to {REDACTED} and {REDACTED}, ok"
    assert len(clean) == len(pieces)


def test_events_lose_matches_across_events_log_probabilities_and_token_ids() -> None:
    def call(index: int, arguments: str) -> dict[str, object]:
        return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}

    events: list[Event] = [
        Begun("m/0", fields={"prompt_token_ids": [1, 2]}),
        Delta(0, "bob@", (TokenLogprob("bob@", -0.1),), extras={"token_ids": [5]}),
        Delta(1, "hi ", fields=call(1, '{"to": "x@')),
        Delta(0, "example.com", fields={"reasoning_content": "call +49 30 "}),
        Delta(1, "you", fields=call(0, '"z"')),
        Delta(1, fields=call(1, 'y.de"}')),
        Delta(0, fields={"reasoning_content": "1234567"}),
        Finish(0, "stop"),
    ]
    redaction = Redactor(["email", "phone"]).begin()
    clean = redaction.events(events)
    assert redaction.found == 3
    assert clean == (
        Begun("m/0"),
        Delta(0, REDACTED),
        Delta(1, "hi ", fields=call(1, f'{{"to": "{REDACTED}')),
        Delta(0, fields={"reasoning_content": f"call {REDACTED}"}),
        Delta(1, "you", fields=call(0, '"z"')),
        Delta(1, fields=call(1, '"}')),
        Delta(0, fields={"reasoning_content": ""}),
        Finish(0, "stop"),
    )
    assert "example" not in dump_json(named_events(clean))


def test_values_lose_matches_in_texts_and_names_and_token_ids() -> None:
    redaction = Redactor(["email"]).begin()
    value = {"a@b.de": [{"content": "from a@b.de", "n": 1, "ok": True, "none": None}], "input": ((1, 2), "x")}
    expected = {REDACTED: [{"content": f"from {REDACTED}", "n": 1, "ok": True, "none": None}], "input": [REDACTED, "x"]}
    assert json.loads(json.dumps(redaction.value(value))) == expected
    assert redaction.found == 3


def test_a_pattern_that_takes_too_long_raises_an_error_and_the_log_has_nothing_of_the_text() -> None:
    redactor = Redactor(["/(?:a|aa)+$/"], seconds=0.02)
    with pytest.raises(RedactionTimeout):
        redactor.begin().text("a" * 80 + "b")
    assert redactor.log_text("a" * 80 + "b") == REDACTED


REFUSED = {
    "emial": '"emial" is not a built-in pattern (did you mean "email"?)',
    "/(/": "is not a regular expression: missing )",
    "/x*/": "matches the empty text",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_pattern_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        compile_pattern(text)
    assert REFUSED[text] in str(refused.value)
