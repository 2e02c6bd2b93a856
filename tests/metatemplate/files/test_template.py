from __future__ import annotations

from typing import Any

import pytest

from metatemplate.files.template import SpecError, parse_spec
from metatemplate.templates.registry import build, run_examples
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from tests.metatemplate.templates.samples import API, BOT, HUMAN, PLAIN, RESERVED, SYSTEM

Q = {"messages": [{"role": "user", "content": "q"}]}


def human(**changes: Any) -> dict[str, Any]:
    return {"round": [{**HUMAN, **changes}, BOT]}


MISTAKES: dict[str, tuple[Any, tuple[str | int, ...], str]] = {  # name: (file, path, part of the message)
    "not a mapping": ([], (), "must be a mapping of keys, not a list"),
    "an empty file": (None, (), "must be a mapping of keys, not null"),
    "a misspelled key": ({**PLAIN, "reserved_role": []}, ("reserved_role",), 'did you mean "reserved_roles"?'),
    "a strange key": ({**PLAIN, "zzz": 1}, ("zzz",), "known: begin, bos"),
    "a misspelled kind": ({**PLAIN, "kind": "mata"}, ("kind",), 'did you mean "meta"?'),
    "no round": ({"begin": "x"}, (), "`round` is missing"),
    "markers without a source": (
        {**PLAIN, "markers": {"tokens": ["</s>"]}},
        ("markers", "source"),
        "is missing; add it",
    ),
    "markers without tokens": ({**PLAIN, "markers": {"source": "x"}}, ("markers",), "write source: unknown"),
    "tokens of an unknown source": (
        {**PLAIN, "markers": {"source": "unknown", "tokens": ["</s>"]}},
        ("markers", "source"),
        "where they are listed",
    ),
    "a word as a token": (
        {**PLAIN, "markers": {"source": "x", "tokens": ["</s>", "sop"]}},
        ("markers", "tokens", 1),
        "ordinary text",
    ),
    "markers of messages": ({**API, "markers": {"source": "unknown"}}, ("markers",), "makes messages"),
    "a null round": ({"round": None}, (), "`round` is missing"),
    "an empty round": ({"round": []}, ("round",), "is empty"),
    "a round that is no list": ({"round": "HUMAN"}, ("round",), "must be a list, not text"),
    "a number in the round": ({"round": [HUMAN, BOT, 7]}, ("round", 2), "must be a mapping or a text, not a number"),
    "token ids as begin": (human(begin=[1, 2]), ("round", 0, "begin"), "decode token ids"),
    "token ids as end": (human(end=[]), ("round", 0, "end"), "not a list"),
    "a number as begin": (human(begin=5), ("round", 0, "begin"), "put it in quotes"),
    "a mapping as meta begin": ({**PLAIN, "begin": {"role": "SYSTEM"}}, ("begin",), "write the text itself"),
    "a list as meta begin": ({**PLAIN, "begin": ["a"]}, ("begin",), "decode token ids"),
    "a list as meta end": ({**PLAIN, "end": ["a"]}, ("end",), "not a list"),
    "a misspelled role key": (human(bgin="x"), ("round", 0, "bgin"), 'did you mean "begin"?'),
    "a role without a name": ({"round": [{"begin": "x"}, HUMAN, BOT]}, ("round", 0, "role"), "is missing"),
    "an empty name": ({"round": [{"role": ""}, HUMAN, BOT]}, ("round", 0, "role"), "is empty"),
    "a name used twice": ({"round": [HUMAN, BOT, HUMAN]}, ("round", 2, "role"), "defined twice"),
    "a reserved name used twice": (
        {"round": [HUMAN, BOT], "reserved_roles": [HUMAN]},
        ("reserved_roles", 0, "role"),
        "defined twice",
    ),
    "tools without a generating role": (
        {
            "round": [HUMAN, {"role": "BOT"}],
            "roles": {"tool": "HUMAN"},
            "tools": {"parser": "hermes", "declare": {"begin": "TOOLS", "turn": "first_user"}},
        },
        ("tools",),
        "needs a role with generate: true",
    ),
    "two generate": ({"round": [{**HUMAN, "generate": True}, BOT]}, ("round", 1, "generate"), "only one role may"),
    "generate as a word": (human(generate="yes"), ("round", 0, "generate"), "must be true or false"),
    "a reserved role generates": (
        {**PLAIN, "reserved_roles": [{**SYSTEM, "generate": True}]},
        ("reserved_roles", 0, "generate"),
        "move the role into `round`",
    ),
    "text among reserved roles": (
        {**PLAIN, "reserved_roles": ["x"]},
        ("reserved_roles", 0),
        "must be a mapping of keys, not text",
    ),
    "an unknown fallback": (human(fallback_role="BOOT"), ("round", 0, "fallback_role"), 'did you mean "BOT"?'),
    "no role for users": (
        {"round": [{"role": "A"}, BOT]},
        ("round",),
        "no role writes user messages: add a role HUMAN",
    ),
    "no role for assistants": (
        {"round": [HUMAN, {"role": "B", "generate": True}]},
        ("round",),
        "or map another role under `roles: {assistant: …}`",
    ),
    "a mapping to an unknown role": ({**PLAIN, "roles": {"tool": "BOOT"}}, ("roles", "tool"), 'did you mean "BOT"?'),
    "roles as a list": ({**PLAIN, "roles": ["tool"]}, ("roles",), "must be a mapping"),
    "a token id as text": ({**PLAIN, "eos_token_id": "2"}, ("eos_token_id",), "a whole number of 0 or more"),
    "a token id as truth": ({**PLAIN, "eos_token_id": True}, ("eos_token_id",), "a whole number"),
    "a token id with a point": ({**PLAIN, "eos_token_id": 2.0}, ("eos_token_id",), "a whole number of 0 or more"),
    "a token id below zero": ({**PLAIN, "eos_token_id": -1}, ("eos_token_id",), "a whole number of 0 or more"),
    "a number as truth": (human(generate=1), ("round", 0, "generate"), "must be true or false, not a number"),
    "an empty stop": ({**PLAIN, "stop": [""]}, ("stop", 0), "is empty"),
    "a number as stop": ({**PLAIN, "stop": [2]}, ("stop", 0), "must be text, not a number"),
    "a strange bos": ({**PLAIN, "bos": "yes"}, ("bos",), "must be one of none, text, engine"),
    "bos text without its text": ({**PLAIN, "bos": "text"}, ("bos",), "needs bos_text"),
    "bos_text without bos text": ({**PLAIN, "bos_text": "<s>"}, ("bos_text",), "applies only to bos: text"),
    "bos_text that begin lacks": (
        {**PLAIN, "begin": "Hi", "bos": "text", "bos_text": "<s>"},
        ("bos_text",),
        "must be the start of `begin`: write '<s>'",
    ),
    "strange turns": ({**PLAIN, "turns": "openCompass"}, ("turns",), 'did you mean "opencompass"?'),
    "an empty placeholder": ({**PLAIN, "media": ""}, ("media",), "is empty"),
    "api_role for some": (
        {"round": [HUMAN, {**BOT, "api_role": "BOT"}]},
        ("round", 0),
        "role 'HUMAN' has no api_role",
    ),
    "api_role missing in a reserved role": ({**API, "reserved_roles": [SYSTEM]}, ("reserved_roles", 0), "no api_role"),
    "a strange api_role": (
        {"round": [{**HUMAN, "api_role": "user"}, {**BOT, "api_role": "BOT"}]},
        ("round", 0, "api_role"),
        "must be one of HUMAN, BOT, SYSTEM, TOOL",
    ),
    "text in an api round": ({"round": [*API["round"], "x"]}, ("round", 2), "has no role"),
    "a message of another role as begin": (
        {**API, "begin": {"role": "HUMAN", "prompt": "x"}},
        ("begin", "role"),
        "must be SYSTEM",
    ),
    "a round for chat": ({"kind": "chat", "round": []}, ("round",), "unknown key"),
    "a misspelled key for chat": ({"kind": "chat", "stops": []}, ("stops",), 'did you mean "stop"?'),
    "an example without messages": ({**PLAIN, "examples": [{"prompt": "x"}]}, ("examples", 0, "messages"), "needs"),
    "an example that shows nothing": ({**PLAIN, "examples": [Q]}, ("examples", 0), "without `prompt` checks nothing"),
    "sent for a string": ({**PLAIN, "examples": [{**Q, "sent": []}]}, ("examples", 0, "sent"), "write `prompt`"),
    "prompt for messages": ({**API, "examples": [{**Q, "prompt": ""}]}, ("examples", 0, "prompt"), "write `sent`"),
    "a message without role": (
        {**PLAIN, "examples": [{"messages": [{"content": "x"}], "prompt": ""}]},
        ("examples", 0, "messages", 0, "role"),
        "needs a role",
    ),
    "a number as content": (
        {**PLAIN, "examples": [{"messages": [{"role": "user", "content": 2}], "prompt": ""}]},
        ("examples", 0, "messages", 0, "content"),
        "put text in quotes",
    ),
    "a part without type": (
        {**PLAIN, "examples": [{"messages": [{"role": "user", "content": ["x"]}], "prompt": ""}]},
        ("examples", 0, "messages", 0, "content", 0),
        "`type`",
    ),
}


