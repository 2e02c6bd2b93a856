"""What a dataset prompt becomes for each kind of model template."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly import PromptParts, bare_route
from gateway.calls.preparation.prepare import Prepared, prepare
from gateway.config.snapshot import ModelSpec, PolicySpec, TargetSpec
from gateway.core.errors import MediaNotAllowed, MediaNotSupported, RequestError
from gateway.wire.requests import read_chat, read_completion
from metatemplate.datasets.prompt import DatasetPrompt
from metatemplate.datasets.validation import parse_prompt
from metatemplate.files.template import parse_spec
from metatemplate.files.template_file import BUILT_IN
from metatemplate.templates.spec import TemplateSpec

ROUND = [
    {"role": "HUMAN", "begin": "<H>", "end": "</H>"},
    {"role": "BOT", "begin": "<B>", "end": "</B>", "generate": True},
]
API_ROUND = [{"role": "HUMAN", "api_role": "HUMAN"}, {"role": "BOT", "api_role": "BOT", "generate": True}]
JINJA = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
MODELS: Mapping[str, TemplateSpec] = {
    "meta": parse_spec({"begin": "BEGIN ", "round": ROUND}, name="meta"),
    "opencompass": parse_spec({"turns": "opencompass", "round": ROUND}, name="opencompass"),
    "api": parse_spec({"round": API_ROUND, "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}]}, name="api"),
    "api without system": parse_spec({"round": API_ROUND}, name="bare"),
    "jinja": parse_spec({"kind": "jinja", "template": JINJA}, name="jinja"),
    "chat": BUILT_IN,
}
SYSTEM = {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Solve."}
HUMAN, BOT = {"role": "HUMAN", "prompt": "{q}"}, {"role": "BOT", "prompt": "Answer: {a}"}
PROMPTS: Mapping[str, Any] = {
    "text": {"prompt_template": {"template": "Q: {q}"}},
    "dialogue": {"prompt_template": {"template": {"begin": [SYSTEM], "round": [HUMAN, BOT]}}, "output_column": "a"},
    "loose text": {"prompt_template": {"template": {"begin": ["Solve."], "round": [HUMAN, BOT]}}, "output_column": "a"},
    "own frame": {"prompt_template": {"template": {"round": [{**HUMAN, "begin": "(", "end": ")"}]}}},
    "other role": {"prompt_template": {"template": {"round": [{"role": "JUDGE", "prompt": "{q}"}]}}},
    "messages": {"prompt_template": {"messages": [{"role": "system", "content": "Solve."},
                                                  {"role": "user", "content": "{q}"}]}},
    "parts": {"prompt_template": {"template": {"round": [{"role": "HUMAN", "prompt_mm": {
        "text": {"type": "text", "text": "{question}"},
        "image": {"type": "image_url", "image_url": {"url": "{image}"}}}}]}}},
    "picture": {"prompt_template": {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://example.com/{q}.png"}}]}]}},
    "exact messages": {"prompt_template": {"messages": [{"role": "user", "content": "{q}"}]}, "output_column": "a",
                       "fill": "opencompass"},
    "answered messages": {"prompt_template": {"messages": [{"role": "user", "content": "{q} {a}"}]},
                          "output_column": "a"},
    "unnamed": {"prompt_template": {"template": "Q: {q}\nA: {a}"}},
    "unnamed earlier turn": {"input_columns": ["q"], "prompt_template": {"messages": [
        {"role": "user", "content": "{q}"}, {"role": "assistant", "content": "{a}"},
        {"role": "user", "content": "Explain."}]}},
    "unnamed in a value": {"input_columns": ["q"], "prompt_template": {"template": "Q: {q}"}, "fill": "opencompass"},
    "few-shot": {"ice_template": {"template": "</E>{q}={a};", "ice_token": "</E>"}, "output_column": "a"},
}  # fmt: skip


def prepared(
    template: TemplateSpec, prompt: str, variables: Mapping[str, Any], path: str = "chat", **further: Any
) -> Prepared:
    prompts = {prompt: DatasetPrompt(parse_prompt(PROMPTS[prompt], name=prompt, rows=lambda name: ()))}
    target = TargetSpec("m/0", "scripted")
    route = bare_route(ModelSpec("m", template, PolicySpec("p"), (target,)), PromptParts(prompts))
    body = {
        "model": "m",
        "max_tokens": 5,
        "gateway": {"prompt": {"id": prompt, "variables": dict(variables), **further}},
    }
    read = read_chat if path == "chat" else read_completion
    return asyncio.run(prepare(route, read(body, request_id="r")))


SENT: Mapping[tuple[str, str], Any] = {
    ("meta", "text"): "Q: 1+1=?",
    ("meta", "dialogue"): "BEGIN <H>Solve.</H><H>1+1=?</H><B>",
    ("meta", "own frame"): "BEGIN (1+1=?)<B>",
    ("meta", "loose text"): "BEGIN Solve.<H>1+1=?</H><B>",
    ("meta", "messages"): "BEGIN <H>Solve.</H><H>1+1=?</H><B>",
    ("opencompass", "dialogue"): "<H>Solve.</H><H>1+1=?</H><B>",
    ("jinja", "text"): "[user]Q: 1+1=?[assistant]",
    ("jinja", "dialogue"): "[system]Solve.[user]1+1=?[assistant]",
    ("jinja", "messages"): "[system]Solve.[user]1+1=?[assistant]",
    ("chat", "text"): [("user", "Q: 1+1=?")],
    ("chat", "dialogue"): [("system", "Solve."), ("user", "1+1=?")],
    ("api", "dialogue"): [("system", "Solve."), ("user", "1+1=?")],
    ("api without system", "dialogue"): [("user", "Solve.\n1+1=?")],
    ("api", "text"): [("user", "Q: 1+1=?")],
}


@pytest.mark.parametrize(("model", "prompt"), SENT)
def test_a_prompt_is_written_as_the_model_needs_it(model: str, prompt: str) -> None:
    made = prepared(MODELS[model], prompt, {"q": "1+1=?"}).exchange
    sent = made.prompts[0] if made.prompts else [(m["role"], m["content"]) for m in made.messages]
    assert sent == SENT[model, prompt]


def test_completions_get_the_same_text_and_stops() -> None:
    template = parse_spec({"round": ROUND, "stop": ["</B>"]}, name="t")
    chat, raw = (prepared(template, "dialogue", {"q": "1"}, path).exchange for path in ("chat", "completions"))
    assert (raw.prompts, raw.stops) == (chat.prompts, chat.stops) == (("<H>Solve.</H><H>1</H><B>",), ("</B>",))


def test_notices_name_what_the_model_does_not_get() -> None:
    made = prepared(MODELS["meta"], "dialogue", {"q": "1"})
    assert [str(notice) for notice in made.notices if notice.rule == "dropped_turn"] == ["dropped_turn: prompt[2]"]
    made = prepared(MODELS["meta"], "text", {})
    assert [str(notice) for notice in made.notices if notice.rule == "unfilled_column"] == ["unfilled_column: text: q"]


def test_a_notice_names_an_answer_inside_the_prompt() -> None:
    """The file asks for OpenCompass's bytes, which contain the answer if a value contains the column in braces."""
    row = {"q": "What is {a}?", "a": "2"}
    made = prepared(MODELS["chat"], "exact messages", row)
    assert made.exchange.messages == ({"role": "user", "content": "What is 2?"},)
    assert [str(notice) for notice in made.notices if notice.rule == "answer_in_prompt"] == [
        "answer_in_prompt: exact messages: a"
    ]
    made = prepared(MODELS["chat"], "answered messages", row)
    assert made.exchange.messages == ({"role": "user", "content": "What is {a}? "},)
    assert not [notice for notice in made.notices if notice.rule == "answer_in_prompt"]


