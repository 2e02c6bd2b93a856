"""Recordings of calls that end in different ways (rows H01 to H03 of ``docs/spec/reliability.md``)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.serving import Gateway, eventually, gateway
from tests.support.upstream.server import FaultyUpstream
from tests.support.world import gateway_fixture, key_file

CANARY = "canary-7f3a"
FILES = {
    "keys.yaml": key_file({"noted": "record: true", "private": "record: false"}),
    "policies/full.yaml": "record: full\nparams: {unknown: reject}\n",
    "policies/hasty.yaml": "record: full\ndelivery: {timeout: {first_token: 50ms}, retry: {attempts: 1}}\n",
    "policies/metadata.yaml": "record: metadata\nparams: {unknown: reject}\n",
    "good.yaml": f"[hel, {{pause: 0.01}}, 'lo {CANARY}', {{finish: stop}}, {{usage: [10, 5]}}]\n",
    "bad.yaml": "[{error: upstream_disconnected}]\n",
    "broken.yaml": "[hel, {error: upstream_disconnected}]\n",
    "loop.yaml": f"['{'I see. ' * 40}', {{finish: length}}]\n",
    "requested.yaml": f"['{'I see. ' * 40}', {{finish: stop}}]\n",
    "late.yaml": "[{pause: 60}, lo, {finish: stop}]\n",
    "endless.yaml": "[hel, {pause: 60}, lo, {finish: stop}]\n",
}
MODELS = {
    "good": ("full", ["good"]),
    "hashed": ("metadata", ["good"]),
    "retried": ("full", ["bad", "good"]),
    "broken": ("full", ["broken"]),
    "endless": ("full", ["endless"]),
    "slow": ("hasty", ["late"]),
    "looping": ("metadata", ["loop"]),
    "repeating": ("full", ["requested"]),
    "unrecorded": ("default", ["loop"]),
    "plain": ("default", ["good"]),
}


def models() -> str:
    lines = []
    for name, (policy, scripts) in MODELS.items():
        targets = ", ".join(f"{{speaks: scripted, script: {script}.yaml}}" for script in scripts)
        lines.append(f"  {name}: {{template: chat, policy: {policy}, targets: [{targets}]}}\n")
    lines.append(
        "  unreachable: {template: chat, policy: full, targets: [{speaks: chat, url: 'http://127.0.0.1:9/v1'}]}\n"
    )
    return "keys: {file: keys.yaml}\nmodels:\n" + "".join(lines)


CONFIG = f"recordings: {{path: calls.sqlite}}\n{models()}"
served = gateway_fixture(CONFIG, FILES)


def body(model: str, **fields: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": f"hi {CANARY}"}], **fields}


def ask(served: Gateway, model: str, key: str = "noted", **fields: object) -> httpx.Response:
    return served.chat(model, f"hi {CANARY}", key, **fields)


def rows(served: Gateway, request_id: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The calls with a request id, each with its exchanges; empty while the thread has not written any."""
    try:
        database = sqlite3.connect(f"file:{served.folder}/calls.sqlite?mode=ro", uri=True)
    except sqlite3.OperationalError:  # the first call makes the file
        return []
    database.row_factory = sqlite3.Row
    try:
        calls = database.execute("SELECT * FROM calls WHERE request_id = ?", (request_id,)).fetchall()
        query = "SELECT * FROM exchanges WHERE call = ?"
        return [(dict(call), [dict(one) for one in database.execute(query, (call["id"],))]) for call in calls]
    except sqlite3.OperationalError:  # the file has no tables yet
        return []
    finally:
        database.close()


