"""Sends the requests of a proof to a configured model, or to one of its targets, with a limited concurrency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.run import CallRun
from gateway.calls.timeline import CallTimeline
from gateway.cli.options import CommandError
from gateway.cli.terminal import progress
from gateway.config.snapshot import CachePolicy, Snapshot
from gateway.core.errors import GatewayError
from gateway.evaluate.analysis.prove import Proof, ProofCall
from gateway.evaluate.analysis.rows import RunAnswer, answer_of
from gateway.evaluate.running.ask import for_each
from gateway.evaluate.running.gateways import running
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.events import Completion
from metatemplate.values.prompt import Prompt
from metatemplate.values.words import suggest

CONCURRENCY = 8
"""The maximum number of concurrent requests of a proof."""


def send_proof(proof: Proof, calls: Sequence[ProofCall], snapshot: Snapshot, config: Path) -> None:
    """Send all calls, and give each answer to the proof. Raises ``CommandError`` if the model cannot receive them.

    ``snapshot``: see ``only_target``.
    """
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send(proof, calls, snapshot, config))


def only_target(snapshot: Snapshot, target: str) -> Snapshot:
    """Return the snapshot with one model, without cache, recordings and fallback. Raises ``CommandError``.

    ``target``: the name of a model, or the label of one of its targets, such as ``demo/0``.
    """
    found = {name: (model, model.targets) for name, model in snapshot.models.items()}
    found |= {one.label: (model, (one,)) for model in snapshot.models.values() for one in model.targets}
    if target not in found:
        raise CommandError(f"--prove {target}: no such model or target{suggest(target, found)}")
    model, targets = found[target]
    policy = replace(model.policy, cache=CachePolicy(), record="off")
    model = replace(model, targets=targets, policy=policy, fallback=())
    return replace(snapshot, models={model.name: model}, keys=())


async def _send(proof: Proof, calls: Sequence[ProofCall], snapshot: Snapshot, config: Path) -> None:
    async with running(config, snapshot) as runtime:
        (route,) = runtime.state.stack.routes.values()
        takes = "messages" if route.form == "messages" else "strings"
        if any(bool(call.exchange.messages) != (takes == "messages") for call in calls):
            raise CommandError(f"--prove {route.spec.name}: this model receives {takes}, unlike the recorded requests")
        with progress("calls", range(len(calls))) as bar:

            async def send(call: ProofCall) -> None:
                try:
                    proof.answered(call, await _answers(route, call))
                except GatewayError as error:
                    proof.failed[error.code] += 1
                bar.update(1)

            await for_each(iter(calls), CONCURRENCY, send)


async def _answers(route: Route, call: ProofCall) -> list[RunAnswer]:
    """Send one request, and return its answers: cut at the stops, with the reasoning parsed."""
    exchange, prompts = call.exchange, call.exchange.prompts
    text = prompts[0] if prompts and isinstance(prompts[0], str) else call.pair.b.facts.prompt or ""
    parsing = None
    if route.output_parsing is not None:
        parsing = route.output_parsing.of(Dialogue(()), Prompt(text))
    prepared = Prepared(exchange, None, (), parsing=parsing)
    name = f"{call.part or 'control'} of {call.pair.b.custom_id}"
    async with CallRun(route, prepared, CallTimeline(exchange.endpoint, name, time.monotonic())) as events:
        completion = await events.whole()
    assert isinstance(completion, Completion), "embeddings have no answers"
    return [answer_of(choice.text, choice.fields, choice.finish.reason) for choice in completion.choices]
