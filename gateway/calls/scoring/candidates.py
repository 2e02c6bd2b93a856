"""Prepares a log-likelihood request: makes one request to a target for each labelled candidate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from gateway.calls.answer.token_data import tokenizes_special
from gateway.calls.preparation.dataset_prompts import dataset_prompt, make_conversation, name_prompt
from gateway.calls.preparation.prepare import CONTINUE_FINAL, Prepared, check_length, make_exchange
from gateway.calls.route import Route
from gateway.core.call import Call, Candidates, PromptReference
from gateway.core.errors import InvalidValue, RequestError, UnsupportedParameter
from gateway.core.exchange import Exchange
from metatemplate.errors import InputError
from metatemplate.markers.marker_rule import refusal
from metatemplate.markers.role_boundaries import SafePrompt
from metatemplate.values.dialogue import Dialogue, Message, RenderOptions
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Notice, Pieces, Prompt, PromptMetadata, Segment

REQUEST_FIELDS: Mapping[str, Mapping[str, Any]] = {
    # As lm-eval sends them: some engines read ``logprobs: 0`` as none, others ``max_tokens: 0`` as no limit.
    "echo": {"echo": True, "logprobs": 1, "max_tokens": 1},
    "prompt_logprobs": {"prompt_logprobs": 0, "max_tokens": 1},
}
"""Value of ``Route.prompt_logprobs`` → the fields that request the log probabilities of a prompt."""

COMPLETE = {"add_generation_prompt": False}
"""The field that makes an engine render a complete conversation."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """One text whose log probabilities are requested."""

    label: str | None
    """The label of the candidate. None for the context alone, whose tokens are not scored."""
    exchange: Exchange
    written: str | None
    """The text whose characters and bytes are counted: the candidate's string, or the rendered conversation. None if
    the engine renders the conversation."""


async def prepare_candidates(route: Route, call: Call) -> tuple[Prepared, Sequence[ScoredText]]:
    """Check and render the candidates. Raises a ``RequestError`` if the model does not support the request.

    Returns all requests combined into one, for the response headers and the explanation; and the texts: the context, if
    the request has a context, and then the candidates in the order of the request.
    """
    candidates = call.candidates
    assert candidates is not None
    _check_form(route, call, candidates)
    params, notices = _parameters(route, call)
    started = time.perf_counter()
    prompt_id = ""
    found: list[SafePrompt] = []
    if call.dataset_prompt is None:
        prompts = await _prompts(route, call, candidates, found)
    else:
        prompts, prompt_id = await dataset_candidates(route, call, call.dataset_prompt, found)
    for prompt in prompts.values():
        length = len(prompt.text) + sum([len(str(message.get("content"))) for message in prompt.messages or ()])
        check_length(length, "candidates")
    rendered = time.perf_counter() - started
    texts = [await _scored_text(route, call, candidates, label, prompt, params) for label, prompt in prompts.items()]
    marker_notices = tuple(dict.fromkeys([notice for safe in found for notice in safe.notices]))
    rewrites = tuple(dict.fromkeys([notice for prompt in prompts.values() for notice in prompt.metadata.notices]))
    prepared = Prepared(
        exchange=_together(texts),
        prompt=Prompt(metadata=PromptMetadata(notices=rewrites)) if _has_template(call, candidates) else None,
        notices=rewrites + marker_notices + notices,
        render_seconds=rendered,
        prompt_id=prompt_id,
        markers=tuple([marker for safe in found for marker in safe.markers]),
    )
    return prepared, texts


def _check_form(route: Route, call: Call, candidates: Candidates) -> None:
    """Raise ``InvalidValue`` if the model's targets return no log probabilities for candidates of this form."""
    name = route.spec.name
    if route.prompt_logprobs is None:
        raise InvalidValue(
            f"the targets of model {name} do not return the log probabilities of a prompt; targets that do: "
            "speaks: embedded, speaks: completions (except engine: tgi), speaks: chat with engine: vllm",
            param="model",
        )
    if route.form == "text":
        return
    if not _has_template(call, candidates) or isinstance(candidates.context, str):
        raise InvalidValue(
            f"model {name} accepts only messages; send messages as candidates, or as context with the answers as "
            "candidates",
            param="candidates" if candidates.context is None else "context",
        )
    if candidates.context is None and candidates.normalize in ("characters", "bytes"):
        raise InvalidValue(
            f"the engine of model {name} renders the messages, so the number of {candidates.normalize} is not known; "
            "normalize by tokens, or send the messages as context with the answers as candidates",
            param="normalize",
        )


def _has_template(call: Call, candidates: Candidates) -> bool:
    """Return whether the model's template renders the context or a candidate."""
    values = (candidates.context, *candidates.labelled.values())
    return call.dataset_prompt is not None or any(isinstance(value, Dialogue) for value in values)


def _parameters(route: Route, call: Call) -> tuple[Mapping[str, Any], tuple[Notice, ...]]:
    """Return the parameters of every request, including the parameters that the policy adds, and their notices."""
    assert route.prompt_logprobs is not None
    fields = REQUEST_FIELDS[route.prompt_logprobs]
    policy = route.parameters["completions" if route.form == "text" else "chat"]
    call = replace(call, params=fields, given=call.given | fields.keys())
    policy.check(call)
    effective = policy.effective(call)
    for name, value in fields.items():
        if effective.params.get(name) != value:
            raise UnsupportedParameter(
                f"the policy of model {route.spec.name} changes {name}; log-likelihoods need {name}={value}",
                param="model",
            )
    return effective.params, effective.notices


