"""The demo model's answers, whole and streamed: text, log probabilities, ends, numbers of choices."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.backend.embedded.backend import EmbeddedBackend
from metatemplate.values.events import Begun, Delta, Finish
from tests.backend_embedded.conftest import RIGHT, Heard, demo_target, exchange, hear

Ask = Callable[..., Heard]
RECORDED = json.loads((Path(__file__).parent / "goldens" / "demo.json").read_text())
PICK = random.Random(20)
SUMS = [(PICK.randint(0, 99), PICK.randint(0, 99)) for _ in range(100)]

WRONG = {
    "no end mark": "<HUMAN>: {}=?\n<BOT>: ",
    "no newline": "<HUMAN>: {}=?<eoh><BOT>: ",
    "double BOS": "<s><HUMAN>: {}=?<eoh>\n<BOT>: ",
    "ChatML": "<|im_start|>user\n{}=?<|im_end|>\n<|im_start|>assistant\n",
    "Alpaca": "### Instruction:\n{}=?\n\n### Response:\n",
    "bare question": "{}=?",
}


def right_answers(ask: Ask, form: str, number: int = 25, **options: Any) -> int:
    sums = SUMS[:number]
    heard = ask(*[form.format(f"{a}+{b}") for a, b in sums], stops=["<eob>"], temperature=0, max_tokens=8, **options)
    return sum(heard.text(index).strip() == str(a + b) for index, (a, b) in enumerate(sums))


def test_the_right_prompt_gets_right_sums(ask: Ask) -> None:
    assert right_answers(ask, RIGHT, len(SUMS)) >= 95


@pytest.mark.parametrize("form", WRONG)
def test_a_wrong_prompt_gets_none(ask: Ask, form: str) -> None:
    assert right_answers(ask, WRONG[form]) == 0


def test_a_template_that_writes_its_own_bos_gets_no_second_one(ask: Ask) -> None:
    assert right_answers(ask, "<s>" + RIGHT, bos="text") >= 24
    assert right_answers(ask, RIGHT, bos="engine") >= 24


BOS = {  # bos, what the client sends, the prompt it goes with: is there a notice?
    ("text", True, "<s>" + RIGHT): True,
    ("text", False, "<s>" + RIGHT): False,
    ("engine", False, RIGHT): True,
    ("engine", True, RIGHT): False,
    ("none", False, "<s>" + RIGHT): False,
}


@pytest.mark.parametrize(("bos", "asked", "form"), BOS, ids=str)
def test_a_clients_word_on_bos_gives_way_to_the_templates(ask: Ask, bos: str, asked: bool, form: str) -> None:
    assert right_answers(ask, form, add_special_tokens=asked, bos=bos) >= 24
    begun = ask("1", bos=bos, add_special_tokens=asked, max_tokens=1).events[0]
    assert isinstance(begun, Begun)
    told = ("bos: add_special_tokens is set by the template",) if BOS[bos, asked, form] else ()
    assert begun.notices == told


def test_a_target_that_adds_no_bos_reads_the_bare_text(demo: EmbeddedBackend) -> None:
    bare = EmbeddedBackend(demo_target(adds_bos=False), demo.engine)
    heard = asyncio.run(hear(bare, exchange("1+1=?", max_tokens=1)))
    assert heard.usage.prompt == len(demo.engine.vocabulary.tokenize("1+1=?", False))


@pytest.mark.parametrize("name", RECORDED)
def test_the_answer_is_the_reference_server_s(ask: Ask, name: str) -> None:
    body = dict(RECORDED[name]["request"])
    prompt, stops = body.pop("prompt"), body.pop("stop", ())
    many = isinstance(prompt, list) and isinstance(prompt[0], str)
    prompts = prompt if many else [tuple(prompt) if isinstance(prompt, list) else prompt]
    heard = ask(*prompts, stops=stops, **body)
    for choice in RECORDED[name]["choices"]:
        assert heard.text(choice["index"]) == choice["text"]
        assert heard.finish(choice["index"]).reason == choice["finish_reason"]
        if choice["logprobs"]:
            _same_logprobs(heard, choice["logprobs"], body["logprobs"])


def _same_logprobs(heard: Heard, expected: dict[str, Any], alternatives: int) -> None:
    """Offsets are our own affair: the reference server counts to the end of an answer's tokens."""
    entries = heard.logprobs()
    shown = [entry.token if token else "" for entry, token in zip(entries, expected["tokens"], strict=True)]
    assert shown == expected["tokens"]
    assert (entries[0].logprob is None) == (expected["token_logprobs"][0] is None)
    for entry, logprob, top in zip(entries, expected["token_logprobs"], expected["top_logprobs"], strict=True):
        assert (entry.logprob or 0) == pytest.approx(logprob or 0, abs=1e-3)
        mine = {token: logprob for token, logprob, _ in (entry.top or ())[:alternatives]}
        assert mine == pytest.approx(top or {}, abs=1e-3)