@pytest.mark.parametrize("prompt", ["unnamed", "unnamed earlier turn", "unnamed in a value"])
def test_a_notice_names_a_possible_answer_without_an_answer_column(prompt: str) -> None:
    made = prepared(MODELS["chat"], prompt, {"q": "Is it {a}?", "a": "GOLD42"})
    assert f"answer_in_prompt: {prompt}: a" in [str(notice) for notice in made.notices]
    assert "GOLD42" in str(made.exchange.messages)
    made = prepared(MODELS["chat"], prompt, {"q": "1+1=?"})
    assert not [notice for notice in made.notices if notice.rule == "answer_in_prompt"]


EXAMPLES: Mapping[str, tuple[dict[str, Any], list[str]]] = {
    "the file has none": ({}, ["no_examples: few-shot"]),
    "the request wants none": ({"examples": []}, []),
    "the request has one": ({"examples": [{"q": "1", "a": "1"}]}, []),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_notice_names_a_few_shot_prompt_without_examples(name: str) -> None:
    further, expected = EXAMPLES[name]
    made = prepared(MODELS["meta"], "few-shot", {"q": "2"}, **further)
    assert [str(notice) for notice in made.notices if notice.rule == "no_examples"] == expected


def test_the_segments_name_the_entry_of_the_prompt() -> None:
    prompt = prepared(MODELS["meta"], "dialogue", {"q": "1"}).prompt
    assert prompt is not None
    origins = [(s.text, s.origin) for s in prompt.segments or () if not s.scaffold]
    assert origins == [("Solve.", "prompt[0]"), ("1", "prompt[1]")]


def test_media_in_variables_obey_the_policy() -> None:
    tagged = "<AIS_TEXT_START>What?<AIS_CONTENT_TAG><AIS_IMAGE_START>{}<AIS_CONTENT_TAG>"
    made = prepared(MODELS["chat"], "parts", {"content": tagged.format("https://example.com/b.png")})
    assert made.exchange.messages == (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What?"},
                {"type": "image_url", "image_url": {"url": "https://example.com/b.png"}},
            ],
        },
    )
    for model in ("chat", "api"):
        with pytest.raises(MediaNotAllowed):
            prepared(MODELS[model], "parts", {"content": tagged.format("file:///etc/passwd")})
    with pytest.raises(MediaNotSupported):
        prepared(MODELS["meta"], "parts", {"content": tagged.format("https://example.com/b.png")})


