"""Each record moves the metrics it is about, and no other; and a serving gateway tells each call exactly once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.calls.endpoints.table import ENDPOINTS
from gateway.telemetry.metric_definitions import LABEL_VALUES, METRICS
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record
from metatemplate.templates.spec import TemplateSpec
from tests.deploy import promql
from tests.support.serving import ROOT, Gateway, eventually, gateway
from tests.support.upstream.server import FaultyUpstream, refused_url

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series(exposition: str) -> Series:
    """Our own samples, without buckets and creation times, that are not 0."""
    found: Series = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            ours = sample.name.startswith("gateway_") and not sample.name.endswith(("_bucket", "_created"))
            if ours and sample.value:
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def moved(record: Record, *, key_labels: bool = False) -> dict[str, float]:
    """``name{label,label}`` → value for everything that one record moves."""
    metrics = Metrics()
    metrics.key_labels = key_labels
    metrics.record(record)
    told = series(metrics.exposition().decode())
    return {f"{name}{{{','.join(in_order(name, labels))}}}": value for (name, labels), value in told.items()}


def in_order(name: str, labels: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Label values in the order of the metric's row."""
    base = name.removesuffix("_count").removesuffix("_sum")
    return tuple(dict(labels)[label] for label in next(row.labels for row in METRICS if row.name == base))


BARE = Record("req_1", "chat", "m", "ok", 200, False, duration=2.0)
STREAM = replace(BARE, stream=True, first_token=0.5, usage_source="upstream")
UPSTREAM = replace(BARE, target="m/0", attempts=1, upstream=1.5, overhead=0.5)


def always(record: Record) -> dict[str, float]:
    """What every record of 2 s moves."""
    stream = str(record.stream).lower()
    return {
        f"gateway_requests_total{{chat,m,{record.outcome}}}": 1.0,
        f"gateway_request_seconds_count{{chat,m,{stream}}}": 1.0,
        f"gateway_request_seconds_sum{{chat,m,{stream}}}": 2.0,
    }


