"""Runs that a client names, by a header or in the path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.edge.test_recordings import recorded
from tests.support.serving import Gateway, bearer
from tests.support.world import HELLO, gateway_fixture, key_file

MODELS = """\
keys: {file: keys.yaml}
models:
  org/good: {template: base, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}
  hashed: {template: base, policy: hashed, targets: [{speaks: scripted, script: hello.yaml}]}
  plain: {template: base, targets: [{speaks: scripted, script: hello.yaml}]}
"""
FILES = {
    **HELLO,
    "keys.yaml": key_file({"ci": "record: true", "private": "record: false"}),
    "policies/full.yaml": "record: full\n",
    "policies/hashed.yaml": "record: metadata\n",
}
served = gateway_fixture(f"recordings: {{path: calls.sqlite}}\n{MODELS}", FILES)
without = gateway_fixture(MODELS.replace("policy: full, ", "").replace("policy: hashed, ", ""), FILES)

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
GOOD: dict[str, Any] = {"model": "org/good", **BODY}


def ask(served: Gateway, path: str, body: Mapping[str, Any], key: str = "ci", run: str = "") -> httpx.Response:
    headers = bearer(key) | ({"x-gateway-run": run} if run else {})
    return served.http.post(path, json=body, headers=headers)


WAYS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a header": ("/v1/chat/completions", GOOD, "n-1"),
    "the path": ("/run/n-1/v1/chat/completions", GOOD, ""),
    "the path, with the model": ("/run/n-1/org/good/v1/chat/completions", BODY, ""),
    "both": ("/run/n-1/v1/chat/completions", GOOD, "n-1"),
    "a run that is called v1": ("/run/v1/v1/chat/completions", GOOD, ""),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_recorded_call_has_the_run_that_its_client_names(way: str, served: Gateway) -> None:
    path, body, run = WAYS[way]
    answer = ask(served, path, body, run=run)
    assert answer.status_code == 200
    assert "run_not_recorded" not in answer.headers.get("x-gateway-notice", "")
    call, _ = recorded(served, answer)
    assert (call["run"], call["key"]) == ("v1" if "v1/v1" in path else "n-1", "ci")
    assert "n-1" not in served.http.get("/metrics", headers=bearer("ci")).text


def test_the_other_paths_exist_in_a_run_too(served: Gateway) -> None:
    for path in ("/run/n-1/v1/models", "/run/n-1/plain/v1/models"):
        assert served.http.get(path, headers=bearer("ci")).json()["object"] == "list"
    assert ask(served, "/run/n-1/tokenize", {"prompt": "hi"}).json()["error"]["param"] == "model"


WRONG = {
    "a space in the path": ("/run/a%20b/v1/chat/completions", "", 400, '"a b" is not a valid name of a run (/run/NAME'),
    "no name in the path": ("/run//v1/chat/completions", "", 400, '"" is not a valid name of a run'),
    "a long name": ("/v1/chat/completions", "x" * 65, 400, "(header x-gateway-run); use 1 to 64 ASCII letters"),
    "other characters": ("/v1/chat/completions", "a/b", 400, '"a/b" is not a valid name of a run (header'),
    "two names": ("/run/a/v1/chat/completions", "b", 400, 'names the run "a", and the header x-gateway-run another'),
    "a run without a name": ("/run/v1/chat/completions", "", 404, "the base_url of a run ends in /run/NAME/v1 or"),
    "another path": ("/run/a/metrics", "", 404, "the base_url of a run ends in /run/NAME/v1 or"),
    "an unknown path": ("/run/a/v1/nothing", "", 404, "unknown path"),
    "an unknown model": ("/run/a/none/v1/chat/completions", "", 404, 'no model "none"'),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_run_is_refused_with_what_to_do(case: str, served: Gateway) -> None:
    path, run, status, message = WRONG[case]
    answer = ask(served, path, GOOD, run=run)
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True), answer.text


@pytest.mark.parametrize("row", ["x" * 257, "a\tb"])
def test_an_id_of_a_row_that_is_long_or_not_printable_is_refused(row: str, served: Gateway) -> None:
    for name, status in ((row, 400), ("x" * 256, 200)):
        headers = bearer("ci") | {"x-gateway-row": name}
        answer = served.http.post("/v1/chat/completions", json=GOOD, headers=headers)
        assert (answer.status_code, "at most 256 printable" in answer.text) == (status, status == 400)


POLICY = "set record: full in policies/default.yaml"
NOTICES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "a policy without recordings": ("served", {"model": "plain"}, "ci", f"(to record it, {POLICY})"),
    "a policy without answers": (
        "served",
        {"model": "hashed"},
        "ci",
        "(only metadata, no answers, to record them, set record: full in policies/hashed.yaml)",
    ),
    "a private key": (
        "served",
        {"model": "org/good"},
        "private",
        "(to record it, remove record: false from the client",
    ),
    "no file": (
        "without",
        {"model": "plain"},
        "ci",
        f"(to record it, set recordings.path in gateway.yaml and {POLICY})",
    ),
    "a stream": ("served", {"model": "plain", "stream": True}, "ci", POLICY),
    "an explained call": ("served", {"model": "plain", "gateway": {"explain": True}}, "ci", POLICY),
    "a dialogue": ("served", {"model": "plain", "gateway": {"turns": {"questions": ["one", "two"]}}}, "ci", POLICY),
}


@pytest.mark.parametrize("case", NOTICES)
def test_a_run_that_is_not_recorded_has_a_notice_that_says_how(case: str, request: pytest.FixtureRequest) -> None:
    name, fields, key, reason = NOTICES[case]
    answer = ask(request.getfixturevalue(name), "/run/n-1/v1/chat/completions", {**BODY, **fields}, key)
    assert answer.status_code == 200, answer.text
    notices = answer.headers["x-gateway-notice"].split("; ")
    (notice,) = [one for one in notices if one.startswith("run_not_recorded: n-1 ")]
    assert reason in notice
    if "explain" in str(fields):
        assert notice in answer.json()["gateway"]["notices"]


def test_completions_have_the_notice_and_a_call_without_a_run_has_not(served: Gateway) -> None:
    body = {"model": "plain", "prompt": "hi"}
    assert "run_not_recorded" in ask(served, "/v1/completions", body, run="n-1").headers["x-gateway-notice"]
    assert "run_not_recorded" not in ask(served, "/v1/completions", body).headers.get("x-gateway-notice", "")
