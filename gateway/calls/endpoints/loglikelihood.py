"""``POST /v1/loglikelihood`` scores labelled candidates and returns the label of the likeliest candidate."""

from __future__ import annotations

from gateway.calls.endpoints.context import CallContext
from gateway.calls.explain import explanation
from gateway.calls.scoring.candidates import prepare_candidates
from gateway.calls.scoring.loglikelihood import score_candidates
from gateway.wire.responses import usage_object


async def respond(context: CallContext) -> None:
    """Send the scores of the candidates and the label of the likeliest candidate."""
    call, route, timeline = context.call, context.route, context.timeline
    assert call.candidates is not None
    unit = call.candidates.normalize
    prepared, texts = await prepare_candidates(route, call)
    context.use(prepared)
    scores, usage = await score_candidates(route, prepared, texts, timeline)
    body = {
        "id": f"ll-{call.request_id.removeprefix('req_')}",
        "object": "loglikelihood",
        "model": call.model,
        # The first of equal values. By tokens, the highest value means the lowest perplexity
        # (``docs/spec/opencompass.md`` 4.9).
        "prediction": max(scores, key=lambda label: scores[label].normalized(unit)),
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
            for label, score in scores.items()
        },
        "usage": usage_object(usage) if usage is not None else None,
    }
    if call.explain:
        body["gateway"] = explanation(route, prepared, timeline)
    context.reply(body)
