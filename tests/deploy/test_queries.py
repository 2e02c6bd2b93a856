"""The dashboard and the alerts query metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.core.errors import GatewayError, RequestError
from gateway.telemetry.metric_definitions import METRICS
from gateway.telemetry.metrics import Metrics
from tests.deploy import promql

ROOT = Path(__file__).resolve().parents[2]
DEPLOY, DOCS = ROOT / "deploy", ROOT / "docs"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/gateway.json").read_text(encoding="utf-8"))
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
DRAWN = {
    f"{panel['title']} {target['refId']}": (target["expr"], target.get("legendFormat", ""))
    for panel in PANELS
    for target in panel["targets"]
}
RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8").partition("\n## Alerts\n")[2].partition("\n## ")[0]
METRICS_PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^# (.+)\n(.+)", METRICS_PAGE.partition("```promql\n")[2].partition("```")[0], re.MULTILINE)
QUERIES = {
    **{name: expression for name, (expression, _) in DRAWN.items()},
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **dict(EXAMPLES),
}

BROKEN = {  # what the checker itself must see
    "no such series": ("rate(gateway_request_total[5m])", "no series gateway_request_total"),
    "a histogram's bare name": ("rate(gateway_request_seconds[5m])", "no series gateway_request_seconds"),
    "no such label in by": ("sum by (tenant) (gateway_in_flight)", "gateway_in_flight has no label tenant"),
    "no such label in a selector": (
        'gateway_shed_total{model="x"}',
        "gateway_shed_total has no label model",
    ),
    "a bracket too many": ("sum(gateway_in_flight))", "brackets do not match"),
    "a quantile without le": (
        "histogram_quantile(0.5, sum by (model) (rate(gateway_request_seconds_bucket[5m])))",
        "a quantile needs the label le",
    ),
}


def test_the_series_names_of_these_tests_are_those_of_metrics() -> None:
    text = Metrics().exposition().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    exposed = {
        name + suffix
        for name, kind in kinds.items()
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }
    assert promql.SERIES.keys() - {"up"} <= exposed


@pytest.mark.parametrize(("expression", "problem"), BROKEN.values(), ids=BROKEN)
def test_a_wrong_query_is_seen(expression: str, problem: str) -> None:
    assert problem in promql.problems(expression)


@pytest.mark.parametrize("expression", QUERIES.values(), ids=QUERIES)
def test_a_query_asks_for_series_and_labels_that_exist(expression: str) -> None:
    assert promql.problems(expression) == []


@pytest.mark.parametrize(("expression", "legend"), DRAWN.values(), ids=DRAWN)
def test_a_legend_names_labels_that_the_query_keeps(expression: str, legend: str) -> None:
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= promql.grouping(expression)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["annotations"].keys() == {"summary", "action"}
    told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert told <= promql.grouping(rule["expr"]) | promql.EVERYWHERE


@pytest.mark.parametrize("name", [name for name, expression in QUERIES.items() if "outcome=~" in expression])
def test_a_ratio_of_failures_counts_every_failure_that_is_not_the_clients(name: str) -> None:
    wanted = re.search(r'outcome=~"([^"]+)", outcome!="([^"]+)"', QUERIES[name])
    assert wanted
    counted = {code for code in _codes(GatewayError) if re.fullmatch(wanted[1], code) and code != wanted[2]}
    assert counted == _codes(GatewayError) - _codes(RequestError) - {"config_error"}


@pytest.mark.parametrize(
    "panel", [panel for panel in PANELS if panel["type"] == "table"], ids=lambda panel: panel["title"]
)
def test_a_table_names_the_columns_that_its_queries_return(panel: dict[str, Any]) -> None:
    *_, organize = (step["options"] for step in panel["transformations"])
    labels = [name for name in organize["renameByName"] if not name.startswith("Value")]
    values = [f"Value #{one['refId']}" for one in panel["targets"]] if len(panel["targets"]) > 1 else ["Value"]
    assert list(organize["renameByName"]) == labels + values
    assert list(organize["indexByName"]) == labels + values
    columns = list(organize["renameByName"].values())
    assert [one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]] == columns[len(labels) :]
    assert {one["displayName"] for one in panel["options"]["sortBy"]} <= set(columns)
    for one in panel["targets"]:
        assert (one["format"], one["instant"]) == ("table", True)
        assert set(labels) >= promql.grouping(one["expr"]) - {"le"}


def test_the_panels_that_a_text_names_exist() -> None:
    titles = [panel["title"] for panel in PANELS]
    actions = " ".join(rule["annotations"]["action"] for rule in RULES)
    section = METRICS_PAGE.partition("\n## Dashboard\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"'([A-Z][\w ,-]+)'", actions)) - {"A failing target"}
    assert named | set(re.findall(r"\*([A-Z][\w ,-]+)\*", section + RUNBOOK)) <= set(titles)
    assert len(set(titles)) == len(titles)


def test_the_runbook_has_an_entry_for_every_alert() -> None:
    entries = re.findall(r"^### (\w+)\n\n(.+)", RUNBOOK, re.MULTILINE)
    assert [alert for alert, _ in entries] == [rule["alert"] for rule in RULES]


def test_every_metric_is_drawn() -> None:
    drawn = " ".join(expression for expression, _ in DRAWN.values())
    assert [row.name for row in METRICS if row.name not in drawn] == []


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_dashboards_variables_are_declared() -> None:
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD)))
    assert used <= declared


def test_prometheus_reads_the_alerts_and_the_admin_listener() -> None:
    gateway = yaml.safe_load((DEPLOY / "gateway.yaml").read_text(encoding="utf-8"))
    port = gateway["server"]["admin"].rpartition(":")[2]
    assert PROMETHEUS["rule_files"] == ["alerts.yml"]
    (job,) = PROMETHEUS["scrape_configs"]
    assert job["job_name"] == "gateway"  # the alerts and the dashboard select it
    assert job["static_configs"] == [{"targets": [f"gateway:{port}"]}]


def _codes(error: type[GatewayError]) -> set[str]:
    """The codes of a class and of all below it."""
    return {error.code}.union(*(_codes(below) for below in error.__subclasses__()))
