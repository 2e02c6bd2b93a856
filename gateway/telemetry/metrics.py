"""How do records become metrics? Through one registry, made once per process and handed around."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from gateway.core.record import Record
from gateway.telemetry.instruments import Count, Histogram, HistogramSeries, Labels, Number
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
"""The outcomes after which no client is left with a part of a stream."""

SAID_TWICE = {
    # Series of one metric that differ in a label which stands in no record.
    "prompt tokens": ("gateway_tokens_total", {"direction": "prompt"}),
    "completion tokens": ("gateway_tokens_total", {"direction": "completion"}),
    "engine cuts": ("gateway_stop_cuts_total", {"source": "engine"}),
    "gateway cuts": ("gateway_stop_cuts_total", {"source": "gateway"}),
}
CUTS = {"engine": "engine cuts", "gateway": "gateway cuts"}
LABELS = {row.name: row.labels for row in METRICS}

Series = TypeVar("Series", Count, HistogramSeries)


class Bound(dict[str, Series]):
    """The series that one kind of calls moves, by metric; found when first moved, so nothing is told of the others."""

    def __init__(self, at: Callable[[str, Labels], Series], labels: Mapping[str, str]) -> None:
        super().__init__()
        self._at: Callable[[str, Labels], Series] = at
        self._labels = labels

    def __missing__(self, key: str) -> Series:
        name, more = SAID_TWICE.get(key, (key, {}))
        labels = {**self._labels, **more}
        series = self[key] = self._at(name, tuple([labels[label] for label in LABELS[name]]))
        return series


class InFlight(dict[str, Count]):
    """The calls under way, by endpoint; moved by whoever serves them, told of when first moved."""

    def __init__(self, number: Number) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, key: str) -> Count:
        count = self[key] = self._number.at((key,))
        return count


class Metrics(Collector):
    """Every metric of ``telemetry/names.py``, and how a record moves it; one thread writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._numbers = {row.name: Number(row) for row in METRICS if row.kind != "histogram"}
        self._histograms = {row.name: Histogram(row) for row in METRICS if row.kind == "histogram"}
        self._bound: dict[Labels, tuple[Bound[Count], Bound[HistogramSeries]]] = {}
        """What calls move that are alike in every label; names of the configuration, so they are limited."""
        self.in_flight = InFlight(self._numbers["gateway_in_flight"])
        for name, values in FROM_THE_START.items():
            for value in values:
                self.count(name, value, by=0)
        for name in ("gateway_worker_restarts_total", "gateway_log_lines_dropped_total"):
            self.count(name, by=0)
        self.process = ProcessCollector(registry=self.registry)
        """What the operating system tells of this process."""
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """prometheus-client: every family, in the order of its row."""
        for row in METRICS:
            yield (self._numbers.get(row.name) or self._histograms[row.name]).family()

    def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        return generate_latest(self.registry)

    def snapshot(self) -> tuple[dict[str, dict[Labels, float]], dict[str, dict[Labels, list[float]]]]:
        """Our own counters and gauges, and our histograms, by name; cheap enough for every few seconds."""
        return (
            {name: number.snapshot() for name, number in self._numbers.items()},
            {name: histogram.snapshot() for name, histogram in self._histograms.items()},
        )

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Move a counter; labels in the order of its row."""
        self._numbers[name].at(labels).value += by

    def workers(self, number: int) -> None:
        """So many processes serve now."""
        self._numbers["gateway_workers"].at(()).value = float(number)

    def built(self, version: str, revision: str) -> None:
        """Which build and configuration serve now; the series of an older one goes."""
        self._numbers["gateway_build_info"].series = {(version, revision): Count(1.0)}

    def attempt(self, model: str, target: str, outcome: str) -> None:
        """One attempt at one target has ended or begun to answer."""
        labels = (model, target, outcome)
        number = self._numbers["gateway_attempts_total"]
        (number.series.get(labels) or number.at(labels)).value += 1

    def record(self, record: Record) -> None:
        """Everything a finished call tells."""
        kind = (record.endpoint, record.model, record.outcome, record.template, record.target, record.usage_source)
        counts, spreads = self._bound.get(kind) or self._bind(kind, record)
        duration, upstream = record.duration, record.upstream
        counts["gateway_requests_total"].value += 1
        begun = record.upstream_first is not None or record.outcome == "ok"  # an empty answer has no first content
        overhead = None if upstream is None else duration - upstream if duration > upstream else 0.0
        for name, value in (
            ("gateway_request_seconds", duration),
            ("gateway_admission_seconds", record.admission),
            ("gateway_first_token_seconds", record.first_token),
            ("gateway_render_seconds", record.render if record.template else None),
            ("gateway_upstream_seconds", upstream if begun else None),
            ("gateway_overhead_seconds", overhead),
            ("gateway_upstream_first_token_seconds", record.upstream_first),
        ):
            if value is not None:  # ``HistogramSeries.observe``, without a call for each
                spread = spreads[name]
                spread.counts[bisect_left(spread.bounds, value)] += 1
                spread.sum += value
        if record.stream:
            self._stream(record, counts, spreads)
        if record.prompt_tokens:
            counts["prompt tokens"].value += record.prompt_tokens
        if record.completion_tokens:
            counts["completion tokens"].value += record.completion_tokens
        for source in record.stop_cuts:
            counts[CUTS[source]].value += 1
            if source == "gateway":
                counts["gateway_stop_leaks_total"].value += 1
        if record.outcome != "ok" or record.role_rewrites or record.bos_anomaly or record.tool_parse_failures:
            self._oddities(record)

    def _bind(self, kind: Labels, record: Record) -> tuple[Bound[Count], Bound[HistogramSeries]]:
        labels = {
            "endpoint": record.endpoint,
            "model": record.model,
            "outcome": record.outcome,
            "template": record.template,
            "kind": record.kind,
            "target": record.target,
            "source": record.usage_source,
        }
        bound = self._bound[kind] = (Bound(self._count_at, labels), Bound(self._spread_at, labels))
        return bound

    def _count_at(self, name: str, labels: Labels) -> Count:
        return self._numbers[name].at(labels)

    def _spread_at(self, name: str, labels: Labels) -> HistogramSeries:
        return self._histograms[name].at(labels)

    def _stream(self, record: Record, counts: Bound[Count], spreads: Bound[HistogramSeries]) -> None:
        if record.gaps:
            spreads["gateway_token_gap_seconds"].observe_all(record.gaps)
        if record.first_token is None:
            return
        tokens = record.completion_tokens or 0
        if record.outcome == "ok" and tokens > 1:
            each = (record.duration - record.first_token) / (tokens - 1)
            spreads["gateway_time_per_output_token_seconds"].observe(each)
        elif record.outcome not in NOT_INCOMPLETE:
            counts["gateway_stream_incomplete_total"].value += 1

    def _oddities(self, record: Record) -> None:
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
