"""Admits a call: the client's key, the size and the fields of the body, the model, and the limits, in this order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from gateway.calls.admission.access import authorized_route, check_path, identify, only_model
from gateway.calls.admission.facts import RequestBody, RequestFacts
from gateway.calls.route import Route
from gateway.calls.stack import Stack
from gateway.calls.timeline import UNKNOWN_MODEL, CallTimeline
from gateway.config.snapshot import PolicySpec
from gateway.core.call import Call
from gateway.core.caller import Caller
from gateway.core.errors import GatewayError, InvalidValue
from gateway.policy.access.limits import Permit
from gateway.wire.json import parse_object
from metatemplate.values.words import quoted

SHORT_BODY = 64 * 1024
"""If a call is refused because of load, a body of at most this many bytes is read, to find the model for metrics."""
SHORT_BODY_SECONDS = 0.25
"""Seconds to wait for the body of a call refused because of load. Clients send a body directly after the head."""
LONG_BODY = 1024 * 1024
"""The size in bytes above which other calls may run between parsing and checking a body. Both take milliseconds."""


async def admit(
    facts: RequestFacts,
    source: RequestBody,
    stack: Stack,
    read: Callable[..., Call],
    timeline: CallTimeline,
    may_omit_model: bool,
) -> tuple[Call, Route, Permit | None]:
    """Admit the call of a request. Wait while the model has too many calls.

    Returns the call, the route of its model, and its slots and charges, which its end must release; None if neither its
    key nor its model has limits. Raises ``GatewayError`` if the call is refused.

    ``read``: see ``Endpoint.read``. ``may_omit_model``: whether a request may name no model if there is only one.
    ``timeline`` gets each fact as soon as it is known.
    """
    caller = identify(stack, facts, timeline.trace)
    timeline.key = caller.key
    if facts.model is not None:
        check_path(stack, caller, facts, facts.model)
        timeline.model = facts.model
    limit = stack.snapshot.server.max_body
    if (raw := source.take_body(limit)) is None:
        timeline.count_for(UNKNOWN_MODEL)
        raw = await source.body(limit)
    body = parse_object(raw)
    if len(raw) > LONG_BODY:
        await asyncio.sleep(0)  # other calls run between parsing and checking
    if facts.model is not None:
        _name_model(body, facts.model)
    elif may_omit_model and body.get("model") is None:
        body["model"] = only_model(stack, caller)
    try:
        call = read(body, request_id=facts.request_id, caller=caller)
    except GatewayError:
        name = body.get("model")
        if type(name) is str and name in stack.routes and caller.may_use(name):
            timeline.model = name
        raise
    route = authorized_route(stack, caller, call.model)
    timeline.model = call.model
    timeline.count_for(call.model)
    timeline.template, timeline.kind = route.template.spec.name, route.template.spec.kind
    timeline.stream = call.stream
    timeline.admitted()
    if route.spec.policy.record != "off" or caller.run:
        _record(stack, route, call, timeline)
    is_limited = stack.limiter.is_limited(caller, call.model)
    return call, route, await _permit(stack, route, call, timeline) if is_limited else None


async def _permit(stack: Stack, route: Route, call: Call, timeline: CallTimeline) -> Permit:
    """Take the slots and charges of a call. Wait while the model has too many calls."""
    texts = call.raw_prompts if call.dialogue is None else call.dialogue.texts
    characters, tokens = sum(map(len, texts)), call.n * _most_tokens(call, route)
    return await stack.limiter.admit(call.caller, route.spec, characters, tokens, timeline.queue_waited)


def _record(stack: Stack, route: Route, call: Call, timeline: CallTimeline) -> None:
    """Begin the recording of a call, with the facts that are known at its admission.

    A call whose answer is not recorded has a notice if its client names a run.
    """
    policy, recorder, caller = route.spec.policy, stack.recorder, call.caller
    is_recorded = policy.record != "off" and recorder is not None and caller.record
    if caller.run and not (is_recorded and policy.record == "full"):
        timeline.run_not_recorded(_not_recorded(stack, policy, caller))
    if recorder is None or not is_recorded:
        return
    facts = recorder.Facts(
        policy=policy.name,
        policy_sha256=policy.digest,
        template_sha256=route.template.spec.digest,
        run=caller.run,
        row=caller.row,
        call=call,
        targets=route.spec.targets,
    )
    mode: Literal["metadata", "full"] = "full" if policy.record == "full" else "metadata"
    timeline.recording = recorder.begin(mode, facts, stack.snapshot.recordings, stack.redactor)


def _not_recorded(stack: Stack, policy: PolicySpec, caller: Caller) -> str:
    """Return the notice of a call that names a run and whose answer is not recorded.

    The text has no semicolon: see ``provenance``. It says what to change, for the operator of the gateway.
    """
    changes = [] if caller.record else ["remove record: false from the client key"]
    changes += [] if stack.recorder is not None else ["set recordings.path in gateway.yaml"]
    only_metadata = not changes and policy.record == "metadata"
    changes += [] if policy.record == "full" else [f"set record: full in policies/{policy.name}.yaml"]
    what = "only metadata, no answers, to record them" if only_metadata else "to record it"
    return f"run_not_recorded: {caller.run} ({what}, {' and '.join(changes)})"


async def model_of_refused(facts: RequestFacts, source: RequestBody, stack: Stack, timeline: CallTimeline) -> str:
    """Return the model of a call that is refused because of load, from the path or from a short body.

    Raises ``GatewayError`` or ``TimeoutError`` if the model is not known so early, or if the key forbids the model.
    """
    caller, name = identify(stack, facts), facts.model
    timeline.key = caller.key
    if name is not None:
        check_path(stack, caller, facts, name)
    else:
        limit = min(stack.snapshot.server.max_body, SHORT_BODY)
        async with asyncio.timeout(SHORT_BODY_SECONDS):
            name = parse_object(source.take_body(limit) or await source.body(limit)).get("model")
    return authorized_route(stack, caller, name if isinstance(name, str) else "").spec.name


def _name_model(body: dict[str, Any], model: str) -> None:
    """Write the model of the path (``/{model}/v1/…``) into the body. Refuse a body that names a different model."""
    if body.get("model") is None:
        body["model"] = model
    if body["model"] != model:
        raise InvalidValue(
            f"the body names another model than the path ({quoted(model)}); use the same model in both", param="model"
        )


def _most_tokens(call: Call, route: Route) -> int:
    """Return the maximum number of tokens of one answer, by the request, the policy and the context of the model."""
    policy = route.spec.policy.params
    limit = call.params.get("max_completion_tokens") or call.params.get("max_tokens") or policy.max_tokens
    bounds = [policy.clamp.get("max_tokens"), policy.clamp.get("max_completion_tokens"), route.max_model_len]
    return int(min([limit, *[bound for bound in bounds if bound is not None]]))