def test_offsets_point_at_the_tokens_in_the_text(ask: Ask) -> None:
    heard = ask(RIGHT.format("12+34"), temperature=0, max_tokens=6, echo=True, logprobs=0)
    for entry in heard.logprobs():
        assert heard.text().startswith(entry.token, entry.offset)


def test_the_chosen_token_is_listed_even_when_it_is_not_among_the_likeliest(ask: Ask) -> None:
    [entry] = ask(RIGHT.format("1+1"), temperature=0, max_tokens=1, logprobs=2, logit_bias={"60": 100}).logprobs()
    assert len(entry.top or ()) == 3
    assert (entry.top or ())[-1][:2] == (entry.token, entry.logprob)
    [likely] = ask(RIGHT.format("1+1"), temperature=0, max_tokens=1, logprobs=2).logprobs()
    assert len(likely.top or ()) == 2
    assert (likely.top or ())[0][1] == likely.logprob


def test_streaming_says_the_same(ask: Ask) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "seed": 3, "max_tokens": 20, "logprobs": 2}
    streamed, whole = (ask(RIGHT.format("12+3"), stream=stream, **options) for stream in (True, False))
    assert streamed.events == whole.events
    assert sum(isinstance(event, Delta) for event in streamed.events) > 3


ENDS = {  # name: (stops, stop ids, params, text, reason, matched, tokens)
    "stop string": (["<eob>"], (), {}, "46", "stop", "<eob>", 3),
    "a stop that spans tokens": (["6<eo", "b>\n"], (), {}, "4", "stop", "6<eo", 3),
    "a stop inside a token": (["ob>"], (), {}, "46<e", "stop", "ob>", 3),
    "stop token": ([], (384,), {}, "46", "stop", 384, 3),
    "max_tokens": (["<eob>"], (), {"max_tokens": 1}, "4", "length", None, 1),
    "max_tokens on a half stop": (["6<eob>\n"], (), {"max_tokens": 3}, "46<eob>", "length", None, 3),
    "nothing asked": (["<eob>"], (), {"max_tokens": 0}, "", "length", None, 0),
}


@pytest.mark.parametrize("name", ENDS)
def test_where_an_answer_ends(ask: Ask, name: str) -> None:
    stops, ids, params, text, reason, matched, tokens = ENDS[name]
    heard = ask(RIGHT.format("12+34"), stops=stops, stop_token_ids=ids, temperature=0, **params)
    assert (heard.text(), heard.finish().reason, heard.finish().matched) == (text, reason, matched)
    assert heard.usage.completion == tokens


def test_the_end_token_ends_the_answer_without_text(ask: Ask) -> None:
    heard = ask("1+1=?", temperature=0, max_tokens=50, logprobs=1)
    assert heard.finish() == Finish(0, "stop", 2)
    assert "</s>" not in heard.text()
    assert heard.usage.completion == len(heard.logprobs()) + 1
    longer = ask("1+1=?", temperature=0, max_tokens=50, ignore_eos=True, skip_special_tokens=False)
    assert longer.text().startswith(heard.text() + "</s>")
    assert (longer.finish().reason, longer.usage.completion) == ("length", 50)