def recorded(served: Gateway, answer: httpx.Response) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The only recording of an answer."""
    assert eventually(lambda: rows(served, answer.headers["x-request-id"]), 30)
    (found,) = rows(served, answer.headers["x-request-id"])
    return found


def test_a_completed_call_has_one_recording_with_everything_that_was_sent(served: Gateway) -> None:
    call, (exchange,) = recorded(served, ask(served, "good", seed=7, temperature=0.5, stop=["END"]))
    assert (call["outcome"], call["status"], call["key"], call["policy"]) == ("ok", 200, "noted", "full")
    assert (call["prompt_tokens"], call["completion_tokens"], call["usage_source"]) == (10, 5, "upstream")
    assert (call["attempts"], call["target"], json.loads(call["failed_attempts"])) == (1, "good/0", [])
    assert json.loads(exchange["messages"]) == body("good")["messages"]
    params = json.loads(exchange["params"])
    assert (params["temperature"], params["seed"], exchange["seed"]) == (0.5, 7, 7)
    assert json.loads(exchange["stops"]) == ["END"]
    events = json.loads(exchange["events"])
    assert [event[1] for event in events] == ["Begun", "Delta", "Delta", "Finish", "Usage"]
    assert exchange["answer_sha256"] == hashlib.sha256(f"hello {CANARY}".encode()).hexdigest()


def test_every_event_of_a_stream_has_its_time(served: Gateway) -> None:
    _, (exchange,) = recorded(served, ask(served, "good", stream=True))
    times = {event[2]["text"]: event[0] for event in json.loads(exchange["events"]) if event[1] == "Delta"}
    assert times[f"lo {CANARY}"] - times["hel"] >= 0.009


ENDINGS = {
    "retried": ("ok", 200, 2, ["retried/0=upstream_disconnected"], (10, 5)),
    "broken": ("upstream_disconnected", 200, 1, [], (None, None)),
}


@pytest.mark.parametrize("model", ENDINGS)
def test_a_call_that_fails_has_one_recording(model: str, served: Gateway) -> None:
    outcome, status, attempts, failed, tokens = ENDINGS[model]
    call, _ = recorded(served, ask(served, model, stream=True))
    assert (call["outcome"], call["status"], call["attempts"]) == (outcome, status, attempts)
    assert json.loads(call["failed_attempts"]) == failed
    assert (call["prompt_tokens"], call["completion_tokens"]) == tokens, "the failed attempt has no tokens"


FAILED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no server": ("unreachable", {}, "upstream_unreachable"),
    "after the first event": ("broken", {"stream": True}, "upstream_disconnected"),
    "no first event": ("slow", {"stream": True}, "upstream_timeout"),
    "refused": ("good", {CANARY: 1}, "unsupported_parameter"),
}


@pytest.mark.parametrize("case", FAILED)
def test_the_message_of_an_error_is_recorded_as_the_client_received_it(case: str, served: Gateway) -> None:
    model, fields, outcome = FAILED[case]
    answer = ask(served, model, **fields)
    call, _ = recorded(served, answer)
    assert call["outcome"] == outcome
    assert call["error"]
    assert json.dumps({"message": call["error"]})[1:-1] in answer.text.replace('"message":"', '"message": "')


def test_a_call_without_error_and_metadata_have_no_message_of_an_error(served: Gateway) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [("good", {}), ("hashed", {CANARY: 1})]
    for model, fields in cases:
        call, _ = recorded(served, ask(served, model, **fields))
        assert (call["outcome"], call["error"]) == ("unsupported_parameter" if fields else "ok", None)


def test_a_call_whose_client_left_has_one_recording(served: Gateway) -> None:
    headers = {"authorization": "Bearer noted"}
    request = served.http.stream("POST", "/v1/chat/completions", json=body("endless", stream=True), headers=headers)
    with request as answer:
        next(answer.iter_lines())
    call, (exchange,) = recorded(served, answer)
    assert (call["outcome"], call["status"], call["completion_tokens"]) == ("client_gone", 499, None)
    assert [event[1] for event in json.loads(exchange["events"])] == ["Begun", "Delta"]


def test_each_turn_of_a_call_is_an_exchange(served: Gateway) -> None:
    _, exchanges = recorded(served, ask(served, "good", gateway={"turns": {"questions": ["one", "two"]}}))
    assert [json.loads(one["messages"])[-1]["content"] for one in exchanges] == ["one", "two"]


def test_metadata_has_no_text(served: Gateway) -> None:
    answer = ask(served, "hashed", user=CANARY, temperature=0.25, stop=[CANARY])
    call, (exchange,) = recorded(served, answer)
    assert (call["mode"], call["prompt_tokens"]) == ("metadata", 10)
    assert CANARY not in json.dumps([call, exchange])
    params = json.loads(exchange["params"])
    assert (params["temperature"], params["user"][:7]) == (0.25, "sha256:")
    assert exchange["prompt_sha256"]
    assert json.loads(exchange["events"])[1][1:] == ["Delta", 3]


def test_a_recorded_answer_that_loops_is_counted(served: Gateway) -> None:
    for model in ("unrecorded", "repeating", "looping"):
        last = ask(served, model, stream=True)
    recorded(served, last)

    def counted(model: str, reason: str) -> float:
        return served.metric("gateway_answers_cut_total", model=model, reason=reason)

    assert eventually(lambda: counted("looping", "looping") == 1, 30)
    assert counted("looping", "length") == counted("unrecorded", "length") == 1
    assert counted("unrecorded", "looping") == counted("repeating", "looping") == 0


def test_neither_a_private_key_nor_a_policy_without_recordings_is_recorded(served: Gateway) -> None:
    answers = [ask(served, "good", "private"), ask(served, "plain")]
    last = ask(served, "good")
    recorded(served, last)  # the thread writes in order
    assert [rows(served, one.headers["x-request-id"]) for one in answers] == [[], []]


def test_the_file_has_mode_0600(served: Gateway) -> None:
    recorded(served, ask(served, "good"))
    assert {path.stat().st_mode & 0o777 for path in served.folder.glob("calls.sqlite*")} == {0o600}


def test_a_file_that_cannot_be_written_costs_recordings_and_no_calls(tmp_path: Path) -> None:
    (tmp_path / "calls.sqlite").write_bytes(b"no database" * 1000)
    with gateway(tmp_path, CONFIG, files=FILES) as broken:
        assert [ask(broken, "good").status_code for _ in range(3)] == [200] * 3
        assert eventually(lambda: broken.metric("gateway_recordings_dropped_total", reason="failed") == 3, 30)


def test_a_configuration_that_is_prepared_but_not_activated_changes_no_recording(tmp_path: Path) -> None:
    config = f"recordings: {{path: calls.sqlite}}\nredact: [/{CANARY}/]\nmodels:\n"
    config += "  good: {template: chat, policy: full, targets: [{speaks: scripted, script: good.yaml}]}\n"
    with gateway(tmp_path, config, files=FILES) as served:
        snapshot = served.runtime.state.stack.snapshot
        other = replace(snapshot, redact=(), recordings=replace(snapshot.recordings, retention=0.0))
        asyncio.run(served.runtime.prepare(other))
        _, (exchange,) = recorded(served, ask(served, "good"))
    assert "hi [redacted]" in exchange["messages"]
    assert CANARY not in str(exchange)


def test_no_key_no_header_and_no_redacted_text_is_recorded_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows T13 and H08: every secret of a call, in the file of recordings and in the log."""
    secrets = ["client-key-1a", "target-key-2b", "cookie-3c", "bob@example.com", "ACME-42", "carol@"]
    files = {
        "policies/full.yaml": "record: full\ndelivery: {retry: {attempts: 1}}\n",
        "keys.yaml": f"one: {{sha256: {hashlib.sha256(secrets[0].encode()).hexdigest()}}}\n",
        "target.key": secrets[1],
    }
    config = "recordings: {path: calls.sqlite}\nredact: [email, '/ACME-[0-9]+/']\nkeys: {file: keys.yaml}\nmodels:\n"
    headers = {"authorization": f"Bearer {secrets[0]}", "cookie": secrets[2]}
    fields = {"messages": [{"role": "user", "content": "I am bob@example.com"}], "user": "ACME-42"}
    with FaultyUpstream() as up:
        for mode in ("ok", "names-customer", "400-repeat"):
            target = f'{{speaks: chat, url: "{up.url(mode)}", key: "file:target.key"}}'
            config += f"  {mode}: {{template: chat, policy: full, targets: [{target}]}}\n"
        with caplog.at_level("INFO"), gateway(tmp_path, config, files=files) as served:
            for model in ("ok", "names-customer", "400-repeat"):
                answer = served.http.post("/v1/chat/completions", json={"model": model, **fields}, headers=headers)
                recorded(served, answer)
            assert "bob@example.com" in answer.text, "the message of the last error"
            (sent, *_) = up.requests
            assert sent.body["messages"] == fields["messages"], "the target gets the text"
            written = b"".join(path.read_bytes() for path in tmp_path.glob("calls.sqlite*"))
    assert b"I am [redacted]" in written
    assert "is not known to [redacted]" in caplog.text
    assert [secret for secret in secrets if secret.encode() in written or secret in caplog.text] == []
