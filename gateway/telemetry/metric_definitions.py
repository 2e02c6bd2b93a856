"""The table of metrics: name, kind, labels, meaning.

The code, the test of ``docs/metrics.md`` and the dashboard test read these rows. The bucket edges for first token, gap
and request are vLLM's, so that one panel can show gateway and engine together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# fmt: off
FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
               80.0, 160.0, 640.0, 2560.0)
GAP = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUEST = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
           240.0, 480.0, 960.0, 1920.0, 7680.0)
# fmt: on
OWN = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


LABEL_VALUES = {
    "endpoint": (
        "chat",
        "completions",
        "detokenize",
        "embeddings",
        "input_tokens",
        "loglikelihood",
        "other",
        "render",
        "responses",
        "tokenize",
    ),
    "outcome": ("ok", "client_gone", "client_stalled", "cancelled"),
    "outcome (last attempts)": ("ok", "refused", "failed"),
    "stream": ("true", "false"),
    "kind": ("meta", "prompter", "jinja", "chat", "base"),
    "direction": ("prompt", "completion"),
    "source (tokens)": ("upstream", "estimated", "chunks", "cache"),
    "source (stop cuts)": ("engine", "gateway"),
    "reason (shed)": ("in_flight", "draining", "queue_full", "queue_timeout", "connections", "client_connections"),
    "reason (recordings)": ("queue_full", "disk_full", "failed"),
    "reason (param rejections)": ("invalid_value", "unsupported_parameter", "forbidden_parameter"),
    "reason (answers cut)": ("thinking", "empty", "context", "length", "at_limit", "looping"),
    "rule": (
        "changed_content",
        "default_prompt",
        "dropped_turn",
        "fallback_role",
        "filled_content",
        "frozen_clock",
        "ignored_field",
        "merged_turns",
        "system_folded",
        "template_variant",
        "tool_result_printed",
        "undefined_variable",
    ),
    "action": ("escape", "reject", "strip", "allow", "report", "token_ids"),
    "phase": ("before_first", "mid_stream", "stalled"),
    "result (reloads)": ("ok", "error"),
    "result (store)": ("allowed", "limited", "refused", "settled"),
    "result (cache)": ("hit", "miss", "bypass", "error"),
}
"""Label → the fixed set of its values, as in ``docs/metrics.md``. ``outcome`` may also be an error code."""

Labels = tuple[str, ...]
"""The values of a series' labels, in the order of the metric's row."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: name, kind, labels, help text, buckets."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