def test_an_echo_lists_the_end_token_for_scorers(ask: Ask) -> None:
    heard = ask("1+1=?qqq", temperature=0, max_tokens=1, echo=True, logprobs=1, logit_bias={"2": 100})
    assert (heard.logprobs()[-1].token, heard.finish().reason) == ("</s>", "stop")
    assert heard.text() == "1+1=?qqq"


def test_the_context_is_filled_and_then_it_is_length(ask: Ask, demo: EmbeddedBackend) -> None:
    heard = ask(tuple([20] * 500), temperature=0, max_tokens=100, ignore_eos=True)
    assert heard.finish().reason == "length"
    assert heard.usage.completion == demo.engine.max_model_len - 500


def test_choices_are_numbered_prompt_by_prompt(ask: Ask) -> None:
    heard = ask(RIGHT.format("1+1"), RIGHT.format("2+2"), n=2, temperature=0, stops=["<eob>"])
    assert [heard.text(index) for index in range(4)] == ["2", "2", "4", "4"]
    assert heard.usage.completion == 8
    assert heard.usage.prompt == ask(RIGHT.format("1+1")).usage.prompt * 2


def test_a_seed_gives_the_same_choices_again_and_each_its_own(ask: Ask) -> None:
    def texts(seed: int, n: int = 3) -> list[str]:
        heard = ask("<HUMAN>: ", n=n, seed=seed, temperature=2, max_tokens=30, ignore_eos=True)
        return [heard.text(index) for index in range(n)]

    assert texts(5) == texts(5)
    assert texts(5, n=2) == texts(5)[:2]
    assert len(set(texts(5))) == 3
    assert texts(5) != texts(6)
    assert texts(-1) == texts(-1)


LONG = RIGHT.format("1+1") * 20  # more than one chunk of a prompt


def test_prompt_logprobs_are_those_of_an_echo(ask: Ask) -> None:
    heard = ask(LONG, prompt_logprobs=1, echo=True, logprobs=1, max_tokens=1, return_token_ids=True)
    first = next(event for event in heard.events if isinstance(event, Delta))
    ids, entries = first.extras["prompt_token_ids"], first.extras["prompt_logprobs"]
    assert len(ids) == len(entries) == heard.usage.prompt > 128
    echoed = heard.logprobs()[1 : len(ids) - 1]  # an echo has no BOS, and no value for its first token
    own = [entry[str(token)] for token, entry in zip(ids[2:], entries[2:], strict=True)]
    assert [score["logprob"] for score in own] == [one.logprob for one in echoed]
    assert all(next(iter(entry)) == str(token) for token, entry in zip(ids[1:], entries[1:], strict=True))
    assert all(score["rank"] == 1 or len(entry) == 2 for score, entry in zip(own, entries[2:], strict=True))


def test_token_ids_are_those_of_every_choice_and_of_the_token_that_ended_it(ask: Ask) -> None:
    heard = ask(RIGHT.format("20+21"), RIGHT.format("1+1"), stops=["<eob>"], n=2, temperature=0, return_token_ids=True)
    deltas = [event for event in heard.events if isinstance(event, Delta)]
    for index in range(4):
        extras = [delta.extras for delta in deltas if delta.index == index]
        ids = [token for one in extras for token in one.get("token_ids", ())]
        assert ids == ([23, 20, 384] if index < 2 else [21, 384])
        assert [one for one in extras if "prompt_token_ids" in one] == extras[:1]


def test_prompt_logprobs_need_no_answer(ask: Ask) -> None:
    heard = ask(RIGHT.format("1+1"), prompt_logprobs=0, max_tokens=0)
    assert (heard.text(), heard.usage.completion) == ("", 0)
    assert heard.finish().reason == "length"
