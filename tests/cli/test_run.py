"""``gateway run``: the verb in this process, against models in this process and a running gateway."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import command, on_a_full_disk
from tests.support.serving import ROOT, Gateway, gateway, write_files
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import gateway_fixture

CONFIG = """\
keys: {file: keys.yaml}
models:
  talk:
    template: sft-demo
    targets: [{speaks: scripted, script: hello.yaml}]
  broken:
    template: chat
    policy: once
    targets: [{speaks: scripted, script: error.yaml}]
"""
FILES = {
    "gateway.yaml": CONFIG,
    "keys.yaml": f'ci: {{sha256: "{"0" * 64}"}}\n',
    "hello.yaml": "[Hello, {finish: stop}, {usage: [7, 2]}]\n",
    "error.yaml": "[{error: upstream_error}]\n",
    "policies/once.yaml": "delivery: {retry: {attempts: 1}}\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, FILES)
    return tmp_path


def write_rows(folder: Path, number: int, model: str = "talk") -> list[str]:
    """Write ``data.jsonl``; returns the ids."""
    ids = [f"row-{n}" for n in range(number)]
    messages = [{"role": "user", "content": "hi"}]
    lines = [json.dumps({"custom_id": one, "model": model, "messages": messages}) for one in ids]
    (folder / "data.jsonl").write_text("\n".join(lines))
    return ids


def output(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]


def manifest(folder: Path) -> Any:
    return json.loads((folder / "out.manifest.json").read_bytes())


RUN = ("run", "data.jsonl", "--out", "out.jsonl")


def test_every_row_has_one_line_with_answer_and_provenance(folder: Path) -> None:
    ids = write_rows(folder, 20)
    ended = command(folder, *RUN)
    assert (ended.returncode, ended.stdout) == (0, b""), ended.stderr
    assert ended.stderr.decode().splitlines() == [
        "20 of 20 rows answered, 0 failed: out.jsonl, out.manifest.json, out.recording.sqlite",
        "notices: default_parameter (20)",
    ]
    lines = output(folder)
    assert sorted(line["custom_id"] for line in lines) == sorted(ids)
    assert {line["response"]["body"]["choices"][0]["message"]["content"] for line in lines} == {"Hello"}
    assert {line["gateway"]["target"] for line in lines} == {"talk/0"}
    results = manifest(folder)["results"]
    assert (results["answered"], results["tokens"]["total_tokens"]) == (20, 180)
    assert manifest(folder)["state"] == "complete"
    (template,) = results["models"]["talk"]["templates"]
    assert manifest(folder)["identity"]["models"]["talk"]["template"] == template


def test_a_second_run_asks_only_for_missing_rows(folder: Path) -> None:
    write_rows(folder, 6)
    command(folder, *RUN)
    lines = (folder / "out.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "out.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:40])  # as a killed run leaves it
    ended = command(folder, *RUN)
    assert ended.returncode == 0, ended.stderr
    assert (folder / "out.jsonl").read_bytes().startswith(b"".join(lines[:3]))
    assert sorted(line["custom_id"] for line in output(folder)) == [f"row-{n}" for n in range(6)]
    assert [(run["rows_before"], run["rows"]) for run in manifest(folder)["runs"]] == [(0, 6), (3, 3)]


PROMPTS: dict[str, tuple[str, list[str], Any]] = {  # what is asked: (variables, arguments, what the answer shows)
    "a question after examples": (
        '{"question": "12+34=?", "answer": "46"}',
        ["--prompt", "sums-few-shot"],
        lambda body: body["choices"][0]["message"]["content"] == "46",
    ),
    "a choice": (
        '{"question": "12+34=?", "A": "45", "B": "46", "C": "47", "D": "56"}',
        ["--prompt", "sums-choice", "--infer", "ppl"],
        lambda body: body["prediction"] == "B",
    ),
    "a dialogue": (
        '{"question": ["1+2=?", "3+4=?"], "answer": ["3", "7"]}',
        ["--prompt", "sums-dialogue", "--infer", "multiturn"],
        lambda body: [turn["content"] for turn in body["gateway"]["turns"]] == ["3", "7"],
    ),
}


@pytest.mark.parametrize(("row", "arguments", "shows"), PROMPTS.values(), ids=PROMPTS)
def test_a_row_can_be_the_variables_of_a_dataset_prompt(
    row: str, arguments: list[str], shows: Callable[[Any], bool], tmp_path: Path
) -> None:
    (tmp_path / "data.jsonl").write_text(row)
    ended = command(tmp_path, *RUN, "--model", "demo", "--config", str(ROOT / "gateway.yaml"), *arguments)
    assert ended.returncode == 0, ended.stderr
    (line,) = output(tmp_path)
    assert shows(line["response"]["body"]), line
    assert line["gateway"]["dataset_prompt"].startswith(f"{arguments[1]}@sha256:")
    assert b"all    1     100.0%" in command(tmp_path, "report", "out.jsonl").stdout


CHANGES: dict[str, tuple[dict[str, tuple[str, str]], list[str], str]] = {
    # file → (text, replacement), further arguments, the change that is reported
    "the data": ({"data.jsonl": ("hi", "ho")}, [], "data_sha256: "),
    "a template": ({"gateway.yaml": ("sft-demo", "chatml")}, [], 'models.talk.template: "sft-demo@sha256:'),
    "a policy": ({"policies/default.yaml": ("", "params: {max_tokens: 9}")}, [], "models.talk.params.max_tokens: 2048"),
    "a field": ({}, ["--param", "seed=1"], "params.seed: null → 1"),
}


@pytest.mark.parametrize(("edits", "arguments", "change"), CHANGES.values(), ids=CHANGES)
def test_a_changed_run_is_refused(
    edits: dict[str, tuple[str, str]], arguments: list[str], change: str, folder: Path
) -> None:
    write_rows(folder, 2)
    command(folder, *RUN)
    before = (folder / "out.jsonl").read_bytes()
    for name, (old, new) in edits.items():
        path = folder / name
        path.write_text(path.read_text().replace(old, new) if path.exists() else new)
    ended = command(folder, *RUN, *arguments)
    assert ended.returncode == 2
    assert f"out.jsonl has 2 rows of a run with other settings:\n  {change}" in ended.stderr.decode()
    assert (folder / "out.jsonl").read_bytes() == before
    ended = command(folder, *RUN, *arguments, "--allow-changes")
    assert ended.returncode == 0
    assert change in manifest(folder)["runs"][-1]["changes"][0]
    assert (folder / "out.jsonl").read_bytes() == before


@pytest.mark.parametrize("custom_id", [r"\u001b[31mrow", "x" * 257])
def test_an_id_of_a_row_is_short_and_cannot_control_a_terminal(custom_id: str, folder: Path) -> None:
    write_rows(folder, 1)
    data = folder / "data.jsonl"
    data.write_text(data.read_text().replace("row-0", custom_id))
    ended = command(folder, *RUN)
    assert (ended.returncode, b"a text of 1 to 256 printable characters" in ended.stderr) == (2, True)


def test_a_failed_row_is_written_once_and_asked_again_on_request(folder: Path) -> None:
    write_rows(folder, 2, "broken")
    ended = command(folder, *RUN, "--retries", "0")
    assert (ended.returncode, ended.stderr[:29]) == (1, b"0 of 2 rows answered, 2 faile")
    assert manifest(folder)["results"]["errors"] == {"upstream_error": 2}
    lines = ended.stderr.decode().splitlines()
    assert lines[1] == "errors: upstream_error (2); out.jsonl contains the error of each failed row"
    assert lines[2].startswith("the first error is row-")
    assert ": upstream_error: " in lines[2]
    (folder / "error.yaml").write_text("[Hi, {finish: stop}]\n")
    assert command(folder, *RUN).returncode == 1
    assert len(output(folder)) == 2
    assert command(folder, *RUN, "--retry-failed").returncode == 0
    assert [line["response"]["status_code"] for line in output(folder)] == [200, 200]


def test_batch_lines_may_ask_several_endpoints(folder: Path) -> None:
    bodies = {
        "/v1/chat/completions": {"model": "talk", "messages": [{"role": "user", "content": "hi"}]},
        "/v1/completions": {"model": "talk", "prompt": "hi"},
        "/v1/render": {"model": "talk", "messages": [{"role": "user", "content": "hi"}]},
    }
    rows = [{"custom_id": url, "method": "POST", "url": url, "body": body} for url, body in bodies.items()]
    (folder / "data.jsonl").write_text("".join([f"{json.dumps(row)}\n" for row in rows]))
    assert command(folder, *RUN).returncode == 0
    found = {line["custom_id"]: line["response"] for line in output(folder)}
    assert [found[url]["status_code"] for url in bodies] == [200, 200, 200]
    assert found["/v1/completions"]["body"]["object"] == "text_completion"
    assert "choices" not in found["/v1/render"]["body"]


REFUSED = {
    "a model that does not exist": (
        ["--model", "tlk"],
        2,
        '--model tlk: no such model (did you mean "talk"?); gateway models lists them',
    ),
    "an unknown role": (["--model", "talk"], 1, "line 1 cannot be rendered: role_not_supported: "),
    "no such file": (["--model", "talk", "--config", "x.yaml"], 3, "x.yaml"),
    "a key without an address": (["--model", "talk", "--key", "env:PATH"], 2, "--key applies only to --base-url"),
    "a key that is not set": (["--base-url", "http://x/v1", "--key", "env:NONE", "--model", "a"], 2, "NONE is not set"),
    "no address": (["--base-url", "localhost:8000", "--model", "a"], 2, "such as http://127.0.0.1:8000/v1"),
    "no address by its other name": (["--url", "localhost:8000", "--model", "a"], 2, "such as http://127.0.0.1:8000"),
    "no gateway": (["--base-url", "http://127.0.0.1:1/v1", "--retries", "0", "--model", "a"], 1, "no gateway answers"),
    "a field without a value": (["--param", "seed"], 2, "expected NAME=VALUE"),
    "no requests at once": (["--concurrency", "0"], 2, "0 is not in the range x>=1"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED.values(), ids=REFUSED)
def test_a_run_that_cannot_work_is_refused_before_its_first_row(
    arguments: list[str], code: int, message: str, folder: Path
) -> None:
    (folder / "data.jsonl").write_text('{"messages": [{"role": "emperor", "content": "hi"}]}')
    ended = command(folder, *RUN, *arguments)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr.decode()
    assert not (folder / "out.jsonl").exists() or not (folder / "out.jsonl").read_bytes()


def test_a_model_that_a_row_misspells_is_refused_with_its_line(folder: Path) -> None:
    write_rows(folder, 2, "tlk")
    ended = command(folder, *RUN)
    assert ended.returncode == 2
    assert b'data.jsonl:1: "tlk": no such model (did you mean "talk"?)' in ended.stderr
    assert not (folder / "out.recording.sqlite").exists()


def test_the_data_file_is_never_the_output(folder: Path) -> None:
    write_rows(folder, 1)
    before = (folder / "data.jsonl").read_bytes()
    assert command(folder, "run", "data.jsonl", "--out", "data.jsonl").returncode == 2
    assert (folder / "data.jsonl").read_bytes() == before


# ---------------------------------------------------------------- over HTTP


HELLO = {"hello.yaml": FILES["hello.yaml"]}
served = gateway_fixture(CONFIG.partition("  broken:")[0].removeprefix("keys: {file: keys.yaml}\n"), HELLO)


def test_a_running_gateway_gives_the_same_lines(folder: Path, served: Gateway) -> None:
    write_rows(folder, 20)
    command(folder, *RUN)
    local = output(folder)
    (folder / "out.jsonl").unlink()
    before = served.metric("gateway_requests_total", endpoint="chat", model="talk", outcome="ok")
    ended = command(folder, *RUN, "--base-url", served.url)
    assert ended.returncode == 0, ended.stderr
    assert (
        b"note: the gateway has not recorded 20 rows of the run out, so gateway report and gateway why have only what "
        b"out.jsonl contains: no prompts, parameters, tools or events. Its notices name what to change\n"
    ) in ended.stderr
    remote = output(folder)
    for line in remote:
        assert line["gateway"]["notices"].pop().startswith("run_not_recorded: out (to record it, set recordings.path")

    def comparable(lines: list[dict[str, Any]]) -> list[Any]:
        for line in lines:
            line["gateway"] |= {"seconds": 0, "overhead_ms": 0}
            line["id"] = line["response"]["request_id"] = ""
            line["response"]["body"] |= {"id": "", "created": 0}
        return sorted(lines, key=lambda line: line["gateway"]["line"])

    assert comparable(remote) == comparable(local)
    assert served.metric("gateway_requests_total", endpoint="chat", model="talk", outcome="ok") == before + 20


@pytest.mark.parametrize("option", ["--url", "--base-url"])
@pytest.mark.parametrize("path", ["", "/v1"], ids=["root", "v1"])
def test_the_address_of_a_gateway_has_either_name_and_either_form(
    option: str, path: str, folder: Path, served: Gateway
) -> None:
    write_rows(folder, 1)
    address = (option, served.root + path)
    for verb in (("ask", "talk", "hi"), ("status",), RUN):
        ended = command(folder, *verb, *address)
        assert ended.returncode == 0, ended.stderr


def test_a_gateway_that_records_knows_the_run_by_its_name(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("recording")
    write_files(place, {**HELLO, "policies/full.yaml": "record: full\n"})
    model = CONFIG.partition("  broken:")[0].removeprefix("keys: {file: keys.yaml}\n")
    config = model.replace("template:", "policy: full\n    template:")
    ids = write_rows(folder, 5)
    with gateway(place, f"recordings: {{path: calls.sqlite}}\n{config}") as recording:
        ended = command(folder, "run", "data.jsonl", "--out", "my run.jsonl", "--base-url", recording.url)
        assert (ended.returncode, b"not recorded" in ended.stderr) == (0, False), ended.stderr
    (place / "scores.jsonl").write_text("".join([f'{{"custom_id": "{one}", "score": 1}}\n' for one in ids]))
    report = json.loads(command(place, "report", "my-run", "--scores", "scores.jsonl", "--json").stdout)
    assert (report["classes"]["whole"], report["score"]["all_rows"]["rows"]) == (5, 5)
    assert json.loads((folder / "my run.manifest.json").read_bytes())["runs"][0]["run"] == "my-run"
    assert not list(folder.glob("*.sqlite"))


def test_a_row_of_a_running_gateway_has_its_score_and_its_bytes(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("scored")
    write_files(place, {**HELLO, "policies/full.yaml": "record: full\n"})
    model = CONFIG.partition("  broken:")[0].removeprefix("keys: {file: keys.yaml}\n")
    config = "recordings: {path: calls.sqlite}\n" + model.replace("template:", "policy: full\n    template:")
    rows = [
        {"custom_id": f"größe {n}", "messages": [{"role": "user", "content": "hi"}], "answer": "Hello"} for n in (1, 2)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = ("run", "data.jsonl", "--model", "talk", "--keep", "answer", "--out")
    with gateway(place, config) as recording:
        assert command(folder, *run, "served.jsonl", "--base-url", recording.url).returncode == 0
    write_files(
        folder, {"gateway.yaml": CONFIG.replace("sft-demo", "chatml"), "hello.yaml": "[Hallo, {finish: stop}]\n"}
    )
    command(folder, *run, "local.jsonl")
    compared = ("why", "served.jsonl", "local.jsonl", "--score", "exact", "--json", "--config", f"{place}/gateway.yaml")
    found = json.loads(command(folder, *compared).stdout)
    assert found["causes"] == {"prompt": {"rows": 2, "score": -1.0}}
    assert [one["recorded"] for one in found["found"]] == [True, True]
    listed = command(folder, "recordings", "--file", f"{place}/calls.sqlite", "--run", "served", "--json").stdout
    rendered = ""  # the first row, for the manifest
    assert {json.loads(line)["row"] for line in listed.splitlines()} == {rendered, "größe 1", "größe 2"}


def test_a_key_is_sent(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("keyed")
    digest = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"  # of "key"
    (place / "keys.yaml").write_text(f'ci: {{sha256: "{digest}"}}\n')
    (place / "hello.yaml").write_text(FILES["hello.yaml"])
    write_rows(folder, 2)
    with gateway(place, CONFIG.partition("  broken:")[0]) as keyed:
        assert b"invalid_api_key" in command(folder, *RUN, "--base-url", keyed.url).stderr
        assert command(folder, *RUN, "--base-url", keyed.url, "--key", "env:KEY", KEY="key").returncode == 0


# ---------------------------------------------------------------- the columns that an engine gets

ANSWER = "the expected answer"
CHAT = {"model": "talk", "messages": [{"role": "user", "content": "hi"}]}
INSIDE = {"model": "talk", "messages": [{"role": "user", "content": "hi", "answer": "42"}]}
IN_PART = {
    "model": "talk",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "answer": "42"}]},
    ],
}
TUNING = {"model": "talk", "messages": [*CHAT["messages"], {"role": "assistant", "content": ANSWER}]}
BATCH = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}

SENT: dict[str, tuple[dict[str, Any], list[str], dict[str, Any]]] = {
    # row, arguments, what the engine gets in addition
    "a kept column": ({**CHAT, "answer": ANSWER}, ["--keep", "answer"], {}),
    "a sent column": ({**CHAT, "answer": ANSWER}, ["--send", "answer"], {"answer": ANSWER}),
    "a column that is kept and sent": (
        {**CHAT, "answer": ANSWER},
        ["--keep", "answer", "--send", "answer"],
        {"answer": ANSWER},
    ),
    "fields of OpenAI's API and of engines": (
        {**CHAT, "seed": 7, "top_k": 3, "min_p": 0.5, "answer": ANSWER},
        ["--keep", "answer"],
        {"seed": 7, "top_k": 3, "min_p": 0.5},
    ),
    "a text": ({"model": "talk", "prompt": "hi", "answer": ANSWER}, ["--keep", "answer"], {}),
    "a kept column in the body of a batch line": (
        {**BATCH, "body": {**CHAT, "answer": ANSWER}},
        ["--keep", "answer"],
        {},
    ),
    "a sent column in the body of a batch line": (
        {**BATCH, "body": {**CHAT, "answer": ANSWER}},
        ["--send", "answer"],
        {"answer": ANSWER},
    ),
    "a sent key of a message": (INSIDE, ["--send", "answer"], {"messages": INSIDE["messages"]}),
    "a parameter": (CHAT, ["--param", "custom=1"], {"custom": 1}),
}
WITHHELD: dict[str, tuple[dict[str, Any], list[str], str]] = {
    # row, arguments, message
    "an expected answer": (
        {**CHAT, "answer": ANSWER},
        [],
        'data.jsonl:1: "answer" is not a field of a request to '
        "/v1/chat/completions, and may be an expected answer; copy it to the output with "
        "--keep answer, or send it with --send answer",
    ),
    "an answer beside a text": ({"model": "talk", "prompt": "hi", "target": "x"}, [], "with --keep target"),
    "a field of another endpoint": ({**CHAT, "input": "x"}, [], "with --keep input"),
    "a field that the gateway never accepts": (
        {**CHAT, "api_key": "k"},
        [],
        "remove it, or only copy it to the output with --keep api_key\n",
    ),
    "labels, which may be a column": ({**CHAT, "metadata": {}}, [], "with --keep metadata, or send it with --send"),
    "an answer in a message": (
        INSIDE,
        [],
        "data.jsonl:1: messages[0].answer is not a known field of a message, and may be an expected "
        "answer; remove it, or send it with --send answer",
    ),
    "an answer as the last message": (TUNING, [], "data.jsonl:1: messages ends with a message of the assistant"),
    "an answer as the last item of an input": (
        {**BATCH, "url": "/v1/responses", "body": {"input": TUNING["messages"]}},
        [],
        "data.jsonl:1: input ends with a message of the assistant",
    ),
    "an answer as the last message of a batch line": ({**BATCH, "body": TUNING}, [], "messages ends with a message"),
    "an answer in a content part": (IN_PART, [], "messages[0].content[0].answer is not a known field"),
    "an answer in a message of a batch line": ({**BATCH, "body": INSIDE}, [], "messages[0].answer is not a known"),
    "an answer in a message that is kept": (INSIDE, ["--keep", "answer"], "messages[0].answer is not a known field"),
    "an answer behind an address with a query": (
        {**BATCH, "url": "/v1/chat/completions?x=1", "body": {**CHAT, "text": ANSWER}},
        [],
        '(did you mean "/v1/chat/completions"?)',
    ),
    "a usual column that is a field of an engine": ({**CHAT, "regex": ANSWER}, [], "with --keep regex, or send it"),
    "a column called url": ({**CHAT, "url": "http://x"}, [], "with --keep url, or send it"),
    "a second column": ({**CHAT, "answer": ANSWER, "level": 5}, ["--keep", "answer"], "with --keep level"),
    "an answer in the body of a batch line": ({**BATCH, "body": {**CHAT, "answer": ANSWER}}, [], "with --keep answer"),
    "an answer in a row of candidates": (
        {"model": "talk", "candidates": {"A": "x"}, "gold": "A"},
        ["--infer", "ppl"],
        "with --keep gold",
    ),
    "an answer in a dialogue": (
        {"model": "talk", "questions": ["x"], "gold": "A"},
        ["--infer", "multiturn"],
        "with --keep gold",
    ),
    "a kept column with a typo": (
        {**CHAT, "top_k": 1},
        ["--keep", "topk"],
        'no row of data.jsonl has the column "topk" (did you mean "top_k"?)',
    ),
    "a sent column that no row has": (CHAT, ["--send", "custom"], "--send custom: no row of data.jsonl has the column"),
    "a kept variable with a typo": (
        {"question": "1+1=?", "answer": "2"},
        ["--model", "talk", "--prompt", "sums", "--keep", "anwser"],
        '(did you mean "answer"?)',
    ),
    "a sent variable": (
        {"question": "1+1=?"},
        ["--model", "talk", "--prompt", "sums", "--send", "question"],
        "--send does not apply",
    ),
}


@pytest.fixture
def beside(up: FaultyUpstream, tmp_path: Path) -> Path:
    """A folder whose model ``talk`` is served by ``up``."""
    target = f'{{speaks: chat, engine: vllm, model: tiny, url: "{up.url("ok")}"}}'
    (tmp_path / "gateway.yaml").write_text(f"models: {{talk: {{template: chat, targets: [{target}]}}}}\n")
    up.requests.clear()
    return tmp_path


@pytest.mark.parametrize(("row", "arguments", "added"), SENT.values(), ids=SENT)
def test_an_engine_gets_fields_and_the_columns_that_are_named(
    row: dict[str, Any], arguments: list[str], added: dict[str, Any], beside: Path, up: FaultyUpstream
) -> None:
    plain = CHAT
    if "prompt" in row:
        plain = {"model": "talk", "prompt": "hi"}
        config = beside / "gateway.yaml"
        config.write_text(config.read_text().replace("speaks: chat", "speaks: completions").replace(": chat", ": base"))
    (beside / "data.jsonl").write_text(json.dumps(row))
    (beside / "plain.jsonl").write_text(json.dumps(plain))
    assert command(beside, "run", "plain.jsonl", "--out", "plain-out.jsonl").returncode == 0
    ended = command(beside, *RUN, *arguments)
    assert ended.returncode == 0, ended.stderr
    bodies = [dict(request.body) for request in up.requests]
    without, sent = [body for body in bodies if "stream" in body]  # the others count tokens
    assert sent == without | added
    assert ANSWER in added.values() or ANSWER not in str(bodies)
    if "--keep" in arguments:
        assert output(beside)[0]["row"] == {"answer": ANSWER}


@pytest.mark.parametrize(("row", "arguments", "message"), WITHHELD.values(), ids=WITHHELD)
def test_a_column_that_nobody_asked_to_send_is_refused_before_the_first_request(
    row: dict[str, Any], arguments: list[str], message: str, beside: Path, up: FaultyUpstream
) -> None:
    (beside / "data.jsonl").write_text(json.dumps(row))
    ended = command(beside, *RUN, *arguments)
    assert ended.returncode == 2, ended.stderr
    assert message in ended.stderr.decode()
    assert not up.requests
    assert not (beside / "out.jsonl").exists()


def test_the_notices_are_counted_by_kind(beside: Path) -> None:
    rows = [{**CHAT, "custom": 1}, {**CHAT, "custom": 2}]
    (beside / "data.jsonl").write_text("".join([f"{json.dumps(row)}\n" for row in rows]))
    ended = command(beside, *RUN, "--send", "custom")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.decode().splitlines()[1:] == ["notices: unverified_parameter (2)"]


def test_a_report_counts_the_classes_and_scores_the_kept_answer(folder: Path) -> None:
    write_files(folder, {"cut.yaml": "[Hel, {finish: length}]\n"})
    models = "models:\n  short: {template: sft-demo, targets: [{speaks: scripted, script: cut.yaml}]}\n"
    write_files(folder, {"gateway.yaml": CONFIG.replace("models:\n", models)})
    rows = [("talk", "Hello"), ("short", "Hello"), ("broken", "Hello")]
    lines = [
        json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], "answer": answer})
        for model, answer in rows
    ]
    (folder / "data.jsonl").write_text("\n".join(lines))
    ended = command(folder, *RUN, "--keep", "answer", "--retries", "0")
    assert b"; gateway report out.jsonl shows them by model\n" in ended.stderr
    assert manifest(folder)["results"]["classes"] == {"whole": 1, "cut by length": 1, "failed": 1}
    ended = command(folder, "report", "out.jsonl", "--score", "exact")
    assert ended.returncode == 0, ended.stderr
    assert b"\nscore (exact): 0.333 (0.000 to 1.000) over all 3 rows\n1.000 " in ended.stdout
    report = json.loads(command(folder, "report", "out.jsonl", "--json").stdout)
    assert report["by"]["model"] == {"talk": {"whole": 1}, "short": {"cut by length": 1}, "broken": {"failed": 1}}


@pytest.mark.parametrize("run", ["out.jsonl", "out.recording.sqlite"])
def test_an_answer_that_stopped_at_its_limit_is_not_whole(run: str, folder: Path) -> None:
    model = ROOT / "demo/model"
    models = f"models:\n  demo: {{template: sft-demo, targets: [{{speaks: embedded, path: {model}}}]}}\n"
    write_files(folder, {"gateway.yaml": CONFIG.replace("models:\n", models)})
    messages = [{"role": "user", "content": "1+1=?"}]  # the demo answers with one token and the end token
    row = {"messages": messages, "max_tokens": 2, "temperature": 0}
    lines = [json.dumps({"model": name, **row}) for name in ("talk", "demo")]
    (folder / "data.jsonl").write_text("\n".join(lines))
    ended = command(folder, *RUN)
    assert b"\nanswers: ended at the limit (1), whole (1); " in ended.stderr, ended.stderr
    report = json.loads(command(folder, "report", run, "--json").stdout)
    assert report["by"]["model"] == {"talk": {"ended at the limit": 1}, "demo": {"whole": 1}}


def test_a_score_is_printed_at_the_end_and_is_no_part_of_the_run(folder: Path) -> None:
    row = {"model": "talk", "messages": [{"role": "user", "content": "hi"}], "answer": "Hello", "other": "Bye"}
    (folder / "data.jsonl").write_text(json.dumps(row))
    scored = (*RUN, "--keep", "answer", "--keep", "other")
    first = command(folder, *scored, "--score", "exact")
    assert first.returncode == 0, first.stderr
    assert b"\nscore (exact): 1.000 (1.000 to 1.000) over all 1 rows\n" in first.stdout
    assert first.stdout == command(folder, "report", "out.jsonl", "--score", "exact").stdout
    identity = manifest(folder)["identity"]
    again = command(folder, *scored, "--score", "regex:(.*)", "--answer", "other")
    assert again.returncode == 0, again.stderr
    assert b"score (regex:(.*)): 0.000" in again.stdout
    assert manifest(folder)["identity"] == identity


def test_a_run_checks_the_form_of_tool_calls_and_its_report_the_tools(folder: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": "x"}'}}
    write_files(folder, {"hello.yaml": json.dumps([{"fields": {"tool_calls": [call]}}, {"finish": "tool_calls"}])})
    write_files(folder, {"gateway.yaml": CONFIG.replace("sft-demo", "chat")})
    tools = [{"type": "function", "function": {"name": "add", "parameters": schema}}]
    row = {"model": "talk", "messages": [{"role": "user", "content": "1+1=?"}], "tools": tools}
    (folder / "data.jsonl").write_text(json.dumps(row))
    ended = command(folder, *RUN)
    assert b"\ntool calls: those of 1 row were checked only for their form; gateway report out.jsonl " in ended.stderr
    results = manifest(folder)["results"]
    assert (results["classes"], results["unchecked_tool_calls"]) == ({"whole": 1}, 1)
    report = json.loads(command(folder, "report", "out.jsonl", "--json").stdout)
    assert (report["classes"]["bad tool call"], report["unchecked_tool_calls"]) == (1, 0)


WRONG_SCORES = {
    "an unknown score": (("--score", "bleu", "--keep", "answer"), "use exact, contains, choice or regex:PATTERN"),
    "a column that is not kept": (("--score", "exact"), "--score compares with the column answer; add --keep answer"),
    "a column without a score": (("--answer", "x"), "--answer applies only to --score"),
}


@pytest.mark.parametrize("case", WRONG_SCORES)
def test_a_score_that_cannot_be_computed_is_refused_before_the_first_request(case: str, folder: Path) -> None:
    arguments, message = WRONG_SCORES[case]
    write_rows(folder, 1)
    ended = command(folder, *RUN, *arguments)
    assert (ended.returncode, message in ended.stderr.decode()) == (2, True), ended.stderr
    assert not (folder / "out.jsonl").exists()


def test_a_row_that_cannot_be_scored_is_refused_before_the_first_request(folder: Path) -> None:
    row = {"model": "talk", "messages": [{"role": "user", "content": "hi"}]}
    rows = [{**row, "answer": "Hello"}, row, {**row, "answer": ["Hello", "Hi"]}, {**row, "answer": " "}]
    (folder / "data.jsonl").write_text("\n".join([json.dumps(one) for one in rows]))
    ended = command(folder, *RUN, "--keep", "answer", "--score", "contains")
    assert ended.returncode == 2
    assert [line.partition("; ")[0] for line in ended.stderr.decode().splitlines()] == [
        "error: data.jsonl has 3 problems",
        'data.jsonl:2: row line-2 has no column "answer"',
        'data.jsonl:3: row line-3: the column "answer" is a list, not a text or a number',
        'data.jsonl:4: row line-4: the column "answer" is empty, and every answer contains an empty text',
    ]
    assert not (folder / "out.jsonl").exists()


def test_a_call_that_stays_text_is_a_bad_tool_call_of_a_run_and_its_report(folder: Path) -> None:
    text = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    model = {"template": "chatml-tools", "targets": [{"speaks": "scripted", "script": "said.yaml"}]}
    (folder / "gateway.yaml").write_text(json.dumps({"models": {"agent": model}}))
    (folder / "said.yaml").write_text(json.dumps([text, {"finish": "stop"}]))
    tools = [{"type": "function", "function": {"name": "add"}}]
    row = {"model": "agent", "messages": [{"role": "user", "content": "1"}], "tools": tools}
    rows = [{**row, "custom_id": "auto"}, {**row, "custom_id": "none", "tool_choice": "none"}]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert command(folder, "run", "data.jsonl", "--out", "out.jsonl").returncode == 0
    assert manifest(folder)["results"]["classes"] == {"bad tool call": 1, "whole": 1}
    ended = command(folder, "report", "out.jsonl", "--json")
    assert json.loads(ended.stdout)["classes"]["bad tool call"] == 1
    (recording,) = folder.rglob("*.sqlite")
    assert json.loads(command(folder, "report", str(recording), "--json").stdout)["classes"]["bad tool call"] == 1


def test_a_report_gives_no_score_over_whole_rows_that_do_not_exist(folder: Path) -> None:
    row = {"model": "broken", "messages": [{"role": "user", "content": "hi"}], "answer": "Hello"}
    (folder / "data.jsonl").write_text(json.dumps(row))
    shown = command(folder, *RUN, "--keep", "answer", "--retries", "0", "--score", "exact").stdout.decode()
    score, whole = shown.splitlines()[-2:]
    assert (score, whole) == ("score (exact): 0.000 (0.000 to 0.000) over all 1 rows", "no row is whole")


def test_a_report_gives_the_score_of_whole_answers_only_if_some_are_not_whole(folder: Path) -> None:
    ask = [{"role": "user", "content": "hi"}]
    rows = [{"model": model, "messages": ask, "answer": "Hello"} for model in ("talk", "broken")]
    for name, ends in {
        "all.jsonl": [" all 1 rows"],
        "some.jsonl": [" all 2 rows", "(easy rows finish more often)"],
    }.items():
        (folder / "data.jsonl").write_text("\n".join([json.dumps(row) for row in rows[: len(ends)]]))
        run = ("run", "data.jsonl", "--out", name, "--keep", "answer", "--retries", "0", "--score", "exact")
        shown = command(folder, *run).stdout.decode().partition("score (exact)")[2].splitlines()
        assert [line.endswith(end) for line, end in zip(shown, ends, strict=True)] == [True] * len(ends)


WRONG_REPORTS = {
    "no such run": (("nothing.jsonl",), "nothing.jsonl: no such file"),
    "no such scores": (("data.jsonl", "--scores", "s.jsonl"), "s.jsonl: No such file or directory"),
    "no rows": (("empty.jsonl", "--score", "exact"), "empty.jsonl has no rows"),
    "no rows as JSON": (("empty.jsonl", "--json"), "empty.jsonl has no rows"),
    "another output": (("data.jsonl",), "data.jsonl:1: this line is not from `gateway run`"),
    "two kinds of scores": (("data.jsonl", "--score", "exact", "--scores", "s"), "too many scores"),
    "an unknown score": (("data.jsonl", "--score", "bleu"), "use exact, contains, choice or regex:PATTERN"),
}


@pytest.mark.parametrize("case", WRONG_REPORTS)
def test_a_report_that_cannot_be_made_is_refused(case: str, folder: Path) -> None:
    arguments, message = WRONG_REPORTS[case]
    (folder / "data.jsonl").write_text('{"messages": []}\n')
    (folder / "empty.jsonl").write_text("")
    ended = command(folder, "report", *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr.decode()


def test_a_run_is_recorded_beside_its_output_and_explained(folder: Path) -> None:
    write_rows(folder, 3)
    ended = command(folder, *RUN)
    assert b"out.jsonl, out.manifest.json, out.recording.sqlite" in ended.stderr
    assert (folder / "out.recording.sqlite").stat().st_mode & 0o777 == 0o600
    (first,) = manifest(folder)["runs"]
    assert (first["run"], first["recording"]) == ("out", "out.recording.sqlite")
    write_files(folder, {"gateway.yaml": CONFIG.replace("sft-demo", "chatml")})
    write_files(folder, {"hello.yaml": "[Hallo, {finish: stop}]\n"})
    command(folder, "run", "data.jsonl", "--out", "other.jsonl")
    found = json.loads(command(folder, "why", "out.jsonl", "other.jsonl", "--json").stdout)
    assert (found["rows"], found["differing"], found["causes"]) == (3, 3, {"prompt": {"rows": 3, "score": 0.0}})
    shown = command(folder, "why", "out.jsonl", "other.jsonl", "--row", "row-1").stdout.decode()
    assert shown.startswith("  prompt: byte 1, template sft-demo@sha256:")
    assert "also differs: sampled tokens: character 1 of the answer" in shown
    assert command(folder, "why", "out.jsonl", "other.jsonl", "--fail-on", "prompt").returncode == 1
    assert (
        command(folder, "why", "out.jsonl", "out.jsonl").stdout
        == b"3 rows in both runs, 0 with another answer or score\n"
    )
    write_rows(folder, 1)
    command(folder, "run", "data.jsonl", "--out", "less.jsonl")
    less = command(folder, "why", "out.jsonl", "less.jsonl", "--row", "row-1")
    assert b"error: row row-1 of out.jsonl has no partner in the other run\n" in less.stderr


def test_a_run_that_goes_on_keeps_its_recorded_rows(folder: Path) -> None:
    write_rows(folder, 3)
    command(folder, *RUN)
    command(folder, *RUN)  # renders the first row again, which is recorded too
    found = json.loads(command(folder, "report", "out.recording.sqlite", "--json").stdout)
    assert (found["rows"], found["classes"]["whole"]) == (3, 3)
    recorded = command(folder, "recordings", "--file", "out.recording.sqlite", "--run", "out", "--json").stdout
    calls = [json.loads(line) for line in recorded.splitlines()]
    assert sorted({call["row"] for call in calls if call["endpoint"] == "chat"}) == ["row-0", "row-1", "row-2"]


def test_a_difference_is_explained_by_facts_that_are_read_for_this_row_only(folder: Path) -> None:
    write_rows(folder, 3)
    command(folder, *RUN)
    write_files(folder, {"hello.yaml": "[Hello, ' you', {finish: stop}]\n"})
    command(folder, "run", "data.jsonl", "--out", "other.jsonl")
    for runs in (("out.jsonl", "other.jsonl"), ("out.recording.sqlite", "other.recording.sqlite")):
        found = json.loads(command(folder, "why", *runs, "--json").stdout)
        assert (found["rows"], len(found["found"])) == (3, 3)
        assert "character 5 of the answer" in found["found"][0]["differences"]["sampled tokens"]


def test_the_recording_of_an_earlier_run_explains_no_other_run(folder: Path) -> None:
    write_rows(folder, 2)
    command(folder, *RUN)
    command(folder, "run", "data.jsonl", "--out", "other.jsonl")
    for name in ("out.jsonl", "out.manifest.json"):
        (folder / name).unlink()
    write_files(folder, {"hello.yaml": "[Hello, ' you', {finish: stop}]\n"})
    command(folder, *RUN, "--no-recording", "--param", "max_tokens=7")
    found = json.loads(command(folder, "why", "other.jsonl", "out.jsonl", "--json").stdout)["found"]
    assert [one["recorded"] for one in found] == [False, False]
    assert "max_tokens" in found[0]["differences"]["parameters"]  # from the manifest
    lines = command(folder, "why", "other.jsonl", "out.jsonl").stdout
    assert b"2 of these rows are not recorded in both runs" in lines


@pytest.mark.parametrize("kind", ["a folder", "a text"])
def test_a_run_that_cannot_be_recorded_is_refused_before_its_first_row(kind: str, folder: Path) -> None:
    write_rows(folder, 1)
    path = folder / "out.recording.sqlite"
    path.mkdir() if kind == "a folder" else path.write_text("no database\n" * 100)
    ended = command(folder, *RUN)
    reason = "Is a directory" if kind == "a folder" else "file is not a database"
    assert (ended.returncode, ended.stderr.decode()) == (
        2,
        f"error: out.recording.sqlite: the run cannot be recorded in this file: {reason}; move it away, or add "
        "--no-recording\n",
    )
    assert not (folder / "out.jsonl").exists()
    assert b"recording" not in command(folder, *RUN, "--no-recording").stderr


def test_calls_that_could_not_be_recorded_are_counted_at_the_end(folder: Path) -> None:
    write_rows(folder, 3)
    command(folder, *RUN)
    (folder / "out.jsonl").unlink()
    with closing(sqlite3.connect(folder / "out.recording.sqlite")) as database:
        refused = "BEFORE INSERT ON calls WHEN new.row = 'row-1' BEGIN SELECT RAISE(FAIL, 'no'); END"
        database.execute(f"CREATE TRIGGER refuse {refused}")
    ended = command(folder, *RUN)
    note = "note: out.recording.sqlite lacks 1 call of this run, because writing failed; the log has the cause"
    assert note in ended.stderr.decode().splitlines()


@pytest.mark.parametrize("way", ["--no-recording", "recordings.run"])
def test_a_run_that_must_not_be_recorded_is_not(way: str, folder: Path) -> None:
    if way == "recordings.run":
        write_files(folder, {"gateway.yaml": f"recordings: {{run: off}}\n{CONFIG}"})
    write_rows(folder, 1)
    ended = command(folder, *RUN, *([way] if way.startswith("-") else []))
    assert (ended.returncode, b"run_not_recorded" in ended.stderr) == (0, False)
    assert not list(folder.glob("*.sqlite"))
    assert manifest(folder)["runs"][0] | {"run": None, "recording": None} == manifest(folder)["runs"][0]


DEMO = f"""\
recordings: {{run: off}}
models:
  demo: {{template: sft-demo, policy: eval, targets: [{{speaks: embedded, path: "{ROOT / "demo/model"}"}}]}}
  talk: {{template: sft-demo, targets: [{{speaks: scripted, script: hello.yaml}}]}}
