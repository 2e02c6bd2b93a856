"""Runs a call with several turns. Each turn is one request to the model, with the earlier turns as its history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from gateway.calls.fallback import FallbackModels
from gateway.calls.preparation.dataset_prompts import DatasetConversation, dataset_prompt, make_conversation
from gateway.calls.preparation.prepare import Prepared, prepare_chat
from gateway.calls.route import Route
from gateway.calls.run import CallRun
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call, TurnRequests
from gateway.core.errors import InvalidValue, UpstreamError
from gateway.core.exchange import AttemptLog
from gateway.wire.requests import read_dataset_messages
from metatemplate.datasets.turn_requests import turn_requests
from metatemplate.templates.chat.passthrough import as_sent
from metatemplate.values.dialogue import MAX_TURNS, Dialogue
from metatemplate.values.events import Completion, Usage, total_usage

TurnPrompts = Generator[list[Any], str | None, None]
"""A generator of the prompt list or the messages of each turn. ``send(answer)`` returns the next turn."""
Render = Callable[[list[Any]], DatasetConversation]


TurnAnswer = tuple[Prepared, Completion]
"""One turn of the dialogue, and the model's answer."""


async def run_turns(
    route: Route, call: Call, timeline: CallTimeline, begin: Callable[[Route, Prepared], None]
) -> tuple[Route, list[TurnAnswer]]:
    """Run all turns in order, and return the route of the model that answered, and the answers.

    If a turn fails, the next fallback model answers all turns again. Raises the error of the last model.
    ``begin`` is called for each turn before the backend is opened. One total timeout limits all turns together.
    """
    models, used = FallbackModels(route, call, AttemptLog()), list[Usage | None]()
    try:
        while True:
            try:
                turns = await _answers(models, timeline, begin, used)
            except UpstreamError as error:
                if await models.following(error, prepare_turns) is None:
                    raise
                timeline.restart()
            else:
                timeline.render = sum([prepared.render_seconds or 0.0 for prepared, _ in turns])
                return models.route, turns
    finally:
        if used:  # the limits and the record count the turns of failed models too
            timeline.usage = total_usage(used)


async def _answers(
    models: FallbackModels,
    timeline: CallTimeline,
    begin: Callable[[Route, Prepared], None],
    used: list[Usage | None],
) -> list[TurnAnswer]:
    """Run all turns at the current model, and append the token counts of each turn to ``used``.

    Raises the error of the first turn that fails.
    """
    route, call = models.route, models.call
    prompts, render = _turns(route, call)
    turns: list[TurnAnswer] = []
    answer: str | None = None
    while True:
        try:
            items = prompts.send(answer)
        except StopIteration:
            return turns
        prepared = models.limited(await prepare_chat(route, call, render(items)))
        timeline.markers += prepared.markers
        if prepared.prompt is not None:
            timeline.template_notices += tuple([notice.rule for notice in prepared.prompt.metadata.notices])
        begin(route, prepared)
        async with CallRun(route, prepared, timeline) as events:
            completion = await events.whole()
        assert isinstance(completion, Completion)
        answer = completion.choices[0].text
        used.append(completion.usage)
        turns.append((prepared, completion))


async def prepare_turns(route: Route, call: Call) -> list[Prepared]:
    """Prepare every turn without calling the model. The history contains the answers of the dataset or the request.

    An answer that is missing there is empty.
    """
    prompts, render = _turns(route, call)
    turns = []
    for items in prompts:
        turns.append(await prepare_chat(route, call, render(items)))
        await asyncio.sleep(0)  # other calls run between two turns
    return turns


def _turns(route: Route, call: Call) -> tuple[TurnPrompts, Render]:
    """Return the turns of a dataset prompt or of messages, and the function that makes the conversation of a turn."""
    reference, turns, dialogue = call.dataset_prompt, call.turns, call.dialogue
    assert turns is not None
    assert dialogue is not None
    options = dialogue.options
    if reference is None:
        messages, start = _messages(turns, dialogue)
        return (
            turn_requests(messages, turns.mode, start),
            lambda items: DatasetConversation(dialogue=Dialogue(read_dataset_messages(items), options)),
        )
    prompt = dataset_prompt(route, reference)
    return (
        prompt.turns(reference.variables, turns.mode),
        lambda items: make_conversation(route, prompt, reference, items, options),
    )


def _messages(turns: TurnRequests, dialogue: Dialogue) -> tuple[list[dict[str, Any]], int]:
    """Return the messages of a request with its questions and answers, and the index of the first question."""
    messages = [dict(as_sent(message)) for message in dialogue.messages]
    start = len(messages) if turns.questions else 0
    for number, question in enumerate(turns.questions):
        answer = turns.answers[number] if number < len(turns.answers) else ""
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    most = sum(message["role"] == "assistant" for message in messages[start:])
    if most > MAX_TURNS:
        raise InvalidValue(f"a call has at most {MAX_TURNS} turns, not {most}", param="messages")
    if messages[-1]["role"] != "assistant":  # the model answers the last message too
        messages.append({"role": "assistant", "content": ""})
    return messages, start
