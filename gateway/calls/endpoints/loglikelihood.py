"""``POST /v1/loglikelihood`` scores labelled candidates and returns the label of the likeliest candidate."""

from __future__ import annotations

from typing import Any

from gateway.calls.endpoints.context import CallContext
from gateway.calls.explain import explanation
from gateway.calls.scoring.candidates import prepare_candidates
from gateway.calls.scoring.loglikelihood import CandidateScores, score_candidates
from gateway.core.call import Call, Unit
from gateway.wire.responses import usage_object


async def respond(context: CallContext) -> None:
    """Send the scores of the candidates and the label of the likeliest candidate."""
    call, route, timeline = context.call, context.route, context.timeline
    assert call.candidates is not None
    candidates = await prepare_candidates(route, call)
    context.use(candidates.prepared)
    scores = await score_candidates(route, candidates, timeline)
    body = _body(call, scores, call.candidates.normalize)
    if call.explain:
        body["gateway"] = explanation(route, candidates.prepared, timeline)
    context.reply(body)


def _body(call: Call, scores: CandidateScores, unit: Unit) -> dict[str, Any]:
    return {
        "id": f"ll-{call.request_id.removeprefix('req_')}",
        "object": "loglikelihood",
        "model": call.model,
        "prediction": scores.prediction(unit),
        "normalize": unit,
        "candidates": {
            label: {
                "logprob": score.logprob,
                "tokens": score.tokens,
                "characters": score.number_of("characters"),
                "bytes": score.number_of("bytes"),
                "perplexity": score.perplexity,
                "normalized": score.normalized(unit),
            }
            for label, score in scores.labelled.items()
        },
        "usage": usage_object(scores.usage) if scores.usage is not None else None,
    }
