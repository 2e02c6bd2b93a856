"""How do records become metrics? Through one registry, made once per process and handed around."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from gateway.core.record import Record
from gateway.telemetry.instruments import Histogram, Number
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


class Metrics(Collector):
    """Every metric of ``telemetry/names.py``, and how a record moves it; one thread writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._numbers = {row.name: Number(row) for row in METRICS if row.kind != "histogram"}
        self._histograms = {row.name: Histogram(row) for row in METRICS if row.kind == "histogram"}
        for name, values in FROM_THE_START.items():
            for value in values:
                self.count(name, value, by=0)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """prometheus-client: every family, in the order of its row."""
        for row in METRICS:
            yield (self._numbers.get(row.name) or self._histograms[row.name]).family()

    def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        return generate_latest(self.registry)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Move a counter; labels in the order of its row."""
        self._numbers[name].add(labels, by)

    def in_flight(self, endpoint: str, by: int) -> None:
        """A call has come (+1) or gone (-1)."""
        self._numbers["gateway_in_flight"].add((endpoint,), by)

    def built(self, version: str, revision: str) -> None:
        """Which build and configuration serve now; the series of an older one goes."""
        self._numbers["gateway_build_info"].values = {(version, revision): 1.0}

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
        gap, model = self._histograms["gateway_token_gap_seconds"], (record.model,)
        for seconds in record.gaps:
            gap.observe(model, seconds)
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
            self._histograms[name].observe(labels, seconds)
