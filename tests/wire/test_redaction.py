"""Texts that match patterns are removed: built-in patterns, pieces of a stream, and patterns that take too long."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from gateway.wire.json import dump_json
from gateway.wire.redaction import PATTERNS, REDACTED, RedactionTimeout, Redactor, compile_pattern
from gateway.wire.stored_events import named_events
from metatemplate.values.events import Begun, Delta, Event, Finish, TokenLogprob

FOUND = {
    "card": ["4111 1111 1111 1111", "378282246310005", "5500-0000-0000-0004", " ".join("4111111111111111")],
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
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMII=\n-----END RSA PRIVATE KEY-----",
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


BESIDE = {
    "digits after a card": ("card", "{4111 1111 1111 1111} 123"),
    "digits before a card": ("card", "order 12 {4111 1111 1111 1111}"),
    "a date and a card": ("card", "on 01-01 {4111111111111111} 12 27"),
    "a full stop": ("ip", "host is {10.1.2.3}."),
    "dots": ("ip", "...{10.1.2.3}"),
    "a letter without space": ("secret", "密钥{sk-abcdefghijklmnop1234}，"),
    "an underscore": ("secret", "my_{AKIAABCDEFGHIJKLMNOP}_"),
    "an account without space": ("iban", "账号{DE89370400440532013000}是"),
}


@pytest.mark.parametrize(("name", "text"), BESIDE.values(), ids=BESIDE)
def test_a_match_is_found_beside_other_characters(name: str, text: str) -> None:
    private = text[text.index("{") : text.index("}") + 1]
    assert redacted(text.replace(private, private[1:-1]), name) == (text.replace(private, REDACTED), 1)


ESCAPED = {
    "a line break before": ("secret", "\n{sk-abcdefghijklmnop1234}\n"),
    "a hidden character": ("email", "\u00fc {bob@example.com}"),
    "digits before": ("card", "\u00e9{4111 1111 1111 1111}"),
    "a tab before": ("iban", "\t{DE89370400440532013000}"),
    "a pair of surrogates": ("/😀[0-9]+/", "a {😀12}"),
    "a backslash of the text": (r"/ACME\\\w+/", "{ACME\\new} text"),
}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(("name", "text"), ESCAPED.values(), ids=ESCAPED)
def test_a_match_is_found_in_json_in_a_text_which_stays_json(name: str, text: str, depth: int) -> None:
    """In every slicing, as the arguments of a tool are streamed."""
    begin, end = text.index("{"), text.index("}")
    value, expected = text[:begin] + text[begin + 1 : end] + text[end + 1 :], text[:begin] + REDACTED + text[end + 1 :]
    for _ in range(depth):
        value, expected = json.dumps({"x": value}), json.dumps({"x": expected})
    if depth == 1:
        value = value.replace("@", "\\u0040").replace(" 1111", "\\u00201111")
    for cut in range(len(value)):
        assert "".join(Redactor([name]).begin().pieces([value[:cut], value[cut:]])) == expected


DIVIDED = {
    "over two parts": ("email", ["to user@exam", "ple.com now"], [f"to {REDACTED}", " now"]),
    "over three parts": ("email", ["us", "er@exam", "ple.com"], [REDACTED, "", ""]),
    "inside of one part": ("card", ["order 12", "4111 1111 1111 1111", "34"], ["order 12", REDACTED, "34"]),
}


@pytest.mark.parametrize(("name", "texts", "expected"), DIVIDED.values(), ids=DIVIDED)
def test_a_match_that_is_divided_over_content_parts_is_found(name: str, texts: list[str], expected: list[str]) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}

    def message(texts: list[str]) -> dict[str, object]:
        return {"role": "user", "content": [image, *[{"type": "text", "text": text} for text in texts], image]}

    redaction = Redactor([name]).begin()
    assert redaction.value([message(texts)]) == [message(expected)]
    assert redaction.found == 1


def test_a_match_that_begins_or_ends_in_an_escape_takes_all_of_it() -> None:
    assert redacted(r'{"x": "\nbob@example.com"}', "email") == (f'{{"x": "{REDACTED}"}}', 1)
    assert redacted(r'{"x": "id=\u00e9"}', r"/id=\\u/") == (f'{{"x": "{REDACTED}"}}', 1)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_built_in_pattern_takes_no_time_for_a_hostile_text(name: str) -> None:
    for seed in (
        "1",
        "1 ",
        "a@",
        "a.",
        "A1",
        "1.1.",
        "+1(",
        "sk-",
        "eyJaaaaaaaa.",
        "-----BEGIN PRIVATE KEY-----",
        "\\",
    ):
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
        Delta(0, "bob@", (TokenLogprob("bob@", -0.1),), extras={"token_ids": [5], "tokens": ["b"], "output_ids": [5]}),
        Delta(1, "hi ", fields=call(1, '{"to": "x@')),
        Delta(0, "example.com", fields={"reasoning_content": "call +49 30 "}),
        Delta(1, "you", fields=call(0, '"z"')),
        Delta(1, fields=call(1, 'y.de"}')),
        Delta(0, fields={"reasoning_content": "1234567"}),
        Finish(0, "stop", extras={"a@b.de": [{"a@b.de": 4111111111111111, "n": 1}]}),
    ]
    redaction = Redactor(["email", "phone", "card"]).begin()
    clean = redaction.events(events)
    assert redaction.found == 5
    assert clean == (
        Begun("m/0"),
        Delta(0, REDACTED),
        Delta(1, "hi ", fields=call(1, f'{{"to": "{REDACTED}')),
        Delta(0, fields={"reasoning_content": f"call {REDACTED}"}),
        Delta(1, "you", fields=call(0, '"z"')),
        Delta(1, fields=call(1, '"}')),
        Delta(0, fields={"reasoning_content": ""}),
        Finish(0, "stop", extras={REDACTED: [{REDACTED: REDACTED, "n": 1}]}),
    )
    assert "example" not in dump_json(named_events(clean))


def test_values_lose_matches_in_texts_and_names_and_token_ids() -> None:
    redaction = Redactor(["email", "card"]).begin()
    fields = {"n": 1, "ok": True, "none": None}
    value = {"a@b.de": [{"content": "from a@b.de", **fields}], "input": ((1, 2), "x"), "card": 4111111111111111}
    expected = {REDACTED: [{"content": f"from {REDACTED}", **fields}], "input": [REDACTED, "x"], "card": REDACTED}
    assert json.loads(json.dumps(redaction.value(value))) == expected
    assert redaction.found == 4


def test_a_pattern_that_takes_too_long_raises_an_error_and_the_log_has_nothing_of_the_text() -> None:
    redactor = Redactor(["/(?:a|aa)+$/"], seconds=0.02)
    with pytest.raises(RedactionTimeout):
        redactor.begin().text("a" * 80 + "b")
    assert redactor.log_text("a" * 80 + "b") == REDACTED


def test_a_text_after_the_time_limit_is_not_searched() -> None:
    """The limit is that of all texts of a call, however short each is."""
    with pytest.raises(RedactionTimeout):
        Redactor(["email"], seconds=0).begin().text("hello")


REFUSED = {
    "emial": '"emial" is not a built-in pattern (did you mean "email"?)',
    "/(/": '"/(/" is not a regular expression: missing )',
    "/x*/": '"/x*/" matches the empty text',
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_pattern_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        compile_pattern(text)
    assert REFUSED[text] in str(refused.value)
