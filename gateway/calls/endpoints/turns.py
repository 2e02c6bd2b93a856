"""The answer to a chat request with ``gateway: {turns: …}``: the answers of all turns in one body."""

from __future__ import annotations

from dataclasses import replace

from gateway.calls.endpoints.context import CallContext
from gateway.calls.endpoints.writer import response_writer
from gateway.calls.explain import explanation
from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.turns import run_turns
from gateway.wire.responses import ResponseWriter, usage_object
from metatemplate.values.events import total_usage


async def respond(writer_class: type[ResponseWriter], context: CallContext) -> None:
    """Run the turns and send one answer: the choices of the last turn, and every turn under ``gateway.turns``."""

    def begin(route: Route, prepared: Prepared) -> None:
        context.route, context.prepared = route, prepared

    call, timeline = context.call, context.timeline
    route, turns = await run_turns(context.route, call, timeline, begin)
    last = turns[-1]
    context.call = replace(call, model=route.spec.name)
    writer = response_writer(writer_class, context, last.prepared, explains=False)
    usage = total_usage([turn.completion.usage for turn in turns])
    body = writer.whole(replace(last.completion, usage=usage))
    body["gateway"] = {
        **(explanation(route, last.prepared, timeline) if call.explain else {}),
        "turns": [
            {
                "content": turn.completion.choices[0].text,
                "finish_reason": turn.completion.choices[0].finish.reason,
                "prompt_sha256": turn.prepared.prompt_sha256,
                "usage": usage_object(turn.completion.usage) if turn.completion.usage is not None else None,
            }
            for turn in turns
        ],
    }
    context.reply(body)
