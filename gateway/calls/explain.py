"""The explanation of a call: its prompt, stops, effective parameters, notices and hashes, as JSON."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from gateway.calls.answer.token_data import tokenizes_special
from gateway.calls.preparation.dataset_prompts import dataset_prompt
from gateway.calls.preparation.prepare import Prepared, make_exchange, prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.calls.turns import prepare_turns
from gateway.core.call import Call, PromptReference
from gateway.core.exchange import Exchange, text_of_ids
from metatemplate.markers.role_boundaries import SafePrompt
from metatemplate.templates.registry import first_difference
from metatemplate.tokenizer import is_short, token_ids
from metatemplate.values.dialogue import EMPTY_MAPPING, Dialogue
from metatemplate.values.prompt import DeferredSegments, Prompt


def explanation(route: Route, prepared: Prepared, timeline: CallTimeline | None = None) -> dict[str, Any]:
    """Return the explanation of a call as JSON. ``timeline``: None if the call was only rendered."""
    exchange, prompt = prepared.exchange, prepared.prompt
    text = text_of_ids(exchange)
    prompts = [list(one) if isinstance(one, tuple) else one for one in (exchange.prompts if text is None else (text,))]
    body: dict[str, Any] = {
        "model": route.spec.name,
        "template": route.template_id if prompt is not None else None,
        **({"dataset_prompt": prepared.prompt_id} if prepared.prompt_id else {}),
        "policy": route.spec.policy.name,
        "prompt": prompts[0] if len(prompts) == 1 else prompts or None,
        "messages": list(exchange.messages) or None,
        "stop": list(exchange.stops),
        "stop_token_ids": list(exchange.stop_token_ids),
        "bos": exchange.bos,
        "params": {key: value for key, value in exchange.params.items() if key != "input"},
        "n": exchange.n,
        "notices": [str(notice) for notice in prepared.notices],
        "prompt_sha256": prepared.prompt_sha256,
    }
    if text is not None:
        body |= {"prompt_form": "ids", "token_ids": list(exchange.prompts[0])}
        if is_short(text):
            body |= _different_token(route, exchange, text)
    if exchange.answer_format is not None:
        from gateway.calls.preparation.structured_output import fields_by_target

        fields = fields_by_target(route, exchange.answer_format, exchange.params)
        body["constraint"] = {label: dict(found) for label, found in fields.items()}
    if timeline is not None:
        attempts = timeline.attempt_log
        body["target"] = attempts.target
        body["attempts"] = attempts.count
        body["failed_attempts"] = [{"target": one, "code": code} for one, code in attempts.failures]
        if attempts.cache:
            body["cache"] = attempts.cache
        body["overhead_ms"] = round(timeline.elapsed_and_overhead()[1] * 1000, 3)
        body["notices"] += timeline.notices()
    return body


def _different_token(route: Route, exchange: Exchange, text: str) -> dict[str, Any]:
    """Return the first token that is sent and is another one if the text is tokenized as a whole; empty if none is.

    ``position``: of the token, from 0. ``sent``, ``of_text``: its names in the vocabulary, of what is sent and of the
    whole text; None behind the end of one of them.
    """
    tokens, sent = route.tokens, exchange.prompts[0]
    assert tokens is not None  # which has made the token ids
    assert not isinstance(sent, str)
    whole = tokens.tokenize(text, tokenizes_special(route, exchange))
    at = first_difference(sent, whole)
    names = [next(iter(tokens.names(ids[at : at + 1])), None) for ids in (sent, whole)]
    if names == [None, None]:
        return {}
    return {"first_different_token": {"position": at, "sent": names[0], "of_text": names[1]}}


async def rendering(route: Route, call: Call) -> tuple[Prepared, dict[str, Any]]:
    """Return the prepared call and its explanation, for ``/v1/render`` and ``gateway render --json``.

    For a call with turns, the explanation has a list of all turns. The dataset's answers replace the model's answers.
    """
    if call.dataset_prompt is not None and dataset_prompt(route, call.dataset_prompt).labels:
        return await _label_rendering(route, call, call.dataset_prompt)
    if call.turns is None:
        prepared = await prepare(route, call)
        return prepared, await _rendering(route, prepared)
    turns = await prepare_turns(route, call)
    return turns[-1], {"model": route.spec.name, "turns": [await _rendering(route, turn) for turn in turns]}


async def _label_rendering(route: Route, call: Call, reference: PromptReference) -> tuple[Prepared, dict[str, Any]]:
    """Return the explanation with the prompts that ``/v1/loglikelihood`` scores for a dataset prompt with labels."""
    from gateway.calls.scoring.candidates import dataset_candidates

    found: list[SafePrompt] = []
    prompts, prompt_id = await dataset_candidates(route, call, reference, found)
    texts = {label: prompt.text or list(prompt.messages or ()) for label, prompt in prompts.items()}
    exchange = replace(
        make_exchange(route, call, None, EMPTY_MAPPING, generates=False),
        prompts=tuple([prompt.text for prompt in prompts.values()]),
        messages=tuple([message for prompt in prompts.values() for message in prompt.messages or ()]),
        prompt_is_list=True,
    )
    prepared = Prepared(exchange=exchange, prompt=Prompt(), notices=(), prompt_id=prompt_id)
    return prepared, {
        "model": route.spec.name,
        "template": route.template_id,
        "dataset_prompt": prompt_id,
        "policy": route.spec.policy.name,
        "labels": texts,
        "prompt_sha256": prepared.prompt_sha256,
    }


async def _rendering(route: Route, prepared: Prepared) -> dict[str, Any]:
    """Return the explanation of a rendered call, with the segments and the token ids of its prompt."""
    body, prompt = explanation(route, prepared), prepared.prompt
    if prompt is None:
        return body
    # To find the origin of each segment, a long conversation may have to be rendered several times.
    ready = not isinstance(prompt.source, DeferredSegments | Dialogue)
    segments = prompt.segments if ready else await asyncio.to_thread(lambda: prompt.segments)
    if segments is not None:
        body["segments"] = [
            {"text": s.text, "role": s.role, "origin": s.origin, "scaffold": s.scaffold} for s in segments
        ]
        if route.tokens is not None and "token_ids" not in body:
            special = tokenizes_special(route, prepared.exchange)
            body["token_ids"] = await token_ids(route.tokens, prompt.text, special=special)
        elif route.tokens is not None and not is_short(prompt.text):
            body |= await asyncio.to_thread(_different_token, route, prepared.exchange, prompt.text)
    return body
