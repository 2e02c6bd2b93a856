"""Updates the metrics for each finished call, in the only thread that serves calls.

prometheus-client takes a lock and looks up labels at every update. A call updates a dozen series; a stream makes one
more update for each token. So this module keeps plain numbers, and converts them when ``/metrics`` is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

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


class NumberSeries:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = value


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
        """Add many observations in one call. A stream has hundreds, so each bound is searched in the sorted values."""
        counts, ordered, below = self.counts, sorted(values), 0
        for bucket, bound in enumerate(self.bounds):
            up_to = bisect_right(ordered, bound)
            counts[bucket] += up_to - below
            below = up_to
        counts[-1] += len(ordered) - below
        self.sum += sum(ordered)


class CallSeries:
    """The series that every call with the same labels may update. Histograms without observations are not shown."""

    def __init__(
        self,
        counters: Mapping[str, defaultdict[Labels, NumberSeries]],
        histograms: Mapping[str, defaultdict[Labels, HistogramSeries]],
        record: Record,
        key: str,
    ) -> None:
        endpoint, model, target, stream = record.endpoint, record.model, record.target, str(record.stream).lower()
        self.requests = counters["gateway_requests_total"][endpoint, model, record.outcome]
        self.duration = histograms["gateway_request_seconds"][endpoint, model, stream]
        self.admission = histograms["gateway_admission_seconds"][endpoint,]
        self.queue_wait = histograms["gateway_queue_wait_seconds"][model, key]
        self.render = histograms["gateway_render_seconds"][record.template, record.kind]
        self.overhead = histograms["gateway_overhead_seconds"][endpoint, model, stream]
        self.upstream = histograms["gateway_upstream_seconds"][model, target, stream]
        self.upstream_first_token = histograms["gateway_upstream_first_token_seconds"][model, target]
        self.first_token = histograms["gateway_first_token_seconds"][model,]
        self.token_gap = histograms["gateway_token_gap_seconds"][model,]
        self.time_per_output_token = histograms["gateway_time_per_output_token_seconds"][model,]


class Metrics:
    """All metrics of ``metric_definitions.py``. Only one thread updates a series.

    That is the thread that serves calls, or the recorder's thread for answers that loop and recordings that fail.
    """

    def __init__(self) -> None:
        self._numbers = {
            row.name: defaultdict[Labels, NumberSeries](NumberSeries) for row in METRICS if row.kind != "histogram"
        }
        self._histograms = {
            row.name: defaultdict[Labels, HistogramSeries](partial(HistogramSeries, row.buckets))
            for row in METRICS
            if row.kind == "histogram"
        }
        self._tokens = self._numbers["gateway_tokens_total"]
        self._stop_cuts = self._numbers["gateway_stop_cuts_total"]
        self._calls: dict[tuple[str | bool, ...], CallSeries] = {}
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
        numbers = {
            name: {labels: [one.value] for labels, one in tuple(found.items())} for name, found in self._numbers.items()
        }
        histograms = {
            name: {labels: [*one.counts, one.sum] for labels, one in tuple(found.items()) if any(one.counts)}
            for name, found in self._histograms.items()
        }
        return MetricsSnapshot(series={**numbers, **histograms}, process=list(self._process.collect()))

    def exposition(self) -> bytes:
        """Return the body of ``/metrics``."""
        return self.snapshot().exposition()

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Increment a counter. ``labels`` are in the order of the metric's row."""
        self._numbers[name][labels].value += by

    def set(self, name: str, *labels: str, to: float) -> None:
        """Set a gauge. ``labels`` are in the order of the metric's row."""
        self._numbers[name][labels].value = float(to)

    def loop_lag(self, seconds: float) -> None:
        """Observe the delay of a timer of the event loop."""
        self._histograms["gateway_loop_lag_seconds"][()].observe(seconds)

    def queue_length(self, model: str, key: str) -> NumberSeries:
        """Return the gauge that counts the calls of a key in the queue of a model."""
        return self._numbers["gateway_queue_length"][model, key if self.key_labels else ""]

    def built(self, version: str, revision: str, *, key_labels: bool = False) -> None:
        """Set the facts about the gateway and its configuration. Older revisions are removed."""
        self.key_labels = key_labels
        self._numbers["gateway_build_info"].clear()
        self.count("gateway_build_info", version, revision)

    def target(self, model: str, target: str, is_avoided: bool, last: Sequence[str]) -> None:
        """Set whether calls avoid a target, and the outcomes of its last attempts."""
        self.set("gateway_circuit_open", model, target, to=is_avoided)
        for outcome in LABEL_VALUES["outcome (last attempts)"]:
            self.set("gateway_last_attempts", model, target, outcome, to=last.count(outcome))

    def record(self, record: Record) -> None:
        """Count a finished call."""
        model, key = record.model, record.key if self.key_labels else ""
        labels = record.endpoint, model, record.outcome, record.stream, record.template, record.target, key
        series = self._calls.get(labels)
        if series is None:
            series = self._calls[labels] = CallSeries(self._numbers, self._histograms, record, key)
        series.requests.value += 1
        series.duration.observe(record.duration)
        if record.admission is not None:
            series.admission.observe(record.admission)
        if record.queue_wait is not None:
            series.queue_wait.observe(record.queue_wait)
        if record.render is not None:
            series.render.observe(record.render)
        if record.upstream is not None and record.cache != "hit":
            series.overhead.observe(record.overhead)
            if record.upstream_first is not None or record.outcome == "ok":  # an empty answer has no first content
                series.upstream.observe(record.upstream)
            if record.upstream_first is not None and record.upstream_stream:
                series.upstream_first_token.observe(record.upstream_first)
        if record.stream:
            self._record_stream(record, series, key)
        if record.prompt_tokens:
            self._tokens[model, "prompt", record.usage_source].value += record.prompt_tokens
        if record.completion_tokens:
            self._tokens[model, "completion", record.usage_source].value += record.completion_tokens
        if key:
            self.count("gateway_key_requests_total", key, model, record.outcome)
            self.count("gateway_key_tokens_total", key, model, "prompt", by=record.prompt_tokens or 0)
            self.count("gateway_key_tokens_total", key, model, "completion", by=record.completion_tokens or 0)
        for source in record.stop_cuts:
            self._stop_cuts[model, source].value += 1
            if source == "gateway":
                self.count("gateway_stop_leaks_total", model)
        for reason in record.answers_cut:
            self.count("gateway_answers_cut_total", model, reason)
        for action, number in record.markers:
            self.count("gateway_markers_total", model, action, by=number)
        if record.outcome != "ok" or record.template_notices or record.bos_anomaly or record.tool_parse_failures:
            self._record_rare(record)

    def _record_stream(self, record: Record, series: CallSeries, key: str) -> None:
        if record.gaps:
            series.token_gap.observe_all(record.gaps)
        if record.first_token is None:
            return
        series.first_token.observe(record.first_token)
        tokens = record.completion_tokens
        if tokens is None:  # no usage, and no tokenizer
            tokens = len(record.gaps) + 1
            self._tokens[record.model, "completion", "chunks"].value += tokens
            if key:
                self.count("gateway_key_tokens_total", key, record.model, "completion", by=tokens)
        if record.outcome == "ok" and tokens > 1:
            series.time_per_output_token.observe((record.duration - record.first_token) / (tokens - 1))
        elif record.outcome not in NOT_INCOMPLETE:
            self.count("gateway_stream_incomplete_total", record.model)

    def _record_rare(self, record: Record) -> None:
        for rule in record.template_notices:
            self.count("gateway_template_notices_total", record.template, rule)
        if record.bos_anomaly:
            self.count("gateway_bos_anomalies_total", record.model)
        for parser, failures in record.tool_parse_failures.items():
            self.count("gateway_tool_parse_failures_total", record.model, parser, by=failures)
        if record.outcome in REJECTIONS:
            self.count("gateway_param_rejections_total", record.outcome)
        if record.outcome == "special_token_in_content":
            self.count("gateway_markers_total", record.model, "reject")
        if record.gone_phase:
            self.count("gateway_client_gone_total", record.gone_phase)