METRICS = (
    Metric("gateway_requests_total", "counter", ("endpoint", "model", "outcome"),
           "Finished calls; outcome is ok, client_gone, client_stalled, cancelled (cut at shutdown) or an error code."),
    Metric("gateway_request_seconds", "histogram", ("endpoint", "model", "stream"),
           "Time from the request's head to the last byte of the answer.", REQUEST),
    Metric("gateway_first_token_seconds", "histogram", ("model",),
           "Time from the request's head to the first content written to the client; streams only.", FIRST_TOKEN),
    Metric("gateway_token_gap_seconds", "histogram", ("model",),
           "Time between neighbouring content events of a stream.", GAP),
    Metric("gateway_time_per_output_token_seconds", "histogram", ("model",),
           "Time per output token, one value per stream: (duration - first token) / (tokens - 1).", GAP),
    Metric("gateway_overhead_seconds", "histogram", ("endpoint", "model", "stream"),
           "Time spent in the gateway itself: the duration minus the time in the queue and with the upstream.",
           OWN),
    Metric("gateway_queue_wait_seconds", "histogram", ("model", "key"),
           "Time that calls to a model with `limits.concurrency` spent in its queue: 0 for calls that did not wait; "
           "calls that are refused at once do not count.",
           FIRST_TOKEN),
    Metric("gateway_queue_length", "gauge", ("model", "key"),
           "Calls that wait in the queue of a model."),
    Metric("gateway_render_seconds", "histogram", ("template", "kind"),
           "Time to render a conversation to a prompt.", OWN),
    Metric("gateway_admission_seconds", "histogram", ("endpoint",),
           "Time from the request's head to the parsed, admitted call.", OWN),
    Metric("gateway_upstream_seconds", "histogram", ("model", "target", "stream"),
           "Time from the request to a target until the end of the target's answer.", REQUEST),
    Metric("gateway_upstream_first_token_seconds", "histogram", ("model", "target"),
           "Time from the request to a target until the target's first content; streams only.", FIRST_TOKEN),
    Metric("gateway_attempts_total", "counter", ("model", "target", "outcome"),
           "Attempts at targets; outcome is ok or an error code."),
    Metric("gateway_retry_budget_exhausted_total", "counter", ("model",),
           "Retries that were not made, because the retry budget of the model was used up."),
    Metric("gateway_circuit_open", "gauge", ("model", "target"),
           "1 while calls avoid a failing target; with several workers, the number of workers that avoid it."),
    Metric("gateway_last_attempts", "gauge", ("model", "target", "outcome"),
           "The last attempts at a target, at most 10 of each process; outcome is ok, refused (a request that cannot "
           "be served, 4xx) or failed."),
    Metric("gateway_tokens_total", "counter", ("model", "direction", "source"),
           "Tokens; direction is prompt or completion, source is upstream, estimated, chunks or cache."),
    Metric("gateway_key_requests_total", "counter", ("key", "model", "outcome"),
           "Finished calls of a client key; outcome as in gateway_requests_total."),
    Metric("gateway_key_tokens_total", "counter", ("key", "model", "direction"),
           "Tokens of a client key, from every source of gateway_tokens_total."),
    Metric("gateway_in_flight", "gauge", ("endpoint", "model"),
           "Calls under way; the model is unknown until the body has been read."),
    Metric("gateway_shed_total", "counter", ("reason",),
           "Calls and connections refused because of load or shutdown."),
    Metric("gateway_connections", "gauge", (),
           "Open connections of the main listener."),
    Metric("gateway_store_failures_total", "counter", ("result",),
           "Calls that were decided without the store of the rate limits, because it failed; "
           "result is allowed, limited (429), refused (503) or settled (tokens corrected at the end)."),
    Metric("gateway_cache_requests_total", "counter", ("model", "result"),
           "Look-ups in the cache; result is hit, miss, bypass (not looked up) or error (the store failed)."),
    Metric("gateway_recordings_dropped_total", "counter", ("reason",),
           "Calls that should be recorded but are not; reason is queue_full, disk_full or failed."),
    Metric("gateway_stop_cuts_total", "counter", ("model", "source"),
           "Choices that ended at a stop; source is engine (the engine stopped) or gateway (the text was cut)."),
    Metric("gateway_stop_leaks_total", "counter", ("model",),
           "Answers in which an engine did not stop at a stop string; the gateway cut the text."),
    Metric("gateway_answers_cut_total", "counter", ("model", "reason"),
           "Choices that are empty or cut off; reason is thinking, empty, context, length or at_limit; for recorded "
           "calls also looping."),
    Metric("gateway_bos_anomalies_total", "counter", ("model",),
           "Prompts that may reach the model with two BOS tokens, or none."),
    Metric("gateway_template_notices_total", "counter", ("template", "rule"),
           "Notices of templates that changed a conversation; rule is the name of the notice."),
    Metric("gateway_markers_total", "counter", ("model", "action"),
           "Markers of the template in texts of requests, by the action of the policy; reject counts requests."),
    Metric("gateway_tool_parse_failures_total", "counter", ("model", "parser"),
           "Texts that began like a tool call and were sent as text; parser is the format."),
    Metric("gateway_param_rejections_total", "counter", ("reason",),
           "Requests refused for a parameter; reason is the error code."),
    Metric("gateway_stream_incomplete_total", "counter", ("model",),
           "Streams that failed after their first content, unless the client left or stalled."),
    Metric("gateway_client_gone_total", "counter", ("phase",),
           "Clients that left or stopped reading; phase is before_first, mid_stream or stalled."),
    Metric("gateway_loop_lag_seconds", "histogram", (),
           "The delay of a timer that each process starts ten times a second; long if a call blocks the event loop.",
           OWN),
    Metric("gateway_certificate_expires_seconds", "gauge", (),
           "The Unix time at which the certificate of server.tls expires; absent without TLS."),
    Metric("gateway_reloads_total", "counter", ("result",),
           "Configuration reloads; result is ok or error."),
    Metric("gateway_workers", "gauge", (),
           "Processes that serve; less than `server.workers` while one is being replaced."),
    Metric("gateway_worker_restarts_total", "counter", (),
           "Workers that ended by themselves or were killed, and were replaced."),
    Metric("gateway_log_lines_dropped_total", "counter", (),
           "Log lines that were dropped because standard error was not read."),
    Metric("gateway_build_info", "gauge", ("version", "revision"),
           "Always 1; the labels are the version of the gateway and the revision of the configuration."),
)  # fmt: skip