UPSTREAM_TIMES = {
    "gateway_upstream_seconds_count{m,m/0,false}": 1,
    "gateway_upstream_seconds_sum{m,m/0,false}": 1.5,
    "gateway_overhead_seconds_count{chat,m,false}": 1,
    "gateway_overhead_seconds_sum{chat,m,false}": 0.5,
}
MOVES: dict[str, tuple[Record, dict[str, float]]] = {  # name: (record, what it moves beside ``always``)
    "nothing known": (BARE, {}),
    "admission": (replace(BARE, admission=0.5), {
        "gateway_admission_seconds_count{chat}": 1, "gateway_admission_seconds_sum{chat}": 0.5,
    }),
    "a template": (replace(BARE, template="t", kind="meta", render=0.25, template_notices=("fallback_role",)), {
        "gateway_render_seconds_count{t,meta}": 1, "gateway_render_seconds_sum{t,meta}": 0.25,
        "gateway_template_notices_total{t,fallback_role}": 1,
    }),
    "a whole answer of an upstream": (replace(UPSTREAM, upstream_first=1.0), UPSTREAM_TIMES),
    "an upstream that streams": (replace(UPSTREAM, upstream_first=1.0, upstream_stream=True), UPSTREAM_TIMES | {
        "gateway_upstream_first_token_seconds_count{m,m/0}": 1, "gateway_upstream_first_token_seconds_sum{m,m/0}": 1.0,
    }),
    "a wait in the queue": (replace(UPSTREAM, queue_wait=0.25, overhead=0.25, key="k"), {
        **UPSTREAM_TIMES, "gateway_overhead_seconds_sum{chat,m,false}": 0.25,
        "gateway_queue_wait_seconds_count{m,}": 1, "gateway_queue_wait_seconds_sum{m,}": 0.25,
    }),
    "an upstream with an empty answer": (UPSTREAM, UPSTREAM_TIMES),
    "an answer from the cache": (replace(UPSTREAM, upstream_first=1.0, upstream_stream=True, cache="hit"), {}),
    "a stream": (replace(STREAM, gaps=(0.5, 0.25), completion_tokens=4), {
        "gateway_first_token_seconds_count{m}": 1, "gateway_first_token_seconds_sum{m}": 0.5,
        "gateway_token_gap_seconds_count{m}": 2, "gateway_token_gap_seconds_sum{m}": 0.75,
        "gateway_time_per_output_token_seconds_count{m}": 1, "gateway_time_per_output_token_seconds_sum{m}": 0.5,
        "gateway_tokens_total{m,completion,upstream}": 4,
    }),
    "a stream of one token": (replace(STREAM, completion_tokens=1, usage_source="estimated"), {
        "gateway_first_token_seconds_count{m}": 1, "gateway_first_token_seconds_sum{m}": 0.5,
        "gateway_tokens_total{m,completion,estimated}": 1,
    }),
    "a stream without counts": (replace(STREAM, gaps=(0.5, 0.25), usage_source=""), {
        "gateway_first_token_seconds_count{m}": 1, "gateway_first_token_seconds_sum{m}": 0.5,
        "gateway_token_gap_seconds_count{m}": 2, "gateway_token_gap_seconds_sum{m}": 0.75,
        "gateway_time_per_output_token_seconds_count{m}": 1, "gateway_time_per_output_token_seconds_sum{m}": 0.75,
        "gateway_tokens_total{m,completion,chunks}": 3,
    }),
    "counts": (replace(BARE, prompt_tokens=7, completion_tokens=0, usage_source="upstream"), {
        "gateway_tokens_total{m,prompt,upstream}": 7,
    }),
    "stops": (replace(BARE, stop_cuts=("engine", "gateway", "engine")), {
        "gateway_stop_cuts_total{m,engine}": 2, "gateway_stop_cuts_total{m,gateway}": 1,
        "gateway_stop_leaks_total{m}": 1,
    }),
    "answers without an end": (replace(BARE, answers_cut=("thinking", "length", "length")), {
        "gateway_answers_cut_total{m,thinking}": 1, "gateway_answers_cut_total{m,length}": 2,
    }),
    "a doubtful BOS": (replace(BARE, bos_anomaly=True), {"gateway_bos_anomalies_total{m}": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_a_record_moves_what_it_is_about(name: str) -> None:
    record, expected = MOVES[name]
    told = {key: value for key, value in moved(record).items() if key not in always(record)}
    assert told == expected
    assert always(record).items() <= moved(record).items()


KEYED: dict[str, tuple[Record, dict[str, float]]] = {  # name: (record, what it moves with labels of keys)
    "a call": (
        replace(BARE, prompt_tokens=7, completion_tokens=2, queue_wait=0.5),
        {
            "gateway_key_requests_total{k,m,ok}": 1,
            "gateway_key_tokens_total{k,m,prompt}": 7,
            "gateway_key_tokens_total{k,m,completion}": 2,
            "gateway_queue_wait_seconds_count{m,k}": 1,
            "gateway_queue_wait_seconds_sum{m,k}": 0.5,
        },
    ),
    "a refusal": (replace(BARE, outcome="overloaded", status=503), {"gateway_key_requests_total{k,m,overloaded}": 1}),
    "a stream without counts": (
        replace(STREAM, gaps=(0.5, 0.25), usage_source=""),
        {
            "gateway_key_requests_total{k,m,ok}": 1,
            "gateway_key_tokens_total{k,m,completion}": 3,
        },
    ),
}


@pytest.mark.parametrize("name", KEYED)
def test_the_usage_of_a_key_has_series_only_with_labels_of_keys(name: str) -> None:
    record, expected = KEYED[name]
    record = replace(record, key="k")
    by_key = {key: value for key, value in moved(record, key_labels=True).items() if "{k," in key or ",k}" in key}
    assert by_key == expected
    assert not [key for key in moved(record) if "{k," in key or ",k}" in key]
    assert not [key for key in moved(replace(record, key=""), key_labels=True) if key.startswith("gateway_key_")]


ENDS: dict[str, tuple[Record, set[str]]] = {  # name: (record, what else it moves)
    "a refused parameter": (
        replace(BARE, outcome="forbidden_parameter", status=400),
        {
            "gateway_param_rejections_total{forbidden_parameter}",
        },
    ),
    "another refusal": (replace(BARE, outcome="model_not_found", status=404), set()),
    "a hang-up": (
        replace(BARE, outcome="client_gone", status=499, gone_phase="mid_stream"),
        {
            "gateway_client_gone_total{mid_stream}",
        },
    ),
    "a stream that broke off": (
        replace(BARE, outcome="upstream_disconnected", stream=True, first_token=0.5),
        {
            "gateway_stream_incomplete_total{m}",
            "gateway_tokens_total{m,completion,chunks}",
            "gateway_first_token_seconds_count{m}",
            "gateway_first_token_seconds_sum{m}",
        },
    ),
    **{
        f"a stream that ended with {outcome}": (
            replace(BARE, outcome=outcome, stream=True, first_token=0.5),
            {
                "gateway_stream_incomplete_total{m}",
                "gateway_tokens_total{m,completion,chunks}",
                "gateway_first_token_seconds_count{m}",
                "gateway_first_token_seconds_sum{m}",
            },
        )
        for outcome in ("upstream_error", "deadline_exceeded", "server_draining", "internal_error", "cancelled")
    },
    "a client that stalled": (
        replace(BARE, outcome="client_stalled", stream=True, first_token=0.5, gone_phase="stalled"),
        {
            "gateway_client_gone_total{stalled}",
            "gateway_tokens_total{m,completion,chunks}",
            "gateway_first_token_seconds_count{m}",
            "gateway_first_token_seconds_sum{m}",
        },
    ),
    "a stream that never began": (replace(BARE, outcome="upstream_disconnected", status=502, stream=True), set()),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_is_counted_as_what_it_was(name: str) -> None:
    record, expected = ENDS[name]
    assert moved(record).keys() == expected | always(record).keys()


def test_every_row_is_on_the_page_and_every_counter_can_move() -> None:
    text = Metrics().exposition().decode()
    for row in METRICS:
        assert f"# HELP {row.name} {row.help}" in text
        assert f"# TYPE {row.name} {row.kind}" in text


def test_the_values_of_a_label_are_those_that_the_code_gives_it() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "metatemplate").rglob("*.py")]
    rules = {rule for text in sources for rule in re.findall(r'\bNotice\(\s*"(\w+)"', text)}
    assert set(LABEL_VALUES["rule"]) == rules
    assert set(LABEL_VALUES["endpoint"]) - {"other"} == {endpoint.name for endpoint in ENDPOINTS}
    assert set(LABEL_VALUES["kind"]) == set(get_args(get_type_hints(TemplateSpec)["kind"]))
    named = {label.partition(" ")[0] for label in LABEL_VALUES}
    open_labels = {"key", "model", "target", "template", "version", "revision", "parser"}  # from files
    assert named | open_labels == {label for row in METRICS for label in row.labels}


# ---------------------------------------------------------------- end to end

CONFIG = f"""
models:
  demo:     {{template: sft-demo, policy: eval, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}
  counted:
    {{template: sft-demo, tokenizer: {ROOT}/demo/model, targets: [{{speaks: scripted, script: uncounted.yaml}}]}}
  uncounted: {{template: sft-demo, targets: [{{speaks: scripted, script: uncounted.yaml}}]}}
  leaky:    {{template: sft-demo, targets: [{{speaks: scripted, script: leaky.yaml}}]}}
  failing:  {{template: chat, targets: [{{speaks: scripted, script: failing.yaml}}]}}
  breaking: {{template: chat, targets: [{{speaks: scripted, script: breaking.yaml}}]}}
  silent:   {{template: chat, targets: [{{speaks: scripted, script: silent.yaml}}]}}
  endless:  {{template: chat, targets: [{{speaks: scripted, script: endless.yaml}}]}}
  vectors:  {{template: chat, targets: [{{speaks: scripted, script: vectors.yaml}}]}}
"""

SCRIPTS = {
    "leaky": "['2<eo', 'b>, and on it goes', {finish: stop}, {usage: [7, 9]}]",
    "uncounted": "['4', '6', '<eob>', '1', '2', {pause: 30}]",
    "failing": "[{error: upstream_error}]",
    "breaking": "[Hel, {error: upstream_disconnected}]",
    "silent": "[{pause: 30}]",
    "endless": "[a, {pause: 30}, b]",
    "vectors": "[{document: {object: list, data: []}}, {usage: [5, 0]}]",
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Gateway]:
    with gateway(tmp_path, CONFIG, files={f"{name}.yaml": script for name, script in SCRIPTS.items()}) as g:
        yield g


VALUES: dict[str, set[str]] = {}
"""Label → the values that the docs list; labels whose values come from the configuration are not included."""
for row, values in LABEL_VALUES.items():
    VALUES.setdefault(row.partition(" ")[0], set()).update(values)
VALUES["outcome"].update(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/errors.md").read_text("utf-8"), re.M))


def page(served: Gateway) -> Series:
    """What a scraper sees, once all calls are told. Its labels and their values are those of the docs."""
    assert served.wait_until_idle()
    answer = served.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    told = series(answer.text)
    for name, labels in told:
        assert dict(labels).keys() == promql.SERIES[name], name
        assert [label for label, value in labels if value not in VALUES.get(label, {value})] == [], (name, labels)
    return told


def of(told: Series, name: str) -> dict[tuple[str, ...], float]:
    """The series of one metric, by label values in the order of its row."""
    return {in_order(name, labels): value for (one, labels), value in told.items() if one == name}


def test_each_call_is_told_exactly_once(served: Gateway) -> None:
    usage = served.chat("demo", "12+34=?").json()["usage"]
    served.chat("demo", "12+34=?", stream=True)
    assert served.chat("failing").status_code == 502
    told = page(served)
    assert of(told, "gateway_requests_total") == {
        ("chat", "demo", "ok"): 2,
        ("chat", "failing", "upstream_error"): 1,
    }
    assert of(told, "gateway_request_seconds_count") == {
        ("chat", "demo", "false"): 1,
        ("chat", "demo", "true"): 1,
        ("chat", "failing", "false"): 1,
    }
    assert of(told, "gateway_first_token_seconds_count") == {("demo",): 1}  # streams only
    assert of(told, "gateway_upstream_first_token_seconds_count") == {("demo", "demo/0"): 1}
    assert of(told, "gateway_token_gap_seconds_count") == {("demo",): 1}  # "4", "6"
    assert of(told, "gateway_time_per_output_token_seconds_count") == {("demo",): 1}
    assert of(told, "gateway_admission_seconds_count") == {("chat",): 3}
    assert of(told, "gateway_render_seconds_count") == {("sft-demo", "meta"): 2, ("chat", "chat"): 1}
    assert of(told, "gateway_attempts_total") == {
        ("demo", "demo/0", "ok"): 2,
        ("failing", "failing/0", "upstream_error"): 2,
    }
    assert of(told, "gateway_tokens_total") == {
        ("demo", "prompt", "upstream"): 2 * usage["prompt_tokens"],
        ("demo", "completion", "upstream"): 2 * usage["completion_tokens"],
    }
    assert of(told, "gateway_stop_cuts_total") == {("demo", "engine"): 2}
    assert of(told, "gateway_in_flight") == {}
    assert all(math.isfinite(value) and value >= 0 for value in told.values())
    for stream in ("true", "false"):
        upstream = of(told, "gateway_upstream_seconds_sum")["demo", "demo/0", stream]
        whole = of(told, "gateway_request_seconds_sum")["chat", "demo", stream]
        overhead = of(told, "gateway_overhead_seconds_sum")["chat", "demo", stream]
        assert upstream + overhead == pytest.approx(whole, abs=2e-6)  # the page has six digits


def test_a_stop_that_an_engine_leaves_in_the_text_is_cut_and_counted(served: Gateway) -> None:
    whole = served.chat("leaky").json()
    assert whole["choices"][0]["message"]["content"] == "2"
    assert "<eo" not in served.chat("leaky", stream=True).text
    told = page(served)
    assert of(told, "gateway_stop_cuts_total") == {("leaky", "gateway"): 2}
    assert of(told, "gateway_stop_leaks_total") == {("leaky",): 2}


def test_a_stream_that_the_gateway_cuts_still_has_tokens_and_a_time_per_token(served: Gateway) -> None:
    options = {"include_usage": True}
    usage = '"completion_tokens":2,"total_tokens":17,"source":"estimated"'
    for model in ("counted", "uncounted"):
        answer = served.chat(model, "12+34=?", stream=True, stream_options=options).text
        assert (answer.count('"content":"'), usage in answer) == (2, model == "counted"), answer
    told = page(served)
    assert of(told, "gateway_stop_leaks_total") == {("counted",): 1, ("uncounted",): 1}
    assert of(told, "gateway_tokens_total") == {
        ("counted", "prompt", "estimated"): 15,
        ("counted", "completion", "estimated"): 2,
        ("uncounted", "completion", "chunks"): 2,
    }
    assert of(told, "gateway_time_per_output_token_seconds_count") == {("counted",): 1, ("uncounted",): 1}


def test_a_stream_that_breaks_is_incomplete_and_not_ok(served: Gateway) -> None:
    answer = served.chat("breaking", stream=True)
    assert (answer.status_code, "upstream_disconnected" in answer.text) == (200, True)
    told = page(served)
    assert of(told, "gateway_requests_total") == {("chat", "breaking", "upstream_disconnected"): 1}
    assert of(told, "gateway_stream_incomplete_total") == {("breaking",): 1}


def test_a_client_that_leaves_is_told_by_its_phase(served: Gateway) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with served.http.stream("POST", "/v1/chat/completions", json={"model": "endless", **body}) as answer:
        next(answer.iter_lines())
    assert served.wait_until_idle()
    served.disconnect({"model": "silent", **body}, when=lambda: served.running() == 1)
    assert eventually(lambda: served.metric("gateway_client_gone_total", phase="before_first") == 1)
    told = page(served)
    assert of(told, "gateway_client_gone_total") == {("mid_stream",): 1, ("before_first",): 1}
    assert of(told, "gateway_requests_total") == {
        ("chat", "endless", "client_gone"): 1,
        ("chat", "silent", "client_gone"): 1,
    }
    assert of(told, "gateway_in_flight") == {}


def test_running_and_refused_calls_name_their_model(tmp_path: Path) -> None:
    files = {"endless.yaml": SCRIPTS["endless"]}
    config = "models: {endless: {template: chat, targets: [{speaks: scripted, script: endless.yaml}]}}\n"
    with gateway(tmp_path, "server: {max_in_flight: 1}\n" + config, files=files) as served:
        body = {"model": "endless", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()  # the response is closed with the iterator
            next(lines)
            assert served.chat("endless").status_code == 503
            assert served.chat("endless", "x" * 100_000).status_code == 503  # too long to be parsed now
            assert served.http.post("/endless/v1/chat/completions", json={}).status_code == 503
            assert served.chat("other").status_code == 503
            told = series(served.http.get("/metrics").text)
            assert of(told, "gateway_in_flight") == {("chat", "endless"): 1}
        assert of(page(served), "gateway_requests_total") == {
            ("chat", "endless", "overloaded"): 2,
            ("chat", "unknown", "overloaded"): 2,
            ("chat", "endless", "client_gone"): 1,
        }


ATTEMPTS = re.findall(r"^\| ([\w-]+) \| ([\w-]+/\d) \| (\w+) \|", (ROOT / "docs/metrics.md").read_text("utf-8"), re.M)
"""(model, target, outcome) of each failing target on the page."""


def test_the_failed_attempts_at_failing_targets_are_those_of_the_page(tmp_path: Path) -> None:
    with FaultyUpstream() as up:
        broken, answers = up.url("500"), up.url("ok")
        urls = {
            "broken": [broken],
            "stopped": [refused_url()],
            "silent": [up.url("hang-headers")],
            "wrong-path": [up.url("404-route")],
            "wrong-key": [up.url("401")],
            "backup": [broken, answers],
        }
        config = "models:\n"
        for model, targets in urls.items():
            listed = ", ".join(f'{{speaks: chat, url: "{url}"}}' for url in targets)
            policy = "policy: hasty, " if model == "silent" else ""
            config += f"  {model}: {{template: chat, {policy}targets: [{listed}]}}\n"
        files = {"policies/hasty.yaml": "delivery: {timeout: {first_token: 100ms}}\n"}
        with gateway(tmp_path, config, files=files) as served:
            statuses = {model: served.chat(model, stream=True).status_code for model in urls}
            attempts = of(page(served), "gateway_attempts_total")
    assert [model for model, status in statuses.items() if status == 200] == ["backup"]
    assert {labels for labels in attempts if labels[2] != "ok"} == set(ATTEMPTS)


def test_a_model_that_is_not_configured_is_unknown_whatever_it_is_called(served: Gateway) -> None:
    for name in ("nobody", "../../etc", "x" * 500):
        assert served.chat(name).status_code == 404
    assert served.http.post("/v1/chat/completions", json={"model": 7}).status_code == 400
    json = {"content-type": "application/json"}
    assert served.http.post("/v1/chat/completions", content=b"{", headers=json).status_code == 400
    told = page(served)
    assert of(told, "gateway_requests_total") == {
        ("chat", "unknown", "model_not_found"): 3,
        ("chat", "unknown", "invalid_value"): 1,
        ("chat", "unknown", "invalid_json"): 1,
    }
    assert of(told, "gateway_param_rejections_total") == {("invalid_value",): 1}
    assert {dict(labels).get("model", "unknown") for _, labels in told} == {"unknown"}


def test_embeddings_are_counted_like_everything_else(served: Gateway) -> None:
    answer = served.http.post("/v1/embeddings", json={"model": "vectors", "input": "hi"})
    assert answer.json() == {"object": "list", "data": [], "model": "vectors"}
    told = page(served)
    assert of(told, "gateway_requests_total") == {("embeddings", "vectors", "ok"): 1}
    assert of(told, "gateway_tokens_total") == {("vectors", "prompt", "upstream"): 5}


def test_a_failed_call_tells_how_many_attempts_it_took(served: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="gateway.calls"):
        served.chat("failing")
        assert served.wait_until_idle()
        assert eventually(lambda: any(" chat " in line for line in caplog.messages))
    assert "attempts=2" in next(line for line in caplog.messages if " chat " in line)
