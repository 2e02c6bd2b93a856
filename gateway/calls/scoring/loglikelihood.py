"""Computes the log-likelihoods of labelled candidates, for multiple-choice tasks and perplexity.

Each text is sent as one ordinary request, with retries, failover and timeouts. Equal texts are sent once, because an
engine may compute slightly different numbers for the same text in another batch. All tokens of the text are scored
except the first token, which has no log probability. If the request has a context, its tokens are not scored.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

import orjson

from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.run import policy_changes
from gateway.calls.scoring.candidates import ScoredText
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Unit
from gateway.core.errors import InvalidValue, UpstreamRejectedRequest
from gateway.core.exchange import AttemptLog, Exchange
from gateway.policy.deliver.shared_limits import SharedLimits
from gateway.stream.completion_builder import CompletionBuilder
from gateway.stream.prompt_logprobs import PromptTokens, echoed_logprobs, listed_logprobs
from metatemplate.templates.registry import first_difference
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Begun, Completion, Document, Event, Usage, total_usage
from metatemplate.values.frozen import dataclass

AT_ONCE = 8
"""The maximum number of concurrent requests of one call."""


@dataclass(frozen=True, slots=True)
class Score:
    """The log-likelihood of one candidate."""

    logprob: float
    """The sum of the natural logarithms of the probabilities of the scored tokens."""
    tokens: int
    """The number of scored tokens, at least 1."""
    written: str | None
    """The text whose length is used for normalization. See ``ScoredText.written``."""

    @property
    def perplexity(self) -> float:
        """The perplexity, ``exp(-logprob / tokens)``. Infinite if the value is too large for a float."""
        mean = -self.logprob / self.tokens
        return math.exp(mean) if mean < 709 else math.inf

    def number_of(self, unit: Unit) -> int | None:
        """Return the candidate's length in a unit, or 1 for the unit ``none``.

        None if the unit needs the text and only the engine knows the text.
        """
        if unit in ("tokens", "none"):
            return self.tokens if unit == "tokens" else 1
        if self.written is None:
            return None
        return len(self.written) if unit == "characters" else len(self.written.encode("utf-8", "surrogatepass"))

    def normalized(self, unit: Unit) -> float:
        """Return the log-likelihood divided by the candidate's length in a unit."""
        return self.logprob / (self.number_of(unit) or 1)


async def score_candidates(
    route: Route, prepared: Prepared, texts: Sequence[ScoredText], timeline: CallTimeline
) -> tuple[Mapping[str, Score], Usage | None]:
    """Send the requests. Return label → score in the order of the request, and the sum of the token counts.

    The sum is None if a target sent no token counts. If a request fails, the other requests are cancelled, and the
    first error is raised.
    """
    timeline.backend_opening(AttemptLog())
    try:
        scored = await _completions(route, texts, timeline)
    except UpstreamRejectedRequest as error:
        error.message += policy_changes(route.spec.policy, prepared.notices, error)
        raise
    finally:
        timeline.backend_closed()
    answers = list({id(completion): completion for completion, _ in scored}.values())
    usage = total_usage([completion.usage for completion in answers])
    notices = [notice for completion in answers if completion.begun for notice in completion.begun.notices]
    events: list[Event] = [Begun("", notices=tuple(dict.fromkeys(notices))), Document(EMPTY_MAPPING)]
    timeline.events_received([*events, usage] if usage is not None else events)
    tokens = [own for _, own in scored]
    context = tokens[0] if texts[0].label is None else ()
    scores: dict[str, Score] = {}
    crossing = 0
    for text, own in zip(texts, tokens, strict=True):
        if text.label is not None:
            shared = first_difference([one.token for one in context], [one.token for one in own])
            crossing += shared < len(context)
            scores[text.label] = _score(text, own[max(shared, 1) :])
    if crossing:
        timeline.events_received([Begun("", notices=(f"token_across_context: {crossing}",))])
    return scores, usage


async def _completions(
    route: Route, texts: Sequence[ScoredText], timeline: CallTimeline
) -> list[tuple[Completion, PromptTokens]]:
    """Send a request for each different text. Return the answers and their tokens in the order of the texts.

    An answer is checked before its backend is closed, so that the log and the circuit breaker see the error.
    """
    limits = SharedLimits(timeline.attempt_log, route.spec.policy.delivery.timeout.total)
    room, backend = asyncio.Semaphore(AT_ONCE), route.backend
    assert backend is not None
    sent = [text.exchange for text in texts]
    keys = [(exchange.prompts, orjson.dumps([exchange.messages, exchange.params])) for exchange in sent]
    tasks: dict[object, asyncio.Task[tuple[Completion, PromptTokens]]] = {}

    async def completion(exchange: Exchange) -> tuple[Completion, PromptTokens]:
        builder = CompletionBuilder()
        async with room, backend.open(limits.apply(exchange)) as events:
            while batch := await events.next_batch():
                for event in batch:
                    builder.add(event)
            completion = builder.result()
            if "echo" not in exchange.params:
                return completion, listed_logprobs(completion)
            assert exchange.rendered is not None
            return completion, echoed_logprobs(completion, exchange.rendered.text, exchange.bos_text)

    try:
        async with asyncio.TaskGroup() as group:
            for key, text in zip(keys, texts, strict=True):
                if key not in tasks:
                    tasks[key] = group.create_task(completion(text.exchange))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [tasks[key].result() for key in keys]


def _score(text: ScoredText, tokens: PromptTokens) -> Score:
    if not tokens:
        raise InvalidValue(
            "a candidate has no token that can be scored: the first token of a text has no log probability; "
            "make the candidate longer, or send the text before the candidate as context",
            param="candidates",
        )
    return Score(math.fsum([token.logprob or 0.0 for token in tokens]), len(tokens), text.written)
