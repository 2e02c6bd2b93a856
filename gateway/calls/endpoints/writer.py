"""Makes the writer of one answer."""

from __future__ import annotations

import time
from functools import partial

from gateway.calls.endpoints.context import CallContext
from gateway.calls.explain import explanation
from gateway.calls.preparation.prepare import Prepared
from gateway.wire.responses import AnswerHead, ResponseWriter


def response_writer(
    writer_class: type[ResponseWriter] | None, context: CallContext, prepared: Prepared, *, explains: bool = True
) -> ResponseWriter:
    """Return a new writer for one answer, in the format of the endpoint. ``explains``: if the client asks for it."""
    assert writer_class is not None
    call = context.call
    answer_id = f"{writer_class.id_prefix}{call.request_id.removeprefix('req_')}"
    explain = None
    if call.explain and explains:
        explain = partial(explanation, context.route, prepared, context.timeline)
    # By position: CPython makes a dictionary of the keywords that a class is called with.
    head = AnswerHead(answer_id, call.model, int(time.time()), call.include_usage, prepared.top_logprobs, explain)
    writer = writer_class(head)
    if call.echo:
        writer.repeat_request(call.echo, prepared.exchange.params)
    return writer
