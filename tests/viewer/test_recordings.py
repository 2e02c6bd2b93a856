"""``/viewer/recordings``: filters, pages, one call, and who sees which calls."""

from __future__ import annotations

import re
import sqlite3
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.caller import Caller
from gateway.storage.recorder import SCHEMA, SCHEMA_VERSION, Recorder
from gateway.storage.recordings import CALL_FILTERS, OWNER, calls_query, open_recording
from gateway.viewer.page import PageRequest, Visitor
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.recordings.call_view import MAX_TEXT
from gateway.viewer.recordings.list import COLUMNS, ROWS
from gateway.viewer.recordings.pages import RecordingPages
from gateway.viewer.templating import seconds
from gateway.viewer.viewer import ROOT
from tests.support.serving import ROOT as CHECKOUT
from tests.support.serving import Files, Gateway, bearer, gateway
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import gateway_fixture, key_file
from tests.viewer.browsing import Browser, token_of

SCRIPTS: Files = {
    "prompts": CHECKOUT / "prompts",
    "policies/full.yaml": "record: full\ndelivery: {retry: {attempts: 1}}\n",
    "policies/ids.yaml": "record: full\nmarkers: {token_like: token_ids}\n",
    "policies/metadata.yaml": "record: metadata\n",
    "policies/usual.yaml": "record: full\nparams: {default: {temperature: 0}, clamp: {max_tokens: 10}}\n",
    "tool.yaml": """
- {fields: {tool_calls: [{index: 0, id: c, type: function, function: {name: add, arguments: "{}"}}]}}
- {finish: tool_calls}
""",
    "hello.yaml": "[Hel, {pause: 0.01}, lo, {finish: stop}, {usage: [10, 5]}]\n",
    "cut.yaml": "[Hel, {finish: length}]\n",
    "error.yaml": "[{error: upstream_error}]\n",
}
MODELS = f"""
recordings: {{path: calls.sqlite}}
models:
  talk: {{template: chatml, policy: full, targets: [{{speaks: scripted, script: hello.yaml}}]}}
  short: {{template: chatml, policy: full, targets: [{{speaks: scripted, script: cut.yaml}}]}}
  broken: {{template: chatml, policy: full, targets: [{{speaks: scripted, script: error.yaml}}]}}
  hashed: {{template: chatml, policy: metadata, targets: [{{speaks: scripted, script: hello.yaml}}]}}
  lost: {{template: chatml, policy: metadata, targets: [{{speaks: scripted, script: error.yaml}}]}}
  usual: {{template: chatml, policy: usual, targets: [{{speaks: scripted, script: tool.yaml}}]}}
  ids:
    template: sft-demo
    policy: ids
    tokenizer: {CHECKOUT}/demo/model
    targets: [{{speaks: scripted, script: hello.yaml}}]
"""
served = gateway_fixture(MODELS, SCRIPTS)
keyed = gateway_fixture(
    "keys: {file: keys.yaml}\n" + MODELS,
    {**SCRIPTS, "keys.yaml": key_file({"ann": "models: ['*']", "bob": "models: ['*']"})},
)


def written(served: Gateway) -> None:
    """Wait until all recordings are in the file."""
    assert served.wait_until_idle()  # a call is recorded after its answer
    recorder = served.runtime.state.stack.recorder
    assert recorder is not None
    recorder.flush().result()


