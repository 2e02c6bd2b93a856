"""Updates the metrics for each finished call, in the only thread that serves calls.

prometheus-client takes a lock and looks up labels at every update. A call updates a dozen series; a stream makes one
more update for each token. So this module keeps plain numbers, and converts them when ``/metrics`` is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TypeVar

from prometheus_client.process_collector import ProcessCollector

from gateway.telemetry.merge import MetricsSnapshot
from gateway.telemetry.metric_definitions import LABEL_VALUES, METRICS, Labels
from gateway.telemetry.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

INITIAL = (
    # Counters of rare events exist from the start, so that their rate is 0 instead of "no data".
    *(("gateway_reloads_total", value) for value in LABEL_VALUES["result (reloads)"]),
    *(("gateway_client_gone_total", value) for value in LABEL_VALUES["phase"]),
    *(("gateway_shed_total", value) for value in LABEL_VALUES["reason (shed)"]),
    *(("gateway_recordings_dropped_total", value) for value in LABEL_VALUES["reason (recordings)"]),
    ("gateway_worker_restarts_total",),
    ("gateway_log_lines_dropped_total",),
)

REJECTIONS = frozenset(LABEL_VALUES["reason (param rejections)"])
NOT_INCOMPLETE = frozenset({"ok", "client_gone", "client_stalled"})
"""The outcomes of streams that were completed, or whose client has left."""

SPLIT_SERIES = {
    # Keys of ``BoundSeries`` that mean a metric with one more label.
    "prompt tokens": ("gateway_tokens_total", {"direction": "prompt"}),
    "completion tokens": ("gateway_tokens_total", {"direction": "completion"}),
    "key prompt tokens": ("gateway_key_tokens_total", {"direction": "prompt"}),
    "key completion tokens": ("gateway_key_tokens_total", {"direction": "completion"}),
    "completion chunks": ("gateway_tokens_total", {"direction": "completion", "source": "chunks"}),
    "engine cuts": ("gateway_stop_cuts_total", {"source": "engine"}),
    "gateway cuts": ("gateway_stop_cuts_total", {"source": "gateway"}),
}
CUTS = {"engine": "engine cuts", "gateway": "gateway cuts"}
LABELS = {row.name: row.labels for row in METRICS}


class NumberSeries:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def numbers(self) -> list[float]:
        """Return the value as a list."""
        return [self.value]


class HistogramSeries:
    """One series of a histogram: a count per bucket, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One count for each bucket, and one count for larger values; not cumulative."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Add many observations in one call. A stream has hundreds, and a function call for each would be slow."""
        counts = self.counts
        for bucket in map(bisect_left, repeat(self.bounds), values):
            counts[bucket] += 1
        self.sum += sum(values)

    def numbers(self) -> list[float]:
        """Return the counts, followed by the sum."""
        return [*self.counts, self.sum]


Series = TypeVar("Series", NumberSeries, HistogramSeries)


class BoundSeries(dict[str, Series]):
    """Metric → the series of calls with the same labels. A series is created at the first update."""

    def __init__(self, series: Mapping[str, defaultdict[Labels, Series]], labels: Mapping[str, str]) -> None:
        super().__init__()
        self._series: Mapping[str, defaultdict[Labels, Series]] = series
        self.labels = labels

    def __missing__(self, key: str) -> Series:
        name, further = SPLIT_SERIES.get(key, (key, {}))
        labels = {**self.labels, **further}
        series = self[key] = self._series[name][tuple([labels[label] for label in LABELS[name]])]
        return series