# (model, prompt): message
REFUSED = {
    ("chat", "loose text"): "prompt[0] of the dataset prompt is a text without a role, which cannot be sent "
    "as a message; give the text a role",
    ("meta", "other role"): "prompt[0] of the dataset prompt: the meta template does not define "
    'role "JUDGE" (template meta); add the role, or give the turn another role or a fallback_role',
    (
        "meta",
        "picture",
    ): "the messages of prompt picture: messages[0].content[0]: this model accepts only text: send "
    "parts of type text, not image_url (the template has no key `media`)",
}


@pytest.mark.parametrize(
    ("model", "prompt", "path"),
    [(*case, path) for case in REFUSED for path in ("chat", "completions") if case[0] != "chat" or path == "chat"],
)
def test_a_prompt_that_the_model_cannot_get_is_refused(model: str, prompt: str, path: str) -> None:
    with pytest.raises(RequestError) as caught:
        prepared(MODELS[model], prompt, {"q": "1"}, path)
    assert (caught.value.param, caught.value.message) == ("gateway.prompt", REFUSED[model, prompt])


def test_the_repository_ships_prompts_with_right_examples() -> None:
    from gateway.config.load import load

    root = Path(__file__).resolve().parent.parent.parent
    assert set(load(root / "gateway.yaml", {}).prompts) >= {"sums", "sums-few-shot", "sums-choice", "sums-dialogue"}