@pytest.mark.parametrize(("raw", "path", "part"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_place_and_a_way_out(raw: Any, path: tuple[str | int, ...], part: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(raw, name="t")
    found = [problem.message for problem in caught.value.problems if problem.path == path]
    assert any(part in message for message in found), caught.value.problems
    assert len(caught.value.problems) == 1


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({"round": [{"role": "HUMAN", "begin": [1]}, {"role": "BOT"}], "bos": 1, "zz": 2}, name="t")
    assert [problem.path for problem in caught.value.problems] == [
        ("zz",),
        ("round", 0, "begin"),
        ("bos",),
    ]
    assert "round.0.begin: must be text" in str(caught.value)


def test_a_whole_file_is_read() -> None:
    raw = {
        "kind": "meta",
        "description": "d",
        "begin": "<s>x",
        "end": None,
        "round": ["-", {**HUMAN, "begin": None, "fallback_role": "BOT"}, {**BOT, "prompt": None}],
        "reserved_roles": [SYSTEM],
        "eos_token_id": 2,
        "roles": {"tool": "SYSTEM"},
        "stop": "###",
        "bos": "text",
        "bos_text": "<s>",
        "turns": "opencompass",
        "media": "<m>",
        "examples": [{**Q, "prompt": "p", "continue_final_message": False}],
    }
    spec = parse_spec(raw, name="n", digest="0123456789ab")
    assert spec.round == (
        "-",
        RoleSpec("HUMAN", "", "<eoh>\n", fallback_role="BOT"),
        RoleSpec("BOT", "<BOT>: ", "<eob>\n", generate=True),
    )
    assert (spec.name, spec.digest, spec.end, spec.stop) == ("n", "0123456789ab", "", ("###",))
    assert (spec.bos, spec.bos_text, spec.turns, spec.media) == ("text", "<s>", "opencompass", "<m>")
    assert spec.examples[0].prompt == "p"
    assert not spec.api


def test_a_pasted_meta_template_needs_nothing_else() -> None:
    assert parse_spec(RESERVED, name="t").reserved_roles == (RoleSpec("SYSTEM", "<SYSTEM>: ", "<eosys>\n"),)


def tried(raw: dict[str, Any], *examples: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    spec: TemplateSpec = parse_spec({**raw, "examples": list(examples)}, name="t")
    return [(problem.path, problem.message) for problem in run_examples(build(spec))]


def test_right_examples_pass() -> None:
    assert tried(PLAIN, {**Q, "prompt": "<HUMAN>: q<eoh>\n<BOT>: "}) == []
    assert tried(API, {**Q, "sent": [{"role": "user", "content": "q"}]}) == []
    assert tried({"kind": "chat"}, {**Q, "sent": Q["messages"]}) == []


def test_a_wrong_example_shows_where_it_parts() -> None:
    [(path, told)] = tried(PLAIN, {**Q, "prompt": "<HUMAN>: q<eoh>\n<BOT>:"})
    assert path == ("examples", 0, "prompt")
    assert told.splitlines() == [
        "the rendered prompt differs from the example at position 22",
        "  expected '<HUMAN>: q<eoh>\\n<BOT>:'",
        "  got      '<HUMAN>: q<eoh>\\n<BOT>: '",
        "  there    '' became ' '",
    ]


def test_an_example_that_opens_an_answer_names_the_missing_key() -> None:
    silent = {**PLAIN, "end": "</s>", "round": [HUMAN, {key: BOT[key] for key in ("role", "begin", "end")}]}
    [(path, told)] = tried(silent, {**Q, "prompt": "<HUMAN>: q<eoh>\n<BOT>: "})
    assert path == ("examples", 0, "prompt")
    assert told == "no role has generate: true, so the prompt ends before '<BOT>: '; add it to the role BOT"


def test_a_wrong_example_of_messages_shows_both() -> None:
    [(path, told)] = tried(API, {**Q, "sent": [{"role": "user", "content": "p"}]})
    assert path == ("examples", 0, "sent")
    assert "'p\"}]' became 'q\"}]'" in told


def test_an_example_that_cannot_be_rendered_says_why() -> None:
    [(path, told)] = tried(PLAIN, {"messages": [{"role": "tool", "content": "x"}], "prompt": ""})
    assert path == ("examples", 0, "messages")
    assert 'no role for "tool"' in told


def test_a_message_of_an_example_that_is_no_mapping_has_one_problem() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**PLAIN, "examples": [{"messages": ["hi"], "prompt": ""}]}, name="t")
    assert [problem.path for problem in caught.value.problems] == [("examples", 0, "messages", 0)]