"""


def test_evidence_is_in_the_output_and_part_of_the_runs_identity(folder: Path) -> None:
    write_files(folder, {"gateway.yaml": DEMO, "policies/eval.yaml": "params: {default: {temperature: 0}}\n"})
    (folder / "data.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "7"}]}))
    evidence = (*RUN, "--model", "demo", "--evidence")
    assert command(folder, *evidence).returncode == 0
    (choice,) = output(folder)[0]["response"]["body"]["choices"]
    assert {len(token["top_logprobs"]) for token in choice["logprobs"]["content"]} == {2}
    assert len(choice["token_ids"]) > 2
    assert manifest(folder)["identity"]["evidence"] is True
    refused = command(folder, *RUN, "--model", "demo")
    assert b"  evidence: true \xe2\x86\x92 null\n" in refused.stderr
    hot = ("--param", "temperature=2", "--param", "seed=2")
    ended = command(folder, *evidence[:3], "hot.jsonl", *evidence[4:], *hot)
    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads(command(folder, "why", "out.jsonl", "hot.jsonl", "--json").stdout)["found"]
    assert found["differences"]["parameters"] == "temperature 0 → 2, seed absent → 2"
    assert found["remark"] in ("near tie", "wide gap")  # from the output files alone


def test_evidence_that_cannot_be_had_is_refused_by_name(folder: Path) -> None:
    write_rows(folder, 1)
    ended = command(folder, *RUN, "--evidence")
    assert ended.returncode == 1
    assert b"upstream_ignored_parameter: the model's server ignored" in ended.stderr
    ended = command(folder, *RUN, "--evidence", "--infer", "ppl")
    assert b"--evidence applies only to --infer gen" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("report", "out.jsonl"),
        ("why", "out.jsonl", "out.jsonl"),
        ("recordings", "--file", "out.recording.sqlite"),
        (*RUN, "--keep", "answer", "--score", "exact"),
    ],
    ids=lambda words: words[0],
)
def test_a_report_on_a_full_disk_is_one_line(words: tuple[str, ...], folder: Path) -> None:
    row = {"model": "talk", "messages": [{"role": "user", "content": "hi"}], "answer": "Hello"}
    (folder / "data.jsonl").write_text(json.dumps(row))
    assert command(folder, *RUN, "--keep", "answer").returncode == 0
    code, err = on_a_full_disk(folder, *words)
    assert (code, err.splitlines()[-1]) == (4, "error: the output cannot be written: No space left on device"), err


def test_a_floor_needs_log_probabilities_of_both_runs(folder: Path) -> None:
    write_rows(folder, 1)
    command(folder, *RUN)
    ended = command(folder, "why", "out.jsonl", "out.jsonl", "--floor", "out.jsonl")
    assert ended.returncode == 2
    assert b"have no log probabilities of the same tokens; run both with gateway run --evidence" in ended.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("--json",), ("--row", "row-0"), ("--fail-on", "prompt"), ("--prove", "talk")], ids=" ".join
)
def test_runs_without_a_common_row_are_not_equal(arguments: tuple[str, ...], folder: Path) -> None:
    for name, system in (("a", "Be short."), ("b", "Be exact.")):
        row = {"model": "talk", "messages": [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]}
        (folder / "data.jsonl").write_text(json.dumps({"custom_id": name, **row}))
        assert command(folder, "run", "data.jsonl", "--out", f"{name}.jsonl").returncode == 0
    ended = command(folder, "why", "a.jsonl", "b.jsonl", *arguments)
    assert ended.returncode == 1
    assert b"no row of the two runs has an equal id or an equal request" in ended.stderr
    assert (b'"rows": 0' if "--json" in arguments else b"0 rows in both runs") in ended.stdout


WRONG_COMPARISONS = {
    "an unknown cause": (
        ("--fail-on", "prompts"),
        "--fail-on prompts: use failed in one run, scoring, dataset row, prompt",
    ),
    "a row that is equal": (("--row", "row-0"), "row row-0: both runs gave the same answer"),
    "no kept answer": (("--score", "exact"), 'row row-0 has no column "answer"'),
}


@pytest.mark.parametrize("case", WRONG_COMPARISONS)
def test_a_comparison_that_cannot_be_made_is_refused(case: str, folder: Path) -> None:
    write_rows(folder, 1)
    command(folder, *RUN)
    arguments, message = WRONG_COMPARISONS[case]
    ended = command(folder, "why", "out.jsonl", "out.jsonl", *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr.decode()
