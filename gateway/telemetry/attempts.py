"""Counts and logs the attempts of one model's calls at its targets (``docs/spec/reliability.md`` F18, F22, G06)."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.core.errors import GatewayError, UpstreamError
from gateway.core.exchange import Exchange, text_of_ids
from gateway.telemetry.log_event import log_event
from gateway.telemetry.metrics import Metrics
from metatemplate.values.json_values import texts_with_keys

LOG = logging.getLogger("gateway.attempts")

MAX_LINES = 50
"""The maximum number of log lines in ``WINDOW`` seconds for one target and one error code. A later line counts the
failures that were left out."""
WINDOW = 10.0
ECHOED = 12
"""The length in characters of the parts of a reason that are searched for in the request."""


@dataclass(slots=True)
class AttemptObserver:
    """Counts the outcome of each attempt, and logs a failed attempt as one line at ``WARNING``."""

    model: str
    urls: Mapping[str, str]
    """Label of a target → its address for the log, without secrets; empty for a target without an address."""
    metrics: Metrics
    redact: Callable[[str], str] = str
    """Removes from a reason the private texts that the log must not contain."""
    now: Callable[[], float] = time.monotonic
    _windows: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict, init=False)
    """Target and error code → (start of the current window, number of failures in this window)."""
    _left_out: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int), init=False)
    """Target and error code → the number of failures left out since the last line."""

    def answered(self, exchange: Exchange, target: str) -> None:
        """Count an attempt whose answer has begun."""
        exchange.attempts.answered()
        self.metrics.count("gateway_attempts_total", self.model, target, "ok")

    def failed(self, exchange: Exchange, target: str, error: GatewayError) -> None:
        """Count and log an attempt that has failed before its answer began."""
        exchange.attempts.failed(target, error.code)
        self.metrics.count("gateway_attempts_total", self.model, target, error.code)
        if error.upstream_status or isinstance(error, UpstreamError):  # else the gateway refused to send the request
            self._log("attempt_failed", exchange, target, error)

    def broke_off(self, exchange: Exchange, target: str, error: UpstreamError) -> None:
        """Log an answer that has failed after its beginning. The attempt was counted when the answer began."""
        self._log("answer_broke_off", exchange, target, error)

    def _log(self, event: str, exchange: Exchange, target: str, error: GatewayError) -> None:
        key, now = (target, error.code), self.now()
        since, lines = self._windows.get(key, (now, 0))
        if now - since >= WINDOW:
            since, lines = now, 0
        self._windows[key] = since, lines + 1
        if lines >= MAX_LINES:
            self._left_out[key] += 1
            return
        left_out = self._left_out.pop(key, 0)
        fields = {
            "model": self.model,
            "target": target,
            "url": self.urls.get(target, ""),
            "error": error.code,
            "status": error.upstream_status or None,
            "attempt": exchange.attempts.count,
            "reason": self.redact(without_echo(error.reason, exchange) if error.reason else error.message),
            **({"similar_lines_left_out": left_out} if left_out else {}),
        }
        log_event(LOG, logging.WARNING, event, exchange.request_id, fields)


def without_echo(reason: str, exchange: Exchange) -> str:
    """Return a reason without the texts of ``2 * ECHOED - 1`` or more characters that also occur in the request."""
    sent = [text for _, text in texts_with_keys([exchange.prompts, exchange.messages, exchange.params])]
    sent += filter(None, [text_of_ids(exchange)])  # an engine may decode the ids
    sent += [json.dumps(text)[1:-1] for text in sent if not text.isascii()]  # as a server may repeat them
    for text in [*sent, *exchange.stops]:
        for start in range(0, len(reason) - ECHOED + 1, ECHOED):
            end = start + ECHOED
            if reason[start:end] in text:
                while start and reason[start - 1 : end] in text:
                    start -= 1
                while end < len(reason) and reason[start : end + 1] in text:
                    end += 1
                return without_echo(f"{reason[:start]}…{reason[end:]}", exchange)
    return reason
