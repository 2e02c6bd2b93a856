"""``/viewer/runs``: the runs in the recordings of a real gateway."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.core.caller import ANONYMOUS, Caller
from gateway.evaluate.analysis.recordings import COUNTS
from gateway.storage.recordings import open_recording
from gateway.viewer import charts
from gateway.viewer.page import Page, PageRequest, Visitor
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.findings import MOST_BUCKETS, buckets
from gateway.viewer.runs.pages import RecordedRunPages, RunPages
from gateway.viewer.runs.run_list import comparable
from gateway.viewer.runs.source import RecordedRuns
from metatemplate.version import VERSION
from tests.cli.command import command
from tests.support.serving import Gateway, bearer, gateway
from tests.viewer.browsing import open_recordings

HOSTILE = "<script>alert(1)</script>\"'&"
FILES = {
    "policies/full.yaml": "record: full\ndelivery: {retry: {attempts: 1}}\n",
    "hello.yaml": f"[{json.dumps('Hello ' + HOSTILE)}, {{finish: stop}}]\n",
    "bye.yaml": "[Bye, {finish: length}]\n",
    "error.yaml": "[{error: upstream_error}]\n",
}
CONFIG = """\
recordings: {path: calls.sqlite}
models:
  talk: {template: chatml, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
  short: {template: sft-demo, policy: full, targets: [{speaks: scripted, script: bye.yaml}]}
  broken: {template: chat, policy: full, targets: [{speaks: scripted, script: error.yaml}]}
"""
ROWS = 60


def send(served: Gateway, run: str, row: str, model: str, key: str = "") -> None:
    body = {"model": model, "messages": [{"role": "user", "content": f"hi {HOSTILE}"}]}
    headers = {"x-gateway-run": run, "x-gateway-row": row, **(bearer(key) if key else {})}
    served.http.post("/v1/chat/completions", json=body, headers=headers)


def flush(served: Gateway) -> None:
    """Wait until all calls so far are in the file."""
    assert served.wait_until_idle()
    for recorder in served.runtime.resources.recorders.values():
        recorder.flush().result()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with two recorded runs of the same rows."""
    with gateway(tmp_path_factory.mktemp("runs"), CONFIG, files=FILES) as running:
        for number in range(ROWS):
            send(running, "monday", f"row-{number}", "talk")
            send(running, "tuesday", f"row-{number}", "talk" if number % 2 else "short")
        send(running, "tuesday", "failed", "broken")
        flush(running)
        open_recordings(running)
        yield running


def values(served: Gateway, path: str, **query: str) -> Any:
    answer = served.http.get(f"/viewer/runs{path}.json", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def page(served: Gateway, path: str, visitor: Visitor, **query: str) -> Page:
    """The page for a visitor, without HTTP."""
    pages = RecordedRunPages(served.runtime.state, PageThreads())
    return asyncio.run(pages.page(PageRequest(path, query, None, "/viewer", visitor)))


def test_the_list_has_the_latest_run_first(served: Gateway) -> None:
    listed = values(served, "")["runs"]
    assert [(one["run"], one["rows"]) for one in listed[:2]] == [("tuesday", ROWS + 1), ("monday", ROWS)]
    shown = served.http.get("/viewer/runs").text
    assert 'href="/viewer/runs/report?run=tuesday"' in shown
    assert '<form method="get" action="/viewer/runs/why">' in shown


def test_the_list_counts_rows_as_gateway_report_does(tmp_path: Path) -> None:
    """A call of ``render`` is no row, and of a row that was sent again the last call counts."""
    files = {**FILES, "empty.yaml": "[{finish: stop}]\n"}
    silent = "  silent: {template: chatml, policy: full, targets: [{speaks: scripted, script: empty.yaml}]}\n"
    with gateway(tmp_path, CONFIG + silent, files=files) as running:
        open_recordings(running)
        for model, row in [
            ("talk", "a"),
            ("broken", "a"),
            ("short", "b"),
            ("silent", "c"),
            ("talk", "d"),
            ("talk", ""),
        ]:
            send(running, "run", row, model)
        send(running, "run", "a", "talk")
        send(running, "run", "", "broken")
        body = {"model": "talk", "messages": [{"role": "user", "content": "hi"}]}
        running.http.post("/v1/render", json=body, headers={"x-gateway-run": "run", "x-gateway-row": "e"})
        flush(running)
        wanted = json.loads(command(tmp_path, "report", "run", "--json").stdout)
        (found,) = values(running, "")["runs"]
    classes = wanted["classes"]
    counts = {name: found[name] for name in ("rows", "failed", "cut", "empty")}
    assert counts == {"rows": wanted["rows"], "failed": 1, "cut": classes["cut by length"], "empty": classes["empty"]}
    assert counts == {"rows": 6, "failed": 1, "cut": 1, "empty": 1}
    assert found["models"] == sorted(wanted["by"]["model"]) == ["broken", "short", "silent", "talk"]
    assert found["templates"] == ["chat", "chatml", "sft-demo"]
    assert (found["score"], found["times"]) == (None, sorted(found["times"]))


def test_runs_beyond_the_calls_that_a_list_counts_have_their_times_only(served: Gateway) -> None:
    pages = RunPages(RecordedRuns(served.runtime.state, most_calls=ROWS + 1), PageThreads())
    shown = asyncio.run(pages.page(PageRequest("/runs", {}, None, "/viewer")))
    latest, older = shown.values["runs"][:2]
    assert (latest["rows"], older["rows"], older["models"]) == (ROWS + 1, None, ())
    assert len(older["times"]) == 2


def test_the_list_reads_only_the_index_of_the_runs(served: Gateway) -> None:
    with closing(open_recording(served.folder / "calls.sqlite")) as file:
        plan = [row["detail"] for row in file.execute(f"EXPLAIN QUERY PLAN {COUNTS}", ("tuesday", ""))]
    assert [one for one in plan if "calls" in one] == [
        "SEARCH calls USING COVERING INDEX calls_by_run (run=? AND key=?)"
    ]


def test_the_two_latest_runs_are_chosen_the_older_one_as_a(served: Gateway) -> None:
    shown = served.http.get("/viewer/runs").text
    assert re.findall(r'name="(\w)" value="(\w+)" [^>]* checked', shown) == [("b", "tuesday"), ("a", "monday")]
    shown = served.http.get("/viewer/runs", params={"a": "tuesday"}).text
    assert "checked" not in shown
    chosen = re.findall(r'type="(\w+)" name="(\w)" value="(\w+)"', shown)
    assert chosen == [("hidden", "a", "tuesday"), ("radio", "b", "monday")]


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([9, 200, 200, 200], ["run-2", "run-1"]),
        ([5, 200, 7, 5, 200], ["run-3", "run-0"]),
        ([None, 3, None], ["run-1", "run-0"]),
        ([4], ["run-0"]),
        ([], []),
    ],
)
def test_two_runs_with_equally_many_rows_are_chosen(rows: list[int | None], chosen: list[str]) -> None:
    assert comparable([{"run": f"run-{at}", "rows": one} for at, one in enumerate(rows)]) == chosen


