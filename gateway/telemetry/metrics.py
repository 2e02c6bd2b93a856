"""How do records become metrics? Through one registry, made once per process and handed around."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from gateway.core.record import Record
from gateway.telemetry.names import METRICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FROM_THE_START = {
    # Rare events whose rate should read 0, not "no data", before the first of them.
    "gateway_reloads_total": ("ok", "error"),
    "gateway_client_gone_total": ("before_first", "mid_stream"),
    "gateway_shed_total": ("in_flight", "draining"),
}

REJECTIONS = frozenset({"invalid_value", "unsupported_parameter", "forbidden_parameter"})
AFTER_BEGIN = frozenset({
    "upstream_disconnected", "upstream_incomplete", "upstream_invalid_stream", "upstream_idle_timeout",
})  # fmt: skip


class Metrics:
    """Every metric of ``telemetry/names.py``, and how a record moves it."""

    def __init__(self) -> None:
        # A second series for each of ours, which nothing here asks for. The library leaves it untyped.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}
        for row in METRICS:
            if row.kind == "counter":
                self._counters[row.name] = Counter(row.name, row.help, row.labels, registry=self.registry)
            elif row.kind == "gauge":
                self._gauges[row.name] = Gauge(row.name, row.help, row.labels, registry=self.registry)
            else:
                self._histograms[row.name] = Histogram(
                    row.name, row.help, row.labels, buckets=row.buckets, registry=self.registry
                )

        for name, values in FROM_THE_START.items():
            for value in values:
                self.count(name, value, by=0)

    def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        return generate_latest(self.registry)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Move a counter; labels in the order of its row."""
        self._counters[name].labels(*labels).inc(by)

    def in_flight(self, endpoint: str, by: int) -> None:
        """A call has come (+1) or gone (-1)."""
        self._gauges["gateway_in_flight"].labels(endpoint).inc(by)

    def built(self, version: str, revision: str) -> None:
        """Which build and configuration serve now; the series of an older one goes."""
        self._gauges["gateway_build_info"].clear()
        self._gauges["gateway_build_info"].labels(version, revision).set(1)

    def attempt(self, model: str, target: str, outcome: str) -> None:
        """One attempt at one target has ended or begun to answer."""
        self.count("gateway_attempts_total", model, target, outcome)

    def record(self, record: Record) -> None:
        """Everything a finished call tells."""
        model, endpoint = record.model, record.endpoint
        self.count("gateway_requests_total", endpoint, model, record.outcome)
        self._see("gateway_request_seconds", record.duration, endpoint, model)
        self._see("gateway_admission_seconds", record.admission, endpoint)
        self._see("gateway_first_token_seconds", record.first_token, model)
        if record.template:
            self._see("gateway_render_seconds", record.render, record.template, record.kind)
        for rule in record.role_rewrites:
            self.count("gateway_role_rewrites_total", record.template, rule)
        if record.target:
            self._see("gateway_upstream_seconds", record.upstream, model, record.target)
            self._see("gateway_upstream_first_token_seconds", record.upstream_first, model, record.target)
        if record.upstream is not None:
            self._see("gateway_overhead_seconds", max(record.duration - record.upstream, 0.0), endpoint, model)
        self._stream(record)
        self._tokens(record)
        for source in record.stop_cuts:
            self.count("gateway_stop_cuts_total", model, source)
            if source == "gateway":
                self.count("gateway_stop_leaks_total", model)
        if record.bos_anomaly:
            self.count("gateway_bos_anomalies_total", model)
        if record.outcome in REJECTIONS:
            self.count("gateway_param_rejections_total", record.outcome)
        if record.gone_phase:
            self.count("gateway_client_gone_total", record.gone_phase)

    def _stream(self, record: Record) -> None:
        if not record.stream:
            return
        gap = self._histograms["gateway_token_gap_seconds"].labels(record.model)
        for seconds in record.gaps:
            gap.observe(seconds)
        if record.outcome in AFTER_BEGIN and record.first_token is not None:
            self.count("gateway_stream_incomplete_total", record.model)
        tokens = record.completion_tokens or 0
        if record.outcome == "ok" and record.first_token is not None and tokens > 1:
            each = (record.duration - record.first_token) / (tokens - 1)
            self._see("gateway_time_per_output_token_seconds", each, record.model)

    def _tokens(self, record: Record) -> None:
        for direction, number in (("prompt", record.prompt_tokens), ("completion", record.completion_tokens)):
            if number:
                self.count("gateway_tokens_total", record.model, direction, record.usage_source, by=number)

    def _see(self, name: str, seconds: float | None, *labels: str) -> None:
        if seconds is not None:
            self._histograms[name].labels(*labels).observe(seconds)
