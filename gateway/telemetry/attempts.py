"""Counts and logs the attempts of one model's calls at its targets (``docs/spec/reliability.md`` F18, F22, G06)."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from gateway.core.errors import GatewayError, UpstreamError
from gateway.core.exchange import Exchange
from gateway.telemetry.log_event import log_event
from gateway.telemetry.metrics import Metrics

LOG = logging.getLogger("gateway.attempts")

MAX_LINES = 50
"""Lines in ``WINDOW`` seconds for one target and one error code; further failures are counted in a later line."""
WINDOW = 10.0
ECHOED = 12
"""The reason is searched for content of the request in parts of this many characters."""


@dataclass(slots=True)
class AttemptObserver:
    """Receives the outcome of each attempt. A failed attempt is one line at ``WARNING``."""

    model: str
    urls: Mapping[str, str]
    """The target's label → the address for the log, without secrets; empty for a target without one."""
    metrics: Metrics
    redact: Callable[[str], str] = str
    """Removes from a reason what the log must not contain."""
    now: Callable[[], float] = time.monotonic
    _windows: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict, init=False)
    """Target and error code → the beginning of the current window, and the failures in it so far."""
    _left_out: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int), init=False)
    """Target and error code → the failures without a line since the last line."""

    def answered(self, exchange: Exchange, target: str) -> None:
        """An answer has begun."""
        exchange.attempts.answered()
        self.metrics.attempt(self.model, target, "ok")

    def failed(self, exchange: Exchange, target: str, error: GatewayError) -> None:
        """An attempt has failed before its answer."""
        exchange.attempts.failed(target, error.code)
        self.metrics.attempt(self.model, target, error.code)
        if error.upstream_status or isinstance(error, UpstreamError):  # else the gateway refused to send the request
            self._log("attempt_failed", exchange, target, error)

    def broke_off(self, exchange: Exchange, target: str, error: UpstreamError) -> None:
        """An answer has failed after it had begun. The attempt was counted when the answer began."""
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


def without_secrets(url: str, path: str) -> str:
    """The address and the path below it, without user name, password, query and fragment, which may be secret."""
    parts = urlsplit(url)
    shown = parts.path.rstrip("/") + path
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], shown, "", "")) if url else ""


def without_echo(reason: str, exchange: Exchange) -> str:
    """Remove texts of ``2 * ECHOED - 1`` or more characters that also occur in the request, from a reason."""
    sent = [*_strings(exchange.prompts), *_strings(exchange.messages), *_strings(exchange.params)]
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


def _strings(value: object) -> Iterator[str]:
    """Every string in a request's value, with the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)