def test_the_list_has_at_most_fifty_runs(tmp_path: Path) -> None:
    with gateway(tmp_path, CONFIG, files=FILES) as running:
        open_recordings(running)
        assert values(running, "")["runs"] == []
        for number in range(60):
            send(running, f"run-{number}", "a", "talk")
        flush(running)
        first = values(running, "")
        assert len(first["runs"]) == 50
        rest = running.http.get(first["next"].replace("?", ".json?", 1)).json()
        assert (len(rest["runs"]), rest["next"]) == (10, "")
        assert {one["run"] for one in first["runs"] + rest["runs"]} == {f"run-{number}" for number in range(60)}


def test_the_report_has_the_numbers_of_gateway_report(served: Gateway) -> None:
    wanted = json.loads(command(served.folder, "report", "tuesday", "--json").stdout)
    found = values(served, "/report", run="/tuesday")
    assert found["report"] == {name: value for name, value in wanted.items() if name != "by"}
    assert {one["name"]: one["value"] for one in found["classes"]} == {
        "failed": 1,
        "cut by length": ROWS // 2,
        "whole": ROWS // 2,
    }
    assert values(served, "/report", run="tuesday")["report"] == found["report"]


def test_the_comparison_has_the_numbers_of_gateway_why(served: Gateway) -> None:
    wanted = json.loads(command(served.folder, "why", "monday", "tuesday", "--json").stdout)
    found = values(served, "/why", a="/monday", b="/tuesday")
    assert found["why"] == {name: value for name, value in wanted.items() if name not in ("found", "causes")}
    assert [(one["name"], one["rows"]) for one in found["causes"]] == [("prompt", ROWS // 2)]
    assert values(served, "/rows", a="/monday", b="/tuesday", moved="fell")["total"] == 0
    rows = values(served, "/rows", a="/monday", b="/tuesday", cause="prompt")
    assert (rows["total"], len(rows["rows"])) == (ROWS // 2, ROWS // 2)
    assert values(served, "/rows", a="/monday", b="/tuesday", cause="route")["total"] == 0
    filtered = values(served, "/why", a="/monday", b="/tuesday", cause="route", where="x")
    assert "&cause=prompt&where=byte" in filtered["places"][0]["example"]["link"], "not the filters of the address"


def test_two_prompts_stand_side_by_side_with_the_first_difference_marked(served: Gateway) -> None:
    query = {"a": "/monday", "b": "/tuesday", "row": "row-0"}
    found = values(served, "/row", **query)
    one, other = [column["prompt"] for column in found["columns"]]
    assert one["same"] == other["same"]
    assert one["different"] != other["different"]
    assert found["place"].startswith(f"first difference: byte {len(one['same'].encode())} (line 1, ")
    assert next(iter(found["differences"])) == "prompt"
    shown = served.http.get("/viewer/runs/row", params=query).text
    assert '<mark id="prompt-1">' in shown
    assert '<mark id="prompt-2">' in shown
    assert '<mark id="answer-1-1">H</mark>ello<i data-mark="·"> </i>&lt;script&gt;' in shown


def test_a_row_leads_to_the_rows_before_and_after_it_in_its_list(served: Gateway) -> None:
    def json_of(link: str) -> Any:
        return served.http.get(link.replace("?", ".json?", 1)).json()

    query = {"a": "/monday", "b": "/tuesday", "cause": "prompt"}
    names, link = list[str](), values(served, "/rows", **query)["rows"][0]["link"]
    while link:
        row = json_of(link)
        names.append(row["row"])
        assert (row["in_list"]["number"], row["in_list"]["total"]) == (len(names), ROWS // 2)
        assert row["filters"] == {"cause": "prompt"}
        assert row["in_list"]["previous"] == "" or json_of(row["in_list"]["previous"])["row"] == names[-2]
        link = row["in_list"]["next"]
    assert names == [f"row-{number}" for number in range(0, ROWS, 2)]
    assert json_of(row["in_list"]["list"])["rows"][-1]["row"] == names[-1]
    equal = values(served, "/row", **query, row="row-1")
    assert (equal["in_list"]["number"], equal["lines"], equal["in_list"]["next"]) == (0, [], "")


def test_a_row_leads_to_its_recorded_call(served: Gateway) -> None:
    query = {"a": "/monday", "b": "/tuesday", "row": "row-0"}
    shown = served.http.get("/viewer/runs/row", params=query).text
    calls = re.findall(r'href="(/viewer/recordings/[^"]+)"', shown)
    ids = [column["request_id"] for column in values(served, "/row", **query)["columns"]]
    assert calls == [f"/viewer/recordings/{one}" for one in ids]
    assert all(served.http.get(call).status_code == 200 for call in calls)


def test_a_failed_row_has_the_message_of_its_call(served: Gateway) -> None:
    (column,) = values(served, "/row", run="/tuesday", row="failed")["columns"]
    message = served.http.get(f"/viewer/recordings/{column['request_id']}.json").json()["error"]
    assert message
    assert (column["error"], column["message"]) == ("upstream_error", message)
    shown = served.http.get("/viewer/runs/row", params={"run": "/tuesday", "row": "failed"}).text
    assert f'upstream_error: <span class="exact">{message.split()[0]}<' in shown


def test_the_page_of_a_row_reads_no_whole_run(served: Gateway) -> None:
    pair = {"a": "/monday", "b": "/tuesday", "match": "question"}
    row = values(served, "/row", **pair, row="row-0")
    assert (row["in_list"]["number"], row["in_list"]["next"], list(row["differences"])[:1]) == (0, "", ["prompt"])
    link = values(served, "/rows", **pair)["rows"][0]["link"]
    assert served.http.get(link.replace("?", ".json?", 1)).json()["in_list"]["number"] == 1


def test_a_row_of_one_run_leads_to_the_next_page_of_its_list(served: Gateway) -> None:
    assert values(served, "/rows", run="/monday")["total"] > 50
    row = values(served, "/row", run="/monday", row="row-49")
    assert row["in_list"]["next"].endswith("row=row-50")
    after = served.http.get(row["in_list"]["next"].replace("?", ".json?", 1)).json()
    assert (after["row"], after["in_list"]["number"]) == ("row-50", 51)
    assert served.http.get(after["in_list"]["list"].replace("?", ".json?", 1)).json()["start"] == 50


def test_the_list_of_the_rows_that_differ_has_question_answers_and_choices(served: Gateway) -> None:
    found = values(served, "/rows", a="/monday", b="/tuesday")
    (row, *_), place = found["rows"], found["rows"][0]["differences"]["prompt"]
    assert row["question"].startswith("hi <script>")
    assert [answer[:3] for answer in row["answers"]] == ["Hel", "Bye"]
    assert found["choices"] == {"cause": {"prompt": ROWS // 2}, "kind": {}, "where": {place: ROWS // 2}, "moved": {}}
    assert values(served, "/rows", a="/monday", b="/tuesday", where=place)["total"] == ROWS // 2
    assert values(served, "/rows", a="/monday", b="/tuesday", where="elsewhere")["total"] == 0
    assert values(served, "/rows", a="/monday", b="/tuesday", cause="", where="")["total"] == ROWS // 2


def test_two_runs_are_compared_by_their_questions_if_the_address_asks_for_it(served: Gateway) -> None:
    query = {"a": "/monday", "b": "/tuesday"}
    found = values(served, "/why", **query, match="question")
    assert found["why"]["duplicates"] == 2 * ROWS - 1  # all rows ask the same
    assert "match=question" in found["rows"]
    listed = served.http.get(found["rows"].replace("?", ".json?", 1)).json()
    assert "match=question" in listed["why"]
    assert all("match=question" in row["link"] for row in listed["rows"])
    answer = served.http.get("/viewer/runs/why.json", params={**query, "match": "text"})
    assert (answer.status_code, answer.json()["problem"]) == (404, "match=text: use id or question")


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("", {}),
        ("/report", {"run": "/tuesday"}),
        ("/rows", {"run": "/tuesday"}),
        ("/why", {"a": "/monday", "b": "/tuesday"}),
        ("/rows", {"a": "/monday", "b": "/tuesday"}),
        ("/row", {"run": "/monday", "row": "row-1"}),
        ("/row", {"a": "/monday", "b": "/tuesday", "row": "row-0"}),
    ],
)
def test_a_page_has_no_markup_of_the_data_and_no_inline_style(
    served: Gateway, path: str, query: dict[str, str]
) -> None:
    answer = served.http.get(f"/viewer/runs{path}", params=query)
    assert answer.status_code == 200
    for forbidden in ("<script>", " style=", "onclick", "javascript:"):
        assert forbidden not in answer.text
    assert "unsafe-inline" not in answer.headers["content-security-policy"]
    assert answer.text.count("<h1") == 1


@pytest.mark.parametrize("b", ["", "/monday"])
def test_a_comparison_without_another_run_leads_to_the_report(served: Gateway, b: str) -> None:
    answer = served.http.get("/viewer/runs/why", params={"a": "/monday", "b": b})
    assert (answer.status_code, answer.headers["location"]) == (303, "/viewer/runs/report?run=%2Fmonday")


def test_the_report_has_who_what_and_when(served: Gateway) -> None:
    found = values(served, "/report", run="tuesday")
    assert found["totals"]["calls"] == ROWS + 1
    facts = {
        name: {one["value"].partition("@sha256:")[0]: one["calls"] for one in values}
        for name, values in found["facts"].items()
    }
    assert facts["template"] == {"chatml": ROWS // 2, "sft-demo": ROWS // 2, "chat": 1}
    assert (facts["policy"], facts["version"]) == ({"full": ROWS + 1}, {VERSION: ROWS + 1})
    assert found["times"] == sorted(found["times"])
    shown = served.http.get("/viewer/runs/report", params={"run": "tuesday"}).text
    assert f"{ROWS + 1} rows, {ROWS // 2 + 1} of them not whole." in shown
    assert "No score is known." in shown
    assert f"(1 of {ROWS + 1} calls)" in shown
    assert found["times"][0][:16].replace("T", " ") in shown


def test_the_rows_to_look_at_first_are_failed_then_cut(served: Gateway) -> None:
    worst = values(served, "/report", run="tuesday")["worst"]
    assert [(row["row"], row["class"]) for row in worst[:2]] == [("failed", "failed"), ("row-0", "cut by length")]
    assert len(worst) == 10
    assert values(served, "/report", run="monday")["worst"] == []


def test_a_list_of_rows_shows_question_and_answer_and_keeps_its_filters_in_the_links(served: Gateway) -> None:
    page = values(served, "/rows", run="tuesday", **{"class": "cut by length", "start": "0"})
    row = page["rows"][0]
    assert (row["question"], row["answer"], row["expected"]) == (f"hi {HOSTILE}", "Bye", "")
    assert row["link"].endswith("?run=tuesday&class=cut+by+length&row=row-0")
    assert page["choices"] == {
        "class": ["failed", "cut by length", "whole"],
        "model": ["broken", "short", "talk"],
        "finish reason": ["length", "none", "stop"],
    }
    assert values(served, "/rows", run="tuesday", **{"class": "", "model": ""})["total"] == ROWS + 1
    last = values(served, "/rows", run="tuesday", start="50")
    assert (len(last["rows"]), last["next"]) == (ROWS - 49, "")
    assert last["previous"] == "/viewer/runs/rows?run=tuesday&start=0"


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("/report", {"run": "/nosuch"}, "no run of this name"),
        ("/report", {}, "a value for run"),
        ("/row", {"run": "/monday", "row": "nosuch"}, "no such row"),
        ("/nosuch", {}, "unknown page"),
        ("/report", {"run": HOSTILE}, "no run of this name"),
    ],
)
def test_what_does_not_exist_is_status_404(served: Gateway, path: str, query: dict[str, str], message: str) -> None:
    answer = served.http.get(f"/viewer/runs{path}.json", params=query)
    assert answer.status_code == 404
    assert message in answer.json()["problem"]


def test_a_gateway_without_recordings_says_how_to_record(tmp_path: Path) -> None:
    config = CONFIG.partition("\n")[2].replace("policy: full, ", "")
    with gateway(tmp_path, config, files=FILES) as running:
        open_recordings(running)
        answer = running.http.get("/viewer/runs")
        assert answer.status_code == 200
        assert "name a file in gateway.yaml (recordings: {path: recordings.sqlite})" in answer.text


def test_a_visitor_who_may_not_read_sees_only_the_reason(served: Gateway) -> None:
    for visitor in (Visitor(None, False, "sign in"), Visitor(ANONYMOUS, False, "sign in"), Visitor(None, True, "x")):
        found = page(served, "/runs/report", visitor, run="/monday")
        assert (found.status, found.values) == (200, {"problem": visitor.problem})


def test_a_client_sees_only_its_own_runs(tmp_path: Path) -> None:
    names = ("ann", "bob")
    keys = [f'{name}: {{sha256: "{hashlib.sha256(name.encode()).hexdigest()}"}}\n' for name in names]
    config = f"keys: {{file: keys.yaml}}\n{CONFIG}"
    with gateway(tmp_path, config, files={**FILES, "keys.yaml": "".join(keys)}) as running:
        for name in names:
            send(running, "nightly", f"row-of-{name}", "talk", key=name)
        send(running, "only-bob", "row", "talk", key="bob")
        flush(running)
        ann = Visitor(Caller("ann"))
        assert [one["run"] for one in page(running, "/runs", ann).values["runs"]] == ["nightly"]
        for run in ("nightly", "ann/nightly"):
            rows = page(running, "/runs/rows", ann, run=run).values["rows"]
            assert [row["row"] for row in rows] == ["row-of-ann"]
        foreign = [("report", {"run": run}) for run in ("bob/nightly", "only-bob", "bob/only-bob", "/nightly")]
        foreign += [("rows", {"run": "bob/nightly"}), ("row", {"run": "nightly", "row": "row-of-bob"})]
        pair = {"a": "nightly", "b": "bob/nightly"}
        foreign += [("why", pair), ("rows", pair), ("row", {**pair, "row": "row-of-ann"})]
        for path, query in foreign:
            found = page(running, f"/runs/{path}", ann, **query)
            assert (found.status, list(found.values)) == (404, ["problem"]), query


def test_a_run_is_read_again_after_further_calls(tmp_path: Path) -> None:
    with gateway(tmp_path, CONFIG, files=FILES) as running:
        open_recordings(running)
        for number in (1, 2):
            send(running, "growing", f"row-{number}", "talk")
            flush(running)
            assert values(running, "/report", run="growing")["report"]["rows"] == number


def test_a_picture_is_an_image_or_a_group_of_links_and_escapes_its_texts() -> None:
    part = {"name": HOSTILE, "label": HOSTILE, "value": 2, "color": 1}
    for picture in (
        charts.bars(HOSTILE, [{"label": HOSTILE, "parts": [part, part]}]),
        charts.histogram(HOSTILE, [part]),
        charts.waterfall(HOSTILE, [part]),
    ):
        assert 'role="img"' in picture
        assert "<title>&lt;script&gt;" in picture
        assert "<script>" not in picture
        assert "style=" not in picture
    linked = charts.histogram("t", [{**part, "link": f"/x?{HOSTILE}"}])
    assert 'role="group"' in linked
    assert 'href="/x?&lt;script&gt;' in linked
    for empty in (charts.bars("t", []), charts.histogram("t", []), charts.waterfall("t", [])):
        assert empty.startswith("<svg")


def test_the_focus_shows_the_text_that_the_mouse_shows(served: Gateway) -> None:
    shown = served.http.get("/viewer/runs/report", params={"run": "tuesday"}).text
    linked = re.findall(r'aria-label="([^"]+)"><rect[^>]*><title>([^<]+)</title></rect><text[^>]*>([^<]+)', shown)
    assert linked
    assert all(name == title == text for name, title, text in linked)


def test_a_waterfall_begins_each_step_at_the_end_of_the_step_before() -> None:
    steps = [{"name": name, "value": value} for name, value in (("a", 0.5), ("b", -0.25), ("c", 0.25))]
    picture = charts.waterfall("t", [*steps, {"name": "all", "value": 0.5, "total": True}])
    places = re.findall(r'<rect x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"', picture)
    assert places == [("0.00", "100.00"), ("50.00", "50.00"), ("50.00", "50.00"), ("0.00", "100.00")]


SIZES = {
    "one value": [0.31],
    "zeros": [0.0, 0.0],
    "seconds": [0.1, 0.2, 0.3, 0.30000000000000004, 1.1, 1.19],
    "an outlier": [*[0.01 * at for at in range(100)], 600.0],
    "mostly zero": [*[0.0] * 99, 5.0],
    "characters": [float(at) for at in range(1, 2000, 7)],
    "large and near": [10.0**7, 10.0**7 + 3],
    "huge": [0.0, 1e300],
    "limits": [float(at) for at in range(13)],
}


@pytest.mark.parametrize("name", SIZES)
def test_each_value_is_in_the_bucket_with_its_limits(name: str) -> None:
    ordered = sorted(SIZES[name])
    found = buckets(ordered)
    assert 0 < len(found) <= MOST_BUCKETS
    for low, high, number in found:
        assert number == sum([low <= value < (float("inf") if high is None else high) for value in ordered])
    assert sum([number for _, _, number in found]) == len(ordered)
    widths = {round(high - low, 9) for low, high, _ in found if high is not None}
    assert len(widths) <= 1
    assert all(high == low for (_, high, _), (low, _, _) in pairwise(found))


def test_few_values_far_away_share_the_last_bucket() -> None:
    assert buckets(SIZES["an outlier"])[-1] == (1.8, None, 1)
    assert buckets([1.0, 2.0, 3.0])[-1][1] is not None
    assert buckets([]) == []
    assert buckets([1.0, 1.0, 2.0], 1.0) == [(1.0, 2.0, 2), (2.0, 3.0, 1)]