class Metrics:
    """All metrics of ``metric_definitions.py``. Only one thread updates them."""

    def __init__(self) -> None:
        self._numbers = {
            row.name: defaultdict[Labels, NumberSeries](NumberSeries) for row in METRICS if row.kind != "histogram"
        }
        self._histograms = {
            row.name: defaultdict[Labels, HistogramSeries](partial(HistogramSeries, row.buckets))
            for row in METRICS
            if row.kind == "histogram"
        }
        self._bound: dict[Labels, tuple[BoundSeries[NumberSeries], BoundSeries[HistogramSeries]]] = {}
        """Labels of a call → the series to update. Labels come from the configuration, so their number is limited."""
        self.in_flight = self._numbers["gateway_in_flight"]
        """(endpoint, model) → the number of running calls."""
        self.key_labels = False
        """Whether metrics name the clients' keys. If not, the label ``key`` is empty, and no key has its own series."""
        for name, *labels in INITIAL:
            self.count(name, *labels, by=0)
        self._process = ProcessCollector(registry=None)
        """The metrics of the operating system about this process."""

    def snapshot(self) -> MetricsSnapshot:
        """Return the current values. The method is cheap enough to be called every second."""
        series: Mapping[str, Mapping[Labels, NumberSeries | HistogramSeries]] = {**self._numbers, **self._histograms}
        return MetricsSnapshot(
            series={
                name: {labels: one.numbers() for labels, one in tuple(found.items())} for name, found in series.items()
            },
            process=list(self._process.collect()),
        )

    def exposition(self) -> bytes:
        """Return the body of ``/metrics``."""
        return self.snapshot().exposition()

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Increment a counter. ``labels`` are in the order of the metric's row."""
        self._numbers[name][labels].value += by

    def workers(self, number: int) -> None:
        """Set the number of processes that serve."""
        self._numbers["gateway_workers"][()].value = float(number)

    def connections(self, number: int) -> None:
        """Set the number of open connections of the main listener."""
        self._numbers["gateway_connections"][()].value = float(number)

    def loop_lag(self, seconds: float) -> None:
        """Observe the delay of a timer of the event loop."""
        self._histograms["gateway_loop_lag_seconds"][()].observe(seconds)

    def certificate_expires(self, time: float) -> None:
        """Set the Unix time at which the certificate expires."""
        self._numbers["gateway_certificate_expires_seconds"][()].value = time

    def queue_length(self, model: str, key: str) -> NumberSeries:
        """Return the gauge that counts the calls of a key in the queue of a model."""
        return self._numbers["gateway_queue_length"][model, key if self.key_labels else ""]

    def built(self, version: str, revision: str, *, key_labels: bool = False) -> None:
        """Set the facts about the gateway and its configuration. Older revisions are removed."""
        self.key_labels = key_labels
        self._numbers["gateway_build_info"].clear()
        self.count("gateway_build_info", version, revision)

    def attempt(self, model: str, target: str, outcome: str) -> None:
        """Count an attempt at a target, after the attempt has failed or begun to answer."""
        self._numbers["gateway_attempts_total"][model, target, outcome].value += 1

    def circuit(self, model: str, target: str, is_open: bool) -> None:
        """Set whether the circuit breaker of a target is open."""
        self._numbers["gateway_circuit_open"][model, target].value = float(is_open)

    def record(self, record: Record) -> None:
        """Count a finished call."""
        key = (record.endpoint, record.model, record.outcome, record.template, record.target, record.usage_source,
               record.key if self.key_labels else "", "true" if record.stream else "false")  # fmt: skip
        numbers, histograms = self._bound.get(key) or self._bind(key, record)
        duration, upstream = record.duration, record.upstream
        numbers["gateway_requests_total"].value += 1
        begun = record.upstream_first is not None or record.outcome == "ok"  # an empty answer has no first content
        overhead = None if upstream is None else max(0.0, duration - (record.queue_wait or 0.0) - upstream)
        for name, value in (
            ("gateway_request_seconds", duration),
            ("gateway_admission_seconds", record.admission),
            ("gateway_queue_wait_seconds", record.queue_wait),
            ("gateway_first_token_seconds", record.first_token),
            ("gateway_render_seconds", record.render if record.template else None),
            ("gateway_upstream_seconds", upstream if begun else None),
            ("gateway_overhead_seconds", overhead),
            ("gateway_upstream_first_token_seconds", record.upstream_first if record.upstream_stream else None),
        ):
            if value is not None:  # as ``HistogramSeries.observe``, without a function call
                series = histograms[name]
                series.counts[bisect_left(series.bounds, value)] += 1
                series.sum += value
        if record.stream:
            self._record_stream(record, numbers, histograms)
        if record.prompt_tokens:
            numbers["prompt tokens"].value += record.prompt_tokens
        if record.completion_tokens:
            numbers["completion tokens"].value += record.completion_tokens
        if numbers.labels["key"]:
            numbers["gateway_key_requests_total"].value += 1
            numbers["key prompt tokens"].value += record.prompt_tokens or 0
            numbers["key completion tokens"].value += record.completion_tokens or 0
        for source in record.stop_cuts:
            numbers[CUTS[source]].value += 1
            if source == "gateway":
                numbers["gateway_stop_leaks_total"].value += 1
        for reason in record.answers_cut:
            self.count("gateway_answers_cut_total", record.model, reason)
        if record.outcome != "ok" or record.template_notices or record.bos_anomaly or record.tool_parse_failures:
            self._record_rare(record)
        for action, number in record.markers:
            self.count("gateway_markers_total", record.model, action, by=number)

    def _bind(self, key: Labels, record: Record) -> tuple[BoundSeries[NumberSeries], BoundSeries[HistogramSeries]]:
        labels = {
            name: getattr(record, name) for name in ("endpoint", "model", "outcome", "template", "kind", "target")
        }
        labels["source"], labels["key"], labels["stream"] = key[-3:]
        bound = self._bound[key] = BoundSeries(self._numbers, labels), BoundSeries(self._histograms, labels)
        return bound

    def _record_stream(
        self, record: Record, numbers: BoundSeries[NumberSeries], histograms: BoundSeries[HistogramSeries]
    ) -> None:
        if record.gaps:
            histograms["gateway_token_gap_seconds"].observe_all(record.gaps)
        if record.first_token is None:
            return
        tokens = record.completion_tokens
        if tokens is None:  # no usage, and no tokenizer
            tokens = len(record.gaps) + 1
            numbers["completion chunks"].value += tokens
            if numbers.labels["key"]:
                numbers["key completion tokens"].value += tokens
        if record.outcome == "ok" and tokens > 1:
            each = (record.duration - record.first_token) / (tokens - 1)
            histograms["gateway_time_per_output_token_seconds"].observe(each)
        elif record.outcome not in NOT_INCOMPLETE:
            numbers["gateway_stream_incomplete_total"].value += 1

    def _record_rare(self, record: Record) -> None:
        for rule in record.template_notices:
            self.count("gateway_template_notices_total", record.template, rule)
        if record.bos_anomaly:
            self.count("gateway_bos_anomalies_total", record.model)
        if record.tool_parse_failures:
            name, failures = "gateway_tool_parse_failures_total", record.tool_parse_failures
            self.count(name, record.model, record.tool_parser, by=failures)
        if record.outcome in REJECTIONS:
            self.count("gateway_param_rejections_total", record.outcome)
        if record.outcome == "special_token_in_content":
            self.count("gateway_markers_total", record.model, "reject")
        if record.gone_phase:
            self.count("gateway_client_gone_total", record.gone_phase)