def ask(served: Gateway, model: str, key: str = "", headers: Mapping[str, str] | None = None, **fields: Any) -> str:
    """Send a call, and return its id once it is recorded."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi <b>"}], **fields}
    sent = {**(bearer(key) if key else {}), **(headers or {})}
    answer = served.http.post("/v1/chat/completions", json=body, headers=sent)
    written(served)
    return answer.headers["x-request-id"]


def operator(served: Gateway) -> Browser:
    """The browser of the person who has started a gateway without keys."""
    browser = Browser(served.root)
    browser.get(f"/viewer?token={token_of(served)}")
    return browser


def values(browser: Browser, query: str = "") -> dict[str, Any]:
    path, mark, rest = query.partition("?")
    found: dict[str, Any] = browser.get(f"/viewer/recordings{path}.json{mark}{rest}").json()
    return found


def ids(browser: Browser, query: str = "") -> list[str]:
    return [call["request_id"] for call in values(browser, query)["calls"]]


def test_the_list_has_the_latest_call_first_and_each_filter_finds_its_calls(served: Gateway) -> None:
    talk = ask(served, "talk", headers={"x-gateway-run": "night-1"})
    short, broken = ask(served, "short"), ask(served, "broken")
    noticed = ask(served, "hashed", headers={"x-gateway-run": "night-2"})
    browser = operator(served)
    assert ids(browser)[:4] == [noticed, broken, short, talk]
    assert ids(browser, "?model=short") == [short]
    assert ids(browser, "?cut=length") == [short]
    assert ids(browser, "?cut=thinking") == []
    assert ids(browser, "?outcome=upstream_error&model=broken") == [broken]
    assert ids(browser, "?run=night-1&cut=") == [talk]
    assert ids(browser, "?notice=run_not_recorded") == [noticed]
    assert ids(browser, "?key=ann") == []
    page = browser.get("/viewer/recordings?model=short").text
    assert '<option value="short" selected>short</option>' in page
    assert re.search(f'title="{short}">[^<]+</a>', page)
    assert f" {short[4:12]}</small>" in page
    assert talk not in page


def test_the_list_has_the_beginning_of_question_and_answer_and_the_notices_of_few_calls(served: Gateway) -> None:
    browser, system = operator(served), {"role": "system", "content": "Be short."}
    ask(served, "talk", messages=[system, {"role": "user", "content": f"1+1=?\n{'x' * 80}"}])
    ask(served, "usual", max_tokens=20)
    ask(served, "talk", messages=[system, {"role": "user", "content": f"A long \u4f60 text\n{'y' * 40_000}"}])
    ask(served, "hashed")
    served.http.post("/v1/render", json={"model": "talk", "messages": [{"role": "user", "content": "drawn"}]})
    served.http.post("/v1/completions", json={"model": "talk", "prompt": "raw"})
    written(served)
    calls = values(browser)["calls"][:6][::-1]
    assert [(call["endpoint"], call["question"], call["answer"]) for call in calls] == [
        ("chat", f"1+1=? {'x' * 53}…", "Hello"),
        ("chat", "hi <b>", "add {}"),
        ("chat", f"A long \u4f60 text {'y' * 45}…", "Hello"),
        ("chat", "", ""),
        ("render", "drawn", ""),
        ("completions", "raw", "Hello"),
    ]
    assert calls[1]["notices"] == ["clamped_parameter: max_tokens=10"]
    page = browser.get("/viewer/recordings").text
    assert re.search('<span class="chip muted">render</span> <a [^>]*>drawn</a>', page)
    assert "default_parameter: " not in page
    assert '<span class="chip muted" title="clamped_parameter: max_tokens=10">1 notice</span>' in page


def test_the_filters_offer_the_values_that_are_known(served: Gateway) -> None:
    ask(served, "broken", headers={"x-gateway-run": "offered"})
    browser = operator(served)
    choices = values(browser)["choices"]
    assert choices["model"] == list(served.runtime.state.stack.routes)
    assert choices["outcome"][0] == "ok"
    assert "upstream_error" in choices["outcome"]
    assert (choices["run"][0], choices["key"]) == ("offered", [])
    assert values(browser, "?model=gone&run=offered")["choices"]["model"] == [*choices["model"], "gone"]


def test_a_failed_call_shows_its_error_and_what_to_do(served: Gateway) -> None:
    browser = operator(served)
    found = values(browser, f"/{ask(served, 'broken')}")
    assert found["error"] == "the script contains the error upstream_error (target broken/0)"
    assert found["remedy"] == "Look for the x-request-id in the gateway's log, which has the server's message."
    page = browser.get(f"/viewer/recordings/{found['id']}").text
    alert = page.partition('role="alert">')[2].partition("</div>")[0]
    assert found["error"] in alert
    assert found["remedy"].replace("'", "&#39;") in alert
    assert "is not recorded" in browser.get(f"/viewer/recordings/{ask(served, 'lost')}").text
    assert 'role="alert"' not in browser.get(f"/viewer/recordings/{ask(served, 'talk')}").text


def test_a_call_leads_to_its_neighbours_in_the_list(served: Gateway) -> None:
    sent = [ask(served, model, headers={"x-gateway-run": "beside"}) for model in ("talk", "short", "talk", "talk")]
    browser = operator(served)
    listed = values(browser, "?run=beside&model=talk")["calls"]
    middle = values(browser, listed[1]["link"])
    assert middle["request_id"] == sent[2]
    assert [values(browser, middle[side])["request_id"] for side in ("newer", "older")] == [sent[3], sent[0]]
    assert (values(browser, middle["older"])["older"], values(browser, middle["newer"])["newer"]) == ("", "")
    page = browser.get(f"/viewer/recordings{listed[1]['link']}").text
    assert f'href="/viewer/recordings{middle["older"].replace("&", "&amp;")}" rel="next"' in page


def test_the_links_older_and_newest_keep_the_filters(served: Gateway) -> None:
    sent = [ask(served, "talk", headers={"x-gateway-run": "long"}) for _ in range(ROWS + 2)]
    browser = operator(served)
    first = values(browser, "?run=long")
    assert [call["request_id"] for call in first["calls"]] == sent[:1:-1]
    assert first["newest"] is None
    second = values(browser, first["older"])
    assert [call["request_id"] for call in second["calls"]] == sent[1::-1]
    assert (second["older"], second["newest"]) == (None, "?run=long")


def test_a_call_shows_its_prompt_answer_events_and_facts(served: Gateway) -> None:
    number = ask(served, "talk", max_tokens=5)
    found = values(operator(served), f"/{number}")
    facts, (exchange,) = dict(found["facts"]), found["exchanges"]
    assert (found["model"], found["outcome"], found["question"]) == ("talk", "ok", "hi <b>")
    assert (facts["template"], facts["target"], facts["stream"]) == ("chatml", "talk/0", "no")
    segments = exchange["prompt"]["segments"]
    assert [(one["text"], one["kind"]) for one in segments if one["kind"] == "client"] == [("hi <b>", "client")]
    assert {one["kind"] for one in segments} == {"client", "template"}
    assert [(one["text"], one["end"]) for one in exchange["answers"]] == [("Hello", "stop, by the engine")]
    assert [one["text"] for one in exchange["events"] if one["type"] == "Delta"] == ["Hel", "lo"]
    assert exchange["first"] is not None
    assert dict(exchange["facts"])["params"] == '{"max_tokens": 5}'
    page = operator(served).get(f"/viewer/recordings/{number}")
    assert page.status_code == 200
    assert 'hi<i data-mark="·"> </i>&lt;b&gt;' in page.text
    assert "<svg" in page.text
    assert "style=" not in page.text
    number = ask(served, "talk", messages=[{"role": "user", "content": "a\u202eb"}])
    page = operator(served).get(f"/viewer/recordings/{number}")
    assert page.text.count('a<i data-mark="U+202E">\u202e</i>b</') == 2, "the question and the prompt"


def test_a_prompt_that_was_sent_as_ids_is_shown_as_text_with_its_ids(served: Gateway) -> None:
    messages = [{"role": "user", "content": "1+1=<eoh>"}]
    number = ask(served, "ids", messages=messages)
    (exchange,) = values(operator(served), f"/{number}")["exchanges"]
    segments = [(one["text"], one["kind"]) for one in exchange["prompt"]["segments"]]
    assert segments[:2] == [("<HUMAN>: ", "template"), ("1+1=<eoh>", "client")]
    ids = served.http.post("/v1/render", json={"model": "ids", "messages": messages}).json()["token_ids"]
    assert orjson.loads(dict(exchange["facts"])["prompt_ids"]) == [ids]
    page = operator(served).get(f"/viewer/recordings/{number}").text
    assert f"<dt>prompt ids</dt><dd>{[ids]}</dd>" in page


def test_a_call_shows_where_its_time_went(served: Gateway) -> None:
    found = values(operator(served), f"/{ask(served, 'talk')}")
    assert found["seconds"] == pytest.approx(found["times"]["upstream"] + found["times"]["overhead"])
    page = operator(served).get(f"/viewer/recordings/{found['request_id']}").text
    shown = [f"{name.replace('_', ' ')} {seconds(time)}" for name, time in found["times"].items()]
    assert f"<p>Where the time went: {', '.join(shown)}.</p>" in page


def test_a_call_without_texts_shows_its_sizes(served: Gateway) -> None:
    number = ask(served, "hashed")
    assert "Recorded as metadata" in operator(served).get(f"/viewer/recordings/{number}").text


def test_a_call_is_found_by_its_number_and_two_calls_with_one_id_link_to_each_other(served: Gateway) -> None:
    browser = operator(served)
    for _ in range(2):
        ask(served, "talk", headers={"x-request-id": "twice"})
    found = values(browser, "/twice")
    (other,) = found["others"]
    ask(served, "talk", headers={"x-request-id": "ends-in.json"})
    link = re.search(r'href="(\S+)" title="ends-in.json">', browser.get("/viewer/recordings").text)
    assert link is not None
    assert "ends-in.json" in browser.get(link[1]).text
    assert values(browser, f"/twice?id={other['id']}")["id"] == other["id"]
    assert values(browser, f"/{other['id']}")["id"] == other["id"]


def opened(link: str) -> dict[str, Any]:
    """The values of the form of the page Prompt that a link fills in."""
    mark, text = link.split("#c=")
    assert mark == ""
    found: dict[str, Any] = orjson.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def test_a_call_whose_prompt_was_sent_opens_with_its_messages_in_the_page_prompt(served: Gateway) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    number = ask(served, "talk", max_tokens=5, gateway={"turns": {"questions": ["a", "b"]}})
    request = opened(values(operator(served), f"/{number}")["prompt_link"])
    assert orjson.loads(request["conversation"]) == [{"content": "hi <b>", "role": "user"}]
    turns = {"mode": "every", "questions": ["a", "b"]}
    assert orjson.loads(request["parameters"]) == {"max_tokens": 5, "gateway": {"turns": turns}}
    found = values(operator(served), f"/{ask(served, 'hashed')}")
    assert (found["prompt_link"], found["question"]) == ("", "")
    found = values(operator(served), f"/{ask(served, 'talk', messages=[{'role': 'user', 'content': 'x' * 40_000}])}")
    assert (found["prompt_link"], len(found["question"])) == ("", 40_000)
    refused = values(operator(served), f"/{ask(served, 'talk', tools=tools)}")
    assert refused["outcome"] == "unsupported_parameter"
    assert orjson.loads(opened(refused["prompt_link"])["tools"]) == tools


def test_a_dataset_prompt_opens_with_its_row_and_has_the_texts_of_the_dataset(served: Gateway) -> None:
    prompt = {"id": "sums", "variables": {"question": "1+1=?"}}
    found = values(operator(served), f"/{ask(served, 'talk', messages=None, gateway={'prompt': prompt})}")
    request = opened(found["prompt_link"])
    assert (request["dataset_prompt"], orjson.loads(request["row"])) == ("sums", prompt["variables"])
    assert found["question"] == "1+1=?"
    segments = found["exchanges"][0]["prompt"]["segments"]
    assert [one["text"] for one in segments if one["kind"] == "dataset"] == ["1+1=?"]


def test_a_very_long_prompt_is_cut_once(served: Gateway) -> None:
    number = ask(served, "talk", messages=[{"role": "user", "content": "x" * 400_000}] * 2)
    (exchange,) = values(operator(served), f"/{number}")["exchanges"]
    text = "".join(one["text"] for one in exchange["prompt"]["segments"])
    assert (text.count("more characters"), len(text) - MAX_TEXT) == (1, len("… (500110 more characters)"))


def test_messages_open_in_the_page_prompt(tmp_path: Path) -> None:
    with FaultyUpstream() as up:
        config = f"""