async def _prompts(
    route: Route, call: Call, candidates: Candidates, found: list[SafePrompt]
) -> dict[str | None, Prompt]:
    """Return a mapping: label → prompt. The key None has the prompt of the context alone."""
    context, labelled = candidates.context, candidates.labelled
    prompts: dict[str | None, Prompt] = {}
    if context is None:
        for label, candidate in labelled.items():
            if isinstance(candidate, str):
                prompts[label] = Prompt(candidate)
            else:
                whole = replace(candidate, options=replace(candidate.options, whole=True))
                prompts[label] = await _rendered(route, call, whole, found)
    else:
        before = Prompt(context) if isinstance(context, str) else await _rendered(route, call, context, found)
        prompts[None] = before
        for label, answer in labelled.items():
            assert isinstance(answer, str)
            if isinstance(context, Dialogue) and route.form == "messages":
                messages = (*context.messages, Message("assistant", answer))
                options = replace(context.options, continue_final=True)
                prompts[label] = await _rendered(route, call, Dialogue(messages, options), found)
            else:
                prompts[label] = _continued(route, call, before, answer)
    return await _with_files(route, prompts)


def _continued(route: Route, call: Call, before: Prompt, answer: str) -> Prompt:
    """Return a context with an answer. Its segments are needed only if the context is sent as token ids."""
    if route.prompt_ids is None or not before.segments:
        return replace(before, text=before.text + answer, source=Pieces())
    written = Segment(answer, "", "candidates", route.prompt_ids.whole or call.caller.allow_markers)
    return Prompt.of((*before.segments, written), before.metadata, before.breaks)


async def dataset_candidates(
    route: Route, call: Call, reference: PromptReference, found: list[SafePrompt]
) -> tuple[dict[str | None, Prompt], str]:
    """Return the complete prompt of each label of a dataset prompt, and the dataset prompt's name and hash.

    ``found``: a list to which the result of the marker policy for each prompt is added.
    """
    prompts: dict[str | None, Prompt] = {}
    prompt_id = ""
    try:
        dataset = dataset_prompt(route, reference)
        for label, items in dataset.candidates(reference.variables, reference.examples).items():
            made = make_conversation(route, dataset, reference, items, RenderOptions(whole=True), "ppl")
            prompt = await _rendered(route, call, made.dialogue, found, made.prompt)
            metadata = replace(prompt.metadata, notices=made.notices + prompt.metadata.notices)
            prompts[label], prompt_id = replace(prompt, metadata=metadata), made.prompt_id
        prompts = await _with_files(route, prompts)
    except (RequestError, InputError) as error:  # other endpoints have the dataset prompt in ``gateway``
        name_prompt(error, reference.id)
        error.param = (error.param or "prompt").removeprefix("gateway.")
        raise
    return prompts, prompt_id


async def _rendered(
    route: Route, call: Call, dialogue: Dialogue, found: list[SafePrompt], prompt: Prompt | None = None
) -> Prompt:
    if route.media is not None:
        route.media.check(dialogue.messages, files=call.caller.allow_media_files)
    safe = await route.renderer.render_safely(dialogue, prompt, allow=call.caller.allow_markers)
    if route.prompt_ids is not None:
        prompt = await route.prompt_ids.attributed(dialogue, safe, allow=call.caller.allow_markers)
        safe = replace(safe, prompt=prompt)
    elif safe.prompt.breaks:
        raise refusal("candidates")  # candidates are scored as text, so no token ids can be sent
    found.append(safe)
    return safe.prompt


async def _with_files(route: Route, prompts: dict[str | None, Prompt]) -> dict[str | None, Prompt]:
    """Return the prompts with the final addresses of media files."""
    if route.media is None or not route.media.takes_files:
        return prompts
    messages = iter(await route.media.with_files([one for prompt in prompts.values() for one in prompt.messages or ()]))
    return {
        label: replace(prompt, source=tuple(islice(messages, len(prompt.messages or ()))))
        for label, prompt in prompts.items()
    }


async def _scored_text(
    route: Route, call: Call, candidates: Candidates, label: str | None, prompt: Prompt, params: Mapping[str, Any]
) -> ScoredText:
    text = route.form == "text"
    if not text and label is not None:
        params = {**params, **(COMPLETE if candidates.context is None else CONTINUE_FINAL)}
    candidate = candidates.labelled.get(label) if label is not None else None
    exchange = make_exchange(route, call, prompt, params, generates=False)
    if route.prompt_ids is not None and prompt.segments:  # a raw prompt has no segments, and is sent as text
        ids = await route.prompt_ids.tokens.ids(prompt, special=tokenizes_special(route, exchange))
        exchange = replace(exchange, prompts=(ids,))
    return ScoredText(label, exchange, candidate if isinstance(candidate, str) else prompt.text if text else None)


def _together(texts: Sequence[ScoredText]) -> Exchange:
    """Combine all requests into one exchange, which is shown and hashed but not sent."""
    first = texts[0].exchange
    messages: list[Mapping[str, Any]] = []
    if first.messages:
        messages = [{"label": text.label, "messages": list(text.exchange.messages)} for text in texts]
    prompts = [prompt for text in texts for prompt in text.exchange.prompts]
    return replace(first, prompts=tuple(prompts), prompt_is_list=True, messages=tuple(messages))
