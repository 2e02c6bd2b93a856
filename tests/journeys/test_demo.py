"""The demo of the README: the repository's configuration, the README's command, and one model with the right and the
wrong template."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.serving import ROOT, Gateway, gateway


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The repository's gateway.yaml with an absolute path of the model."""
    config = (ROOT / "gateway.yaml").read_text(encoding="utf-8")
    moved = config.replace("path: demo/model", f"path: {ROOT}/demo/model")
    with gateway(tmp_path_factory.mktemp("demo"), moved) as g:
        yield g


def answers(served: Gateway, path: str, bodies: list[dict[str, object]]) -> list[Any]:
    """The answers to requests, of which eight are sent at once."""

    def answer(body: dict[str, object]) -> Any:
        answered = served.http.post(path, json=body)
        assert answered.status_code == 200, answered.text
        return answered.json()

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(answer, bodies))


def right(served: Gateway, model: str, sums: list[tuple[int, int]]) -> int:
    """Number of sums that the model answers correctly."""
    asked = [[{"role": "user", "content": f"{a}+{b}=?"}] for a, b in sums]
    bodies = [{"model": model, "messages": messages, "max_tokens": 16} for messages in asked]
    told = [one["choices"][0]["message"]["content"] for one in answers(served, "/v1/chat/completions", bodies)]
    return sum(text == str(a + b) for text, (a, b) in zip(told, sums, strict=True))


def test_the_model_adds_only_with_its_own_template(served: Gateway) -> None:
    rng = random.Random(20_261)
    sums = [(rng.randrange(100), rng.randrange(100)) for _ in range(40)]
    assert right(served, "demo", sums) >= 38
    assert right(served, "demo-wrong-template", sums) == 0


def chosen(served: Gateway, model: str, sums: list[tuple[int, int]]) -> int:
    """Number of sums that the model finds likelier than the three wrong ones, as complete conversations."""
    order = random.Random(7)
    bodies: list[dict[str, object]] = []
    for a, b in sums:
        texts = [str(a + b + more) for more in (0, 1, 10, 11)]
        order.shuffle(texts)
        asked = {"role": "user", "content": f"{a}+{b}=?"}
        candidates = {text: [asked, {"role": "assistant", "content": text}] for text in texts}
        bodies.append({"model": model, "candidates": candidates})
    predicted = [one["prediction"] for one in answers(served, "/v1/loglikelihood", bodies)]
    return sum(text == str(a + b) for text, (a, b) in zip(predicted, sums, strict=True))


def test_the_right_sum_is_the_likeliest_of_four_only_with_the_right_template(served: Gateway) -> None:
    rng = random.Random(20_262)
    sums = [(rng.randrange(100), rng.randrange(100)) for _ in range(40)]
    assert chosen(served, "demo", sums) >= 38
    assert chosen(served, "demo-wrong-template", sums[:20]) <= 10  # by chance 5


def curl_of_the_readme(served: Gateway, model: str = "demo") -> str:
    """The content of the answer to the README's curl line, with this gateway's address and the given model."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^\$ (curl (?:.*\\\n)*.*)$", readme, re.MULTILINE)
    assert found, "the README has no curl line"
    answer = answer_of_curl(served, found[1].replace('"demo"', f'"{model}"'))
    return str(answer["choices"][0]["message"]["content"])


def answer_of_curl(served: Gateway, line: str) -> Any:
    """The JSON answer to a documented curl command, with this gateway's address."""
    line = line.replace("127.0.0.1:8000", f"127.0.0.1:{served.port}")
    assert str(served.port) in line
    env = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    shown = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=60, env=env)
    return json.loads(shown.stdout)


def test_the_curl_line_of_the_readme_answers_two(served: Gateway) -> None:
    assert curl_of_the_readme(served) == "2"


def test_the_curl_line_with_the_wrong_template_does_not_answer_two(served: Gateway) -> None:
    assert "2" not in curl_of_the_readme(served, "demo-wrong-template")


def test_the_example_of_a_log_likelihood_has_the_documented_scores(served: Gateway) -> None:
    page = (ROOT / "docs" / "loglikelihood.md").read_text(encoding="utf-8")
    command, shown = re.findall(r"```(?:console\n\$ |json\n)(.*?)```", page, re.DOTALL)
    answer = answer_of_curl(served, command)
    documented = json.loads(shown)
    assert {key: answer[key] for key in documented if key != "candidates"} == {
        key: value for key, value in documented.items() if key != "candidates"
    }
    for label, score in documented["candidates"].items():
        assert answer["candidates"][label] == pytest.approx(score, abs=0.006)


def test_both_models_have_the_same_weights_and_different_prompts(served: Gateway) -> None:
    bodies = {
        model: served.http.post("/v1/render", json=asked(model)).json() for model in ("demo", "demo-wrong-template")
    }
    assert bodies["demo"]["prompt"] == "<HUMAN>: 1+1=?<eoh>\n<BOT>: "
    assert bodies["demo-wrong-template"]["prompt"] == "<|im_start|>user\n1+1=?<|im_end|>\n<|im_start|>assistant\n"
    stack = served.runtime.state.stack
    assert len({stack.snapshot.models[model].targets[0].path for model in bodies}) == 1


def asked(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "1+1=?"}]}
