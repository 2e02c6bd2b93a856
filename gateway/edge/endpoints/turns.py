"""The answer to a chat request with ``gateway: {turns: …}``: the answers of all turns in one body."""

from __future__ import annotations

from dataclasses import replace

import orjson

from gateway.calls.explain import explanation
from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.calls.turns import run_turns
from gateway.core.call import Call
from gateway.core.events import total_usage
from gateway.edge.endpoints.writer import response_writer
from gateway.edge.http_request import JSON_HEADER, HttpRequest
from gateway.edge.provenance import provenance
from gateway.wire.responses import ResponseWriter, usage_object


async def respond(
    writer_class: type[ResponseWriter], request: HttpRequest, call: Call, route: Route, timeline: CallTimeline
) -> None:
    """Run the turns and send one answer: the choices of the last turn, and every turn under ``gateway.turns``."""

    def begin(route: Route, prepared: Prepared) -> None:
        request.route_context = route, prepared

    route, turns = await run_turns(route, call, timeline, begin)
    request.commit()
    last = turns[-1]
    call = replace(call, model=route.spec.name)
    writer = response_writer(writer_class, replace(call, explain=False), route, last.prepared, timeline)
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
    request.reply(200, JSON_HEADER + provenance(route, last.prepared, timeline), orjson.dumps(body))
