"""One call at its backend: opens the backend, processes the events and closes the backend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from gateway.backend.engines import declared_capabilities
from gateway.backend.openai.error_mapping import WITHOUT_REASON
from gateway.calls.answer.response import ResponseStream
from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.config.snapshot import PolicySpec
from gateway.core.errors import UpstreamRejectedRequest
from gateway.policy.admit.parameters import aliases
from metatemplate.tokenizer import count
from metatemplate.values.events import Usage
from metatemplate.values.prompt import Notice

if TYPE_CHECKING:
    from gateway.storage.recorder import CallRecording

POLICY_SECTIONS = {
    "default_parameter": "params.default",
    "forced_parameter": "params.force",
    "clamped_parameter": "params.clamp",
}
"""The name of a notice → the section of the policy file that causes this notice."""
OTHER_WORDS = {
    "max_tokens": ("max_new_tokens", "max_output_tokens", "num_predict"),
    "stop": ("stop_sequences",),
    "temperature": ("greedy",),  # vLLM refuses ``n`` "when using greedy sampling"
}
"""Parameter → the words of engines and providers for it or for one of its values."""
COMMON_WORDS = frozenset({"stop", "store", "user"})
"""Names that an error has to quote: without quotes, they are words of a sentence."""


class CallRun:
    """A context manager for one call. Entering waits until the answer has begun. Leaving closes the upstream."""

    __slots__ = ("_opened", "_timeline", "prepared", "route")

    def __init__(self, route: Route, prepared: Prepared, timeline: CallTimeline) -> None:
        self.route = route
        self.prepared = prepared
        self._timeline = timeline

    async def __aenter__(self) -> ResponseStream:
        timeline, prepared, route = self._timeline, self.prepared, self.route
        exchange, backend = prepared.exchange, route.backend
        assert backend is not None
        choices = (len(exchange.prompts) or 1) * exchange.n
        timeline.cut_answers.expect(choices, exchange.params, route.context_length)
        timeline.upstream_stream = exchange.stream
        timeline.backend_opening(exchange.attempts)
        try:
            self._opened = backend.open(exchange)
            events = await self._opened.__aenter__()
        except UpstreamRejectedRequest as error:
            timeline.backend_closed()
            error.message += policy_changes(route.spec.policy, prepared.notices, error)
            raise
        except BaseException:
            timeline.backend_closed()
            raise
        if timeline.recording is not None:
            self._describe(timeline.recording)
        can_count = route.tokens is not None and exchange.endpoint != "embeddings"
        parsing, parser = prepared.parsing, None
        if parsing is not None:
            from metatemplate.answers.output_parser import OutputParser

            parser = OutputParser(parsing, timeline.delivery_notices)
        request, tokens = prepared.token_request, None
        if request is not None:
            from gateway.calls.answer.token_data import TokenData

            tokens = TokenData(request, route, exchange, timeline)
        check, rule = None, prepared.answer_rule
        if rule is not None and route.schemas is not None:
            from gateway.calls.answer.answer_check import AnswerCheck

            prompt = prepared.prompt
            own = (*route.eos_stops, *(() if prompt is None else prompt.metadata.stops))
            foreign = frozenset(exchange.stops).difference(own)
            reports = all(declared_capabilities(target).reports_stops for target in route.spec.targets)
            notices, key = timeline.delivery_notices, exchange.caller.key
            check = AnswerCheck(rule, route.schemas, notices, foreign, key, reports_stops=reports)
        return ResponseStream(exchange, events, timeline, self._count if can_count else None, parser, tokens, check)

    def _describe(self, recording: CallRecording) -> None:
        """Add what the preparation has found out, and collect the events of the answer as the client receives it."""
        recording.dataset_prompt = self.prepared.prompt_id
        recording.notices = [str(notice) for notice in self.prepared.notices]
        if recording.exchanges:
            self._timeline.delivered = recording.exchanges[-1].delivered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._opened.__aexit__(kind, error, trace)
        finally:
            self._timeline.backend_closed()

    async def _count(self, written: str) -> Usage:
        """Count the tokens with the gateway's tokenizer, for an upstream that sent no token counts."""
        tokens, exchange = self.route.tokens, self.prepared.exchange
        assert tokens is not None
        counts = [await count(tokens, p) if isinstance(p, str) else len(p) for p in exchange.prompts]
        return Usage(sum(counts), await count(tokens, written, special=False), source="estimated")


def policy_changes(policy: PolicySpec, notices: Sequence[Notice], error: UpstreamRejectedRequest) -> str:
    """Return the text that names the parameters changed by the policy, for the error of a refused request.

    Empty if the policy changed no parameter that the error is about. An error without a reason may be about each.
    """
    changes = []
    for notice in notices:
        section, name = POLICY_SECTIONS.get(notice.rule), notice.detail.partition("=")[0]
        if section == "params.default" and name not in policy.params.default:
            section = "params.max_tokens"
        if section is not None and (WITHOUT_REASON in error.message or _is_about(error, name)):
            changes.append(f"{notice.detail} ({section})")
    return f"; policies/{policy.name}.yaml had set {', '.join(changes)}" if changes else ""


def _is_about(error: UpstreamRejectedRequest, parameter: str) -> bool:
    """Return whether an error is about a parameter."""
    names = aliases(parameter)
    patterns = [_spellings(word) for name in names for word in (name, *OTHER_WORDS.get(name, ()))]
    return re.search("|".join(patterns), f"`{error.param}` {error.message}", re.IGNORECASE) is not None


def _spellings(word: str) -> str:
    """Return an expression for the spellings of a parameter, such as ``top_p``, ``top P``, ``top-p`` and ``topP``."""
    name = re.escape(word).replace("_", "[ _-]?")
    return rf"""["'`]{name}["'`.\[]""" if word in COMMON_WORDS else rf"(?<!\w){name}(?!\w)"
