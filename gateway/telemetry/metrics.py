"""The metrics of a process, and how the record of a call moves them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from gateway.core.record import Record
from gateway.telemetry.instruments import Histogram, Labels, Number
from gateway.telemetry.names import LABEL_VALUES, METRICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FROM_THE_START = {
    # Rare events whose rate should read 0, not "no data", before the first of them.
    "gateway_reloads_total": LABEL_VALUES["result"],
    "gateway_client_gone_total": LABEL_VALUES["phase"],
    "gateway_shed_total": LABEL_VALUES["reason (shed)"],
}

REJECTIONS = frozenset(LABEL_VALUES["reason (param rejections)"])
NOT_INCOMPLETE = frozenset({"ok", "client_gone", "client_stalled"})
"""Outcomes after which no client has received only a part of a stream."""


class Metrics(Collector):
    """Every metric of ``telemetry/names.py``; one thread writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._numbers = {row.name: Number(row) for row in METRICS if row.kind != "histogram"}
        self._histograms = {row.name: Histogram(row) for row in METRICS if row.kind == "histogram"}
        for name, values in FROM_THE_START.items():
            for value in values:
                self.count(name, value, by=0)
        for name in ("gateway_worker_restarts_total", "gateway_log_lines_dropped_total"):
            self.count(name, by=0)
        self.process = ProcessCollector(registry=self.registry)
        """The operating system's figures of this process."""
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """prometheus-client: every family, in the order of its row."""
        for row in METRICS:
            yield (self._numbers.get(row.name) or self._histograms[row.name]).family()

    def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        return generate_latest(self.registry)

    def snapshot(self) -> tuple[dict[str, dict[Labels, float]], dict[str, dict[Labels, list[float]]]]:
        """Copies of the series of all counters and gauges, and of all histograms, by name."""
        return (
            {name: dict(number.series) for name, number in self._numbers.items()},
            {
                name: {labels: list(series) for labels, series in histogram.series.items()}
                for name, histogram in self._histograms.items()
            },
        )

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Move a counter or gauge; labels in the order of its row."""
        self._numbers[name].add(labels, by)

    def workers(self, number: int) -> None:
        """Set the number of serving processes."""
        self._numbers["gateway_workers"].series = {(): float(number)}

    def built(self, version: str, revision: str) -> None:
        """Set the build and the configuration that serve; replaces the series of earlier ones."""
        self._numbers["gateway_build_info"].series = {(version, revision): 1.0}

    def attempt(self, model: str, target: str, outcome: str) -> None:
        """Count an attempt at a target that has ended or begun to answer."""
        self.count("gateway_attempts_total", model, target, outcome)

    def record(self, record: Record) -> None:
        """Count a finished call."""
        model, target, duration, upstream = record.model, record.target, record.duration, record.upstream
        call = (record.endpoint, model)
        self.count("gateway_requests_total", record.endpoint, model, record.outcome)
        self._observe("gateway_request_seconds", call, duration)
        self._observe("gateway_admission_seconds", (record.endpoint,), record.admission)
        self._observe("gateway_first_token_seconds", (model,), record.first_token)
        if record.template:
            self._observe("gateway_render_seconds", (record.template, record.kind), record.render)
        if upstream is not None:
            # An empty answer has no first content.
            if record.upstream_first is not None or record.outcome == "ok":
                self._observe("gateway_upstream_seconds", (model, target), upstream)
            self._observe("gateway_overhead_seconds", call, max(duration - upstream, 0.0))
        self._observe("gateway_upstream_first_token_seconds", (model, target), record.upstream_first)
        if record.stream:
            self._stream(record)
        if record.prompt_tokens:
            self.count("gateway_tokens_total", model, "prompt", record.usage_source, by=record.prompt_tokens)
        if record.completion_tokens:
            self.count("gateway_tokens_total", model, "completion", record.usage_source, by=record.completion_tokens)
        for source in record.stop_cuts:
            self.count("gateway_stop_cuts_total", model, source)
            if source == "gateway":
                self.count("gateway_stop_leaks_total", model)
        if record.outcome != "ok" or record.role_rewrites or record.bos_anomaly or record.tool_parse_failures:
            self._anomalies(record)

    def _observe(self, name: str, labels: Labels, value: float | None) -> None:
        if value is not None:
            self._histograms[name].observe(labels, value)

    def _stream(self, record: Record) -> None:
        labels = (record.model,)
        for gap in record.gaps:
            self._histograms["gateway_token_gap_seconds"].observe(labels, gap)
        if record.first_token is None:
            return
        tokens = record.completion_tokens or 0
        if record.outcome == "ok" and tokens > 1:
            each = (record.duration - record.first_token) / (tokens - 1)
            self._observe("gateway_time_per_output_token_seconds", labels, each)
        elif record.outcome not in NOT_INCOMPLETE:
            self.count("gateway_stream_incomplete_total", record.model)

    def _anomalies(self, record: Record) -> None:
        for rule in record.role_rewrites:
            self.count("gateway_role_rewrites_total", record.template, rule)
        if record.bos_anomaly:
            self.count("gateway_bos_anomalies_total", record.model)
        if record.tool_parse_failures:
            self.count(
                "gateway_tool_parse_failures_total",
                record.model,
                record.tool_parser,
                by=record.tool_parse_failures,
            )
        if record.outcome in REJECTIONS:
            self.count("gateway_param_rejections_total", record.outcome)
        if record.gone_phase:
            self.count("gateway_client_gone_total", record.gone_phase)