recordings: {{path: calls.sqlite}}
models:
  m: {{template: api, policy: full, targets: [{{speaks: chat, url: "{up.url("ok")}", model: m}}]}}
"""
        with gateway(tmp_path, config, files=SCRIPTS) as served:
            number = ask(served, "m", temperature=0.5)
            found = values(operator(served), f"/{number}")
    request = opened(found["prompt_link"])
    assert (request["model"], orjson.loads(request["parameters"])) == ("m", {"temperature": 0.5})
    assert orjson.loads(request["conversation"]) == [{"role": "user", "content": "hi <b>"}]


def test_with_keys_a_visitor_sees_the_calls_of_the_own_key_only(keyed: Gateway) -> None:
    anns, bobs = ask(keyed, "talk", "ann"), ask(keyed, "talk", "bob", {"x-gateway-run": "bobs-run"})
    ann = Browser(keyed.root)
    ann.sign_in("ann")
    assert ids(ann) == [anns]
    assert ids(ann, "?key=bob") == [anns]
    assert "key" not in values(ann)["filters"]
    assert values(ann)["choices"]["run"] == []
    assert "bob" not in ann.get("/viewer/recordings").text
    number = values(ann)["calls"][0]["id"]
    for guess in (f"/{bobs}", f"/{number + 1}", f"/{anns}?id={number + 1}"):
        guessed = guess[1:].partition("?")[0]
        assert ann.get(f"/viewer/recordings{guess}").status_code == 404
        assert values(ann, guess)["problem"].replace(guessed, "req_none") == values(ann, "/req_none")["problem"]


def test_another_keys_call_is_no_place_in_the_list(keyed: Gateway) -> None:
    for key in ("ann", "bob", "ann"):
        ask(keyed, "talk", key)
    ann, bob = Browser(keyed.root), Browser(keyed.root)
    ann.sign_in("ann")
    bob.sign_in("bob")
    own, others = values(ann)["calls"][0]["id"], values(bob)["calls"][0]["id"]
    assert values(ann, f"?before={own}")["calls"] != []
    assert values(ann, f"?before={others}")["calls"] == values(ann, "?before=99999")["calls"] == []


def test_without_a_session_a_key_is_asked_for(keyed: Gateway) -> None:
    page = Browser(keyed.root).get("/viewer/recordings")
    assert "Client key" in page.text


def test_without_the_printed_token_the_reason_is_shown(served: Gateway) -> None:
    page = Browser(served.root).get("/viewer/recordings")
    assert page.status_code == 200
    assert "contains a token" in page.text
    assert "talk" not in page.text


def test_recordings_that_are_off_are_explained(tmp_path: Path) -> None:
    config = "models: {talk: {template: chatml, targets: [{speaks: scripted, script: hello.yaml}]}}"
    with gateway(tmp_path, config, files=SCRIPTS) as served:
        page = operator(served).get("/viewer/recordings")
    assert page.status_code == 200
    assert "Recordings are off" in page.text


def test_a_missing_a_foreign_and_a_locked_file_are_explained(tmp_path: Path) -> None:
    with gateway(tmp_path, MODELS, files=SCRIPTS) as served:
        browser, path = operator(served), tmp_path / "calls.sqlite"
        assert "No call has been recorded yet" in browser.get("/viewer/recordings").text
        path.write_bytes(b"no database, but a text of some length")
        foreign = browser.get("/viewer/recordings").text
        assert "cannot be read now" in foreign
        assert str(tmp_path) not in foreign
        path.unlink()
        with closing(sqlite3.connect(path)) as locked:
            locked.executescript(f"PRAGMA user_version = {SCHEMA_VERSION}; {SCHEMA} BEGIN EXCLUSIVE;")
            page = browser.get("/viewer/recordings")
    assert page.status_code == 200
    assert "locked" in page.text


async def test_a_visitor_who_may_not_read_sees_the_problem(served: Gateway) -> None:
    visitor = Visitor(Caller(), may_read=False, problem="Ask the operator.")
    with closing(PageThreads()) as threads:
        pages = RecordingPages(served.runtime.state, threads)
        page = await pages.page(PageRequest("/recordings", {}, None, ROOT, visitor))
    assert (page.status, page.values) == (200, {"problem": "Ask the operator."})


MANY = [["model", "cut", "key"], *[[OWNER, name] for name in ("run", "cut", "notice", "outcome", "model")]]
FILTERED = [*[[name] for name in CALL_FILTERS if name not in ("id", "request_id")], [], *MANY]


@pytest.mark.parametrize("beside", [{}, {"before": 7}, {"after": 7}], ids=["newest", "older", "newer"])
@pytest.mark.parametrize("names", FILTERED, ids="+".join)
def test_every_filter_reads_one_index_in_its_order(tmp_path: Path, names: list[str], beside: dict[str, int]) -> None:
    recorder = Recorder(tmp_path / "calls.sqlite", pytest.fail)
    recorder.open().result()
    with closing(open_recording(tmp_path / "calls.sqlite")) as database:
        query, given = calls_query(dict.fromkeys(names, "x"), columns=COLUMNS, **beside)  # type: ignore[arg-type]
        plan = [row["detail"] for row in database.execute(f"EXPLAIN QUERY PLAN {query} LIMIT 51", given)]
    recorder.close()
    assert " USING INDEX " in plan[0]
    assert plan[0].startswith("SEARCH") or names in (["cut"], ["notice"], [], ["model", "cut", "key"])
    assert OWNER not in names or "calls_by_key (key=?" in plan[0]
    assert [step for step in plan if "TEMP B-TREE" in step or step == "SCAN calls"] == []
