"""``gateway view``: a real process, asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import command
from tests.journeys.process import environment
from tests.support.serving import WAIT_SECONDS, eventually

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"
RUN_A, RUN_B = "a<b>&'\".jsonl", "b.jsonl"
ROWS = 120


def line(number: int, text: str, model: str, finish: str = "stop", error: str = "") -> str:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    response = {"status_code": 200, "request_id": f"req_{number}", "body": {"choices": [choice]}}
    return json.dumps(
        {
            "custom_id": f"row-{number}{HOSTILE}",
            "response": None if error else response,
            "error": {"code": error, "message": "failed"} if error else None,
            "gateway": {"line": number, "seconds": 0.01 * number, "model": model, "prompt_sha256": "p"},
            "row": {"answer": "42"},
        }
    )


def write_runs(folder: Path) -> None:
    """Two runs. In the second one, every fourth row has another answer."""
    a = [line(n, f"{HOSTILE}" if n % 3 else "42", f"m{n % 2}{HOSTILE}") for n in range(ROWS)]
    a += [line(ROWS, "", "m0"), line(ROWS + 1, "4", "m0", "length"), line(ROWS + 2, "", "m1", error="timeout")]
    b = [line(n, f"{HOSTILE}!" if n % 4 == 0 or n % 3 else "42", f"m{n % 2}") for n in range(ROWS)]
    for name, lines in ((RUN_A, a), (RUN_B, b)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def viewing(folder: Path, *arguments: str, browser: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running ``gateway view``, and the address that it prints. ``browser``: the command that opens an address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "view", *arguments, *([] if browser else ["--no-browser"])],
        cwd=folder,
        env=environment(BROWSER=browser),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        printed = process.stderr.readline()
        found = re.search(r"http://\S+", printed)
        assert found, printed
        yield process, found[0]
    finally:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)


def client(url: str, **headers: str) -> httpx.Client:
    return httpx.Client(
        base_url=url.partition("/viewer")[0], headers=headers, timeout=60, trust_env=False, verify=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view")
    write_runs(folder)
    return folder


@pytest.fixture(scope="module")
def two(folder: Path) -> Iterator[httpx.Client]:
    """A browser that has opened the address of two runs."""
    with viewing(folder, RUN_A, RUN_B, "--score", "exact") as (_, url), client(url) as browser:
        assert browser.get(url).status_code == 303
        yield browser


def links(page: str) -> Sequence[str]:
    return re.findall(r'href="(/viewer/runs[^"]*)"', page.replace("&amp;", "&"))


def test_the_token_in_the_address_signs_in_one_browser(folder: Path) -> None:
    with viewing(folder, RUN_A) as (_, url), client(url) as browser, client(url) as stranger:
        for address in (url.partition("?")[0], re.sub("token=.*", "token=guessed", url), "/viewer/runs"):
            refused = stranger.get(address)
            assert "open the address that gateway serve or gateway view has printed" in refused.text
            assert RUN_A not in refused.text.replace("&lt;", "<")
        assert "set-cookie" not in browser.head(url).headers, "what previews links does not use up the token"
        first = browser.get(url)
        assert first.status_code == 303
        assert first.headers["location"] == re.sub("&token=.*", "", url.removeprefix(str(browser.base_url).rstrip("/")))
        assert re.fullmatch(
            r"gateway-session-127-0-0-1-\d+=\.\d+\.[\w-]{32}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict",
            first.headers["set-cookie"],
        )
        assert browser.get(first.headers["location"]).status_code == 200
        assert browser.get("/viewer/runs").text.count("/viewer/runs/report?run=") == 1
        assert browser.get(url).status_code == 200, "a browser with the cookie may open the address again"
        assert "works in one browser" in stranger.get(url).text
        name = first.headers["set-cookie"].partition("=")[0]
        guessed = stranger.get("/viewer/runs", headers={"cookie": f"{name}=.9999999999.{'a' * 32}"})
        assert "works in one browser" in guessed.text


def test_only_the_pages_of_the_runs_exist(two: httpx.Client) -> None:
    links = re.findall(
        r"<a[^>]* href=\"([^\"]*)\"", re.findall("<nav.*?</nav>", two.get("/viewer/runs").text, re.DOTALL)[0]
    )
    assert links == ["/viewer", "/viewer/runs"]
    for path in ("/", "/viewer"):
        assert two.get(path).headers["location"] == "/viewer/runs", path
    for path in ("/viewer/recordings", "/viewer/prompt"):
        assert two.get(path).status_code == 404, path
    assert two.get("/v1/models").json()["data"] == []


def test_a_browser_opens_the_printed_address(folder: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.partial && mv {opened}.partial {opened}\n')
    script.chmod(0o755)
    with viewing(folder, RUN_B, browser=str(script)) as (_, url):
        assert eventually(opened.exists)
        assert opened.read_text() == url


def test_another_host_is_refused_even_with_the_cookie(two: httpx.Client) -> None:
    [session] = two.cookies.values()
    for host, status in (("evil.example", 400), ("LOCALHOST:1", 200)):
        name = "gateway-session-" + re.sub("[.:]", "-", host)  # the name of the cookie contains the host
        headers = {"host": host, "cookie": f"{name}={session}"}
        assert two.get("/viewer/runs", headers=headers).status_code == status, host


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_exit_code_0(folder: Path, number: int) -> None:
    with viewing(folder, RUN_B) as (process, url), client(url) as browser:
        assert browser.get(url).status_code == 303
        os.kill(process.pid, number)
        _, rest = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, rest) == (0, "")


def test_every_page_is_reached_and_escapes_hostile_texts(two: httpx.Client) -> None:
    why = two.get("/viewer/runs/why.json", params={"a": RUN_A, "b": RUN_B}).json()
    row = two.get(why["rows"].replace("?", ".json?", 1)).json()["rows"][0]["link"]
    seen, waiting = (
        dict[str, str](),
        ["/viewer/runs", f"/viewer/runs/why?{httpx.QueryParams({'a': RUN_A, 'b': RUN_B})}", row],
    )
    while waiting and len(seen) < 60:
        path = waiting.pop(0)
        answer = two.get(path)
        assert answer.status_code == 200, path
        assert "<script>" not in answer.text
        assert not re.search(r"\son\w+=|\sstyle=|javascript:", answer.text), path
        assert answer.text.count('<tr><td><a href="/viewer/runs/row?') <= 50
        seen[path] = answer.text
        waiting += [link for link in dict.fromkeys(links(answer.text)) if link not in seen and link not in waiting]
    assert any("&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;{{7*7}}" in page for page in seen.values())
    kinds = {path.partition("?")[0] for path in seen}
    assert kinds == {"/viewer/runs", "/viewer/runs/report", "/viewer/runs/why", "/viewer/runs/rows", "/viewer/runs/row"}


def test_the_report_has_the_numbers_of_gateway_report(folder: Path, two: httpx.Client) -> None:
    wanted = json.loads(command(folder, "report", RUN_A, "--score", "exact", "--json").stdout)
    page = two.get("/viewer/runs/report.json", params={"run": RUN_A}).json()
    assert page["report"] == {name: value for name, value in wanted.items() if name != "by"}
    assert {one["name"]: one["value"] for one in page["classes"]} == {k: n for k, n in wanted["classes"].items() if n}
    for group in page["groups"]:
        counts = {row["label"]: {one["name"]: one["value"] for one in row["parts"]} for row in group["values"]}
        assert counts == wanted["by"][group["name"]]
    answered = wanted["rows"] - wanted["classes"]["failed"]
    totals = [sum(one["value"] for one in histogram["buckets"]) for histogram in page["histograms"]]
    assert totals == [wanted["rows"], answered]


def test_the_report_says_what_gateway_report_prints(folder: Path, two: httpx.Client) -> None:
    printed = command(folder, "report", RUN_A, "--score", "exact").stdout.decode()
    shown = two.get("/viewer/runs/report", params={"run": RUN_A}).text
    text = " ".join(re.sub(r"<[^>]*>", " ", shown).split())
    score, whole = re.findall(r"^(?:score .*?: )?([\d.]+ \([\d.]+ to [\d.]+\)) over", printed, re.MULTILINE)
    mean, _, limits = score.partition(" (")
    assert f"Score (exact) {mean} {limits.rstrip(')')}, 95 % interval" in text
    assert f"Whole answers only: {whole} over {ROWS} rows. Easy rows finish more often, so" in text
    for name, rows, share in re.findall(r"^(\w[\w ]*?) {2,}(\d+) +([\d.]+)%$", printed, re.MULTILINE):
        assert name == "all" or f"{name} {rows} {share} %" in text, name


def test_the_list_has_the_scores_and_a_is_the_run_that_is_named_first(folder: Path, two: httpx.Client) -> None:
    b, a = two.get("/viewer/runs.json").json()["runs"]
    assert [one["run"] for one in (a, b)] == [RUN_A, RUN_B]
    for one in (a, b):
        wanted = json.loads(command(folder, "report", one["run"], "--score", "exact", "--json").stdout)
        assert (one["rows"], one["score"]) == (wanted["rows"], wanted["score"]["all_rows"]["mean"])
        assert [one[name] for name in ("failed", "empty")] == [wanted["classes"][name] for name in ("failed", "empty")]
    assert (a["cut"], a["times"], a["seconds"]) == (1, [], None)


def test_a_report_of_the_only_run_says_how_to_compare(folder: Path) -> None:
    with viewing(folder, RUN_B) as (_, url), client(url) as browser:
        browser.get(url)
        link = browser.get("/viewer/runs/report.json", params={"run": RUN_B}).json()["compare"]
        assert "b.jsonl is the only run here" in browser.get(link).text


def test_rows_have_the_expected_answer_of_the_chosen_column(folder: Path, tmp_path: Path) -> None:
    value = json.loads(line(0, "42", "m"))
    (tmp_path / "c.jsonl").write_text(json.dumps({**value, "row": {"answer": "no", "target": 42}}) + "\n")
    with viewing(tmp_path, "c.jsonl", "--score", "exact", "--answer", "target") as (_, url), client(url) as browser:
        browser.get(url)
        (row,) = browser.get("/viewer/runs/rows.json?run=c.jsonl").json()["rows"]
        assert (row["expected"], row["answer"], row["score"], row["question"]) == ("42", "42", 1.0, "")
        assert "✓" in browser.get("/viewer/runs/rows?run=c.jsonl").text


def test_every_number_of_the_report_leads_to_as_many_rows(two: httpx.Client) -> None:
    page = two.get("/viewer/runs/report.json", params={"run": RUN_A}).json()
    assert {one["name"] for one in page["verdicts"]} == {"right", "wrong"}
    counted = [
        *page["classes"],
        *page["verdicts"],
        *[one for histogram in page["histograms"] for one in histogram["buckets"]],
    ]
    counted += [one for group in page["groups"] for row in group["values"] for one in (row, *row["parts"])]
    for one in counted:
        assert two.get(one["link"].replace("?", ".json?", 1)).json()["total"] == one["value"], one["link"]


def test_the_comparison_has_the_numbers_of_gateway_why(folder: Path, two: httpx.Client) -> None:
    wanted = json.loads(command(folder, "why", RUN_A, RUN_B, "--score", "exact", "--json").stdout)
    page = two.get("/viewer/runs/why.json", params={"a": RUN_A, "b": RUN_B}).json()
    assert page["why"] == {name: value for name, value in wanted.items() if name not in ("found", "causes")}
    assert {one["name"]: {"rows": one["rows"], "score": one["score"]} for one in page["causes"]} == wanted["causes"]
    for one in page["causes"]:
        assert two.get(one["link"].replace("?", ".json?", 1)).json()["total"] == one["rows"]


def test_rows_have_at_most_fifty_on_a_page_and_every_row_on_one(two: httpx.Client) -> None:
    address, ids = f"/viewer/runs/rows.json?{httpx.QueryParams({'run': RUN_A})}", list[str]()
    sizes = []
    while address:
        page: dict[str, Any] = two.get(address).json()
        sizes.append(len(page["rows"]))
        ids += [row["row"] for row in page["rows"]]
        address = page["next"].replace("?", ".json?", 1)
    assert sizes == [50, 50, 23]
    assert len(set(ids)) == ROWS + 3


def test_a_row_of_two_runs_marks_what_only_one_of_them_has(two: httpx.Client) -> None:
    page = two.get("/viewer/runs/row.json", params={"a": RUN_A, "b": RUN_B, "row": f"row-1{HOSTILE}"}).json()
    texts = [column["answers"][0]["text"] for column in page["columns"]]
    assert texts == [
        {"is_marked": True, "same": HOSTILE, "different": "", "rest": ""},
        {"is_marked": True, "same": HOSTILE, "different": "!", "rest": ""},
    ]
    assert next(iter(page["differences"])) == "sampled tokens"


def test_other_files_and_unknown_rows_are_refused(folder: Path, two: httpx.Client) -> None:
    (folder / "secret.jsonl").write_text((folder / RUN_B).read_text())
    for address in (
        "/viewer/runs/report?run=secret.jsonl",
        f"/viewer/runs/why?a={RUN_B}&b=secret.jsonl",
        "/viewer/runs/row?run=../x&row=1",
    ):
        answer = two.get(address)
        assert answer.status_code == 404
        assert "shows only the runs that its command line names" in answer.text
    assert "no such row" in two.get(f"/viewer/runs/row?run={RUN_B}&row=nosuch").text
    for address in ("/viewer/runs/nosuch", "/viewer/runs/report", f"/viewer/runs/rows?run={RUN_B}&duration=x"):
        assert two.get(address).status_code == 404


def test_a_changed_file_is_read_again(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(line(0, "42", "m") + "\n")
    with viewing(tmp_path, "c.jsonl") as (_, url), client(url) as browser:
        browser.get(url)
        assert browser.get("/viewer/runs/report.json?run=c.jsonl").json()["report"]["rows"] == 1
        file.write_text(f"{line(0, '42', 'm')}\n{line(1, '42', 'm')}\n")
        assert browser.get("/viewer/runs/report.json?run=c.jsonl").json()["report"]["rows"] == 2


def test_wrong_arguments_are_errors_of_the_command_line(folder: Path) -> None:
    (folder / "empty.jsonl").write_text("")
    cases = {
        ("nosuch.jsonl",): "nosuch.jsonl: no such file",
        ("empty.jsonl",): "empty.jsonl has no rows",
        (RUN_B, "--score", "exact", "--answer", "nosuch"): 'has no column "nosuch"',
        (RUN_B, "--score", "exakt"): "use exact, contains, choice or regex:PATTERN",
        (RUN_A, RUN_B, "--scores", "s.jsonl"): "s.jsonl: No such file or directory",
        (RUN_B, "--scores", "s.jsonl", "--score", "exact"): "too many scores",
    }
    for arguments, message in cases.items():
        ended = command(folder, "view", *arguments, "--no-browser")
        assert ended.returncode == 2
        assert message in ended.stderr.decode()
