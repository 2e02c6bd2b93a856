"""The rows of a harness and the calls of a real gateway."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from gateway.evaluate.analysis.recordings import read_recording
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.scores.join import JoinedRun, joined
from gateway.evaluate.scores.read import HarnessScores, read_harness
from gateway.evaluate.scores.row import ScoredRow, requests_of
from gateway.storage.recordings import open_recording
from tests.evaluate.scores.test_read import SAMPLES
from tests.support.harnesses.sums import sums
from tests.support.serving import ROOT, Gateway, gateway

CONFIG = """\
recordings: {path: calls.sqlite}
models:
  demo: {template: sft-demo, policy: full, targets: [{speaks: embedded, path: model}]}
  judge: {template: sft-demo, policy: full, targets: [{speaks: embedded, path: model}]}
  talk: {template: sft-demo, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
  broken: {template: chat, policy: full, targets: [{speaks: scripted, script: error.yaml}]}
"""
FILES: dict[str, str | Path] = {
    "policies/full.yaml": "record: full\nparams: {unknown: forward, default: {temperature: 0}}\n"
    "delivery: {retry: {attempts: 1}}\n",
    "hello.yaml": "[Hello, {finish: stop}]\n",
    "error.yaml": "[{error: upstream_error}]\n",
    "model": ROOT / "demo/model",
}
QUESTIONS = [f"{a}+{b}=?" for a, b in sums(6)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("scores"), CONFIG, files=FILES) as running:
        yield running


class Calls:
    """The calls of one run."""

    def __init__(self, served: Gateway, run: str) -> None:
        self._served, self._headers = served, {"x-gateway-run": run}
        self.run = run

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self._served.http.post(f"/v1/{path}", json=body, headers=self._headers)
        found: dict[str, Any] = answer.json()
        return found

    def ask(self, text: str, model: str = "demo") -> str:
        """Ask a question. Returns the id of the response."""
        messages = [{"role": "user", "content": text}]
        return str(self.post("chat/completions", model=model, messages=messages).get("id"))

    def joined(self, scores: HarnessScores) -> JoinedRun:
        """The joined rows, with their facts."""
        assert self._served.wait_until_idle()
        for recorder in self._served.runtime.resources.recorders.values():
            recorder.flush().result()
        with ExitStack() as files:
            file = files.enter_context(closing(open_recording(self._served.folder / "calls.sqlite")))
            found = joined(read_recording(file, self.run), scores)
            return replace(found, rows=[row.with_facts() for row in found.rows])


@pytest.fixture
def calls(served: Gateway, request: pytest.FixtureRequest) -> Calls:
    return Calls(served, re.sub("[^a-z-]", "-", request.node.name)[:64])


def rows(*rows: ScoredRow) -> HarnessScores:
    return HarnessScores(list(rows))


def row(number: int, text: str, answer: str = "", ids: Sequence[str] = (), score: float = 1.0) -> ScoredRow:
    return ScoredRow(f"h:t/{number}", {}, requests_of([text], [answer], ids), score)


def texts(found: Sequence[RunRow]) -> list[str]:
    return [answer.text for one in found for answer in one.answers]


@pytest.mark.parametrize("sample", ["lm-eval-chat", "evalscope", "ais-bench", "opencompass"])
def test_rows_are_joined_by_the_text_of_the_client(sample: str, calls: Calls) -> None:
    for question in reversed(QUESTIONS):
        calls.ask(question)
    calls.ask(QUESTIONS[0])  # a warm-up
    calls.ask("Is 136 right?", "judge")
    found = calls.joined(read_harness(SAMPLES / sample))
    assert found.left == {"demo": 1, "judge": 1}
    assert [one.error for one in found.rows] == [""] * 6
    assert sum([one.points or 0.0 for one in found.rows]) == 5
    for one in found.rows:
        number = int(one.custom_id.rpartition("/")[2])
        assert one.facts.asked == {"messages": [{"role": "user", "content": QUESTIONS[number]}]}


@pytest.mark.parametrize("kind", ["loglikelihood", "chat-template"])
def test_all_choices_of_a_loglikelihood_belong_to_the_row(kind: str, calls: Calls) -> None:
    sample = SAMPLES / f"lm-eval-{kind}"
    tokenizer = Tokenizer.from_file(str(ROOT / "demo/model/tokenizer.json"))
    for line in next(sample.iterdir()).read_text().splitlines():
        for one in json.loads(line)["arguments"].values():
            text = one["arg_0"] + one["arg_1"]
            prompt = text if kind == "loglikelihood" else [tokenizer.encode(text, add_special_tokens=False).ids]
            asked = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
            assert "error" not in calls.post("completions", model="demo", **asked)
    found = calls.joined(read_harness(sample))
    assert (found.left, [len(one.steps) for one in found.rows]) == ({}, [4] * 6)
    assert {one.answers for one in found.rows} == {()}
    if kind == "loglikelihood":
        choices = ["146", "136", "147", "137"]
        assert [(one.prompt or "").rpartition(" ")[2] for one in found.rows[0].steps] == choices


@pytest.mark.parametrize("sample", ["inspect-ai", "promptfoo"])
def test_the_id_of_a_response_comes_before_the_text(sample: str, calls: Calls, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / sample, tmp_path, dirs_exist_ok=True)
    (file,) = tmp_path.iterdir()
    scores, text = read_harness(file).rows, file.read_text()
    for question, scored in zip(reversed(QUESTIONS), scores, strict=True):  # another text than in the file
        text = text.replace(str(scored.requests[0][0]), calls.ask(question).removeprefix("chatcmpl-"))
    file.write_text(text)
    found = calls.joined(read_harness(file))
    asked = [one.facts.asked["messages"][0]["content"] for one in found.rows if one.facts.asked]
    assert (asked, found.left) == (QUESTIONS[::-1], {})


def test_the_attempt_that_the_harness_scored_is_the_one_with_its_answer(calls: Calls) -> None:
    for model in ("broken", "talk", "demo", "talk"):
        calls.ask(QUESTIONS[0], model)
    found = calls.joined(rows(row(0, f" {QUESTIONS[0]}\n", "136"), row(1, QUESTIONS[0], "Hello")))
    assert (texts(found.rows), found.left) == (["136", "Hello"], {"broken": 1, "talk": 1})


def test_without_an_equal_answer_calls_are_taken_in_their_order_and_failed_ones_last(calls: Calls) -> None:
    for model in ("broken", "talk", "demo"):
        calls.ask(QUESTIONS[0], model)
    found = calls.joined(rows(*[row(number, QUESTIONS[0], "cut by the harness") for number in range(4)]))
    assert [one.error for one in found.rows] == ["", "", "upstream_error", "no_call"]
    assert (texts(found.rows), found.left) == (["Hello", "136"], {})
    assert found.as_json()["rows_without_call"] == 1


def test_of_more_answers_than_rows_the_last_ones_count(calls: Calls) -> None:
    for model in ("demo", "talk", "demo", "broken"):
        calls.ask(QUESTIONS[0], model)
    found = calls.joined(rows(*[row(number, QUESTIONS[0], "changed by the harness") for number in range(2)]))
    assert (texts(found.rows), found.left) == (["Hello", "136"], {"demo": 1, "broken": 1})


# the answer in the file of the harness: whether it is the recorded one
ANSWERS = {
    "136": True,
    "1 + 64 is": False,
    "": None,
    "36": True,
    "<think>72+64</think>\n136": True,
    f"{'1' * 90}136": True,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_of_another_run_is_noticed(answer: str, calls: Calls) -> None:
    calls.ask(QUESTIONS[0])
    found = calls.joined(rows(row(0, QUESTIONS[0], answer), row(1, QUESTIONS[1], "no call")))
    assert found.recorded == Counter([ANSWERS[answer], None])
    assert calls.joined(rows(row(0, QUESTIONS[0], answer, ["another"]))).recorded == Counter(
        [False if answer else None]
    )


def test_a_row_whose_text_was_not_asked_has_no_call(calls: Calls) -> None:
    calls.ask(QUESTIONS[0])
    found = calls.joined(rows(row(0, QUESTIONS[1], "136"), row(1, "", "136")))
    assert [(one.error, one.points) for one in found.rows] == [("no_call", 1.0)] * 2
    assert found.left == {"demo": 1}


def test_ids_alone_are_enough(calls: Calls) -> None:
    ids = [calls.ask(question) for question in QUESTIONS[:2]]
    found = calls.joined(rows(ScoredRow("h:t/0", {}, requests_of(["what the harness shows"], [], ids), 1.0)))
    assert (texts(found.rows), found.left) == (["136", "110"], {})


def test_a_row_of_several_turns_has_all_its_calls(calls: Calls) -> None:
    first, second = QUESTIONS[:2]
    calls.ask(first)
    dialogue = [("user", first), ("assistant", "136"), ("user", second)]
    messages = [{"role": role, "content": text} for role, text in dialogue]
    calls.post("chat/completions", model="demo", messages=messages)
    scored = ScoredRow("h:t/0", {}, requests_of([first, f"{first} 136 {second}"], ["136", "110"]), 0.5)
    (found,) = calls.joined(rows(scored)).rows
    assert (len(found.steps), len(found.answers), found.points) == (2, 2, 0.5)
