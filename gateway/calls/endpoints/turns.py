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
    prepared, last = turns[-1]
    context.call = replace(call, model=route.spec.name)
    writer = response_writer(writer_class, context, prepared, explains=False)
    usage = total_usage([completion.usage for _, completion in turns])
    body = writer.whole(replace(last, usage=usage))
    body["gateway"] = {
        **(explanation(route, prepared, timeline) if call.explain else {}),
        "turns": [
            {
                "content": completion.choices[0].text,
                "finish_reason": completion.choices[0].finish.reason,
                "prompt_sha256": turn.prompt_sha256,
                "usage": usage_object(completion.usage) if completion.usage is not None else None,
            }
            for turn, completion in turns
        ],
    }
    context.reply(body)
