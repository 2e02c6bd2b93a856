"""Adversarial texts for the marker policy, and an independent check of a prompt's boundaries.

The check does not use the gateway's search: it counts each marker in the prompt and in the text of the template.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gateway.assembly import bare_route
from gateway.calls.route import Route
from gateway.config.snapshot import MarkersPolicy, ModelSpec, PolicySpec, TargetSpec
from gateway.wire.requests import read_chat
from metatemplate.errors import ForgedMarker, InputError
from metatemplate.markers.marker_rule import MarkerCounts, MarkerRule
from metatemplate.markers.marker_set import JOINER
from metatemplate.templates.chat.passthrough import as_sent
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.prompt import MIXED, DeferredSegments, MarkerAction, Prompt, Segment

FILLERS = (
    "",
    " ",
    "\n",
    "a",
    "A",
    "Yes.",
    "USER",
    ":",
    "<",
    "<|",
    "|>",
    ">",
    "[",
    "]",
    "#",
    "_",
    "\uff5c",
    "\uff1c",
    JOINER,
    "\u200b",
    "é",
)


ACTIONS: tuple[MarkerAction, ...] = ("escape", "strip", "reject")
"""The actions after which no forged marker may be left."""


def route_of(spec: TemplateSpec, token_like: MarkerAction, text_like: MarkerAction) -> Route:
    """The route of a model with this template and these actions."""
    policy = PolicySpec("p", markers=MarkersPolicy(token_like, text_like))
    return bare_route(ModelSpec("m", spec, policy, (TargetSpec("m/0", "scripted"),)))


def adversarial_texts(markers: Sequence[str], rng: random.Random, number: int) -> list[str]:
    """Texts of whole, cut, nested, repeated and glued markers, between ordinary characters."""
    return ["".join(_pieces(markers, rng)) for _ in range(number)]


def _pieces(markers: Sequence[str], rng: random.Random) -> Iterator[str]:
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        marker = rng.choice(markers)
        cut = rng.randrange(len(marker) + 1)
        yield from rng.choice(
            (
                (marker,),
                (marker[:cut],),
                (marker[cut:],),
                (marker[:cut], marker, marker[cut:]),
                (marker[:cut], rng.choice(FILLERS), marker[cut:]),
                (rng.choice(FILLERS),),
                ("\n", marker),
                (" ", marker),
                (marker[:cut], rng.choice(markers), marker[cut:]),
                (marker[:cut] * 2, marker[cut:] * 2),
                (marker.swapcase(),),
                (marker.replace("|", "\uff5c").replace("<", "\uff1c"),),
            )
        )


def bodies(spec: TemplateSpec, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Requests that together have every text: in each role, as a string and split into parts, and in tools."""
    at = 0
    while at < len(texts):
        used = list(texts[at : at + 12])
        at += 12
        messages: list[dict[str, Any]] = []
        if len(used) % 2 == 0:
            messages.append({"role": "system", "content": used.pop()})
        for number, text in enumerate(used):
            role = "user" if number % 2 == 0 else "assistant"
            middle = len(text) // 2
            parts = [{"type": "text", "text": text[:middle]}, {"type": "text", "text": text[middle:]}]
            messages.append({"role": role, "content": parts if number % 5 == 4 and text else text})
        if messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": used[0]})
        body: dict[str, Any] = {"messages": messages}
        if spec.tools is not None:
            parameters = {"type": "object", "properties": {"q": {"type": "string", "description": used[0]}}}
            function = {"name": "find", "description": used[-1], "parameters": parameters}
            body["tools"] = [{"type": "function", "function": function}]
        yield body


def search(route: Route, texts: Sequence[str]) -> Iterator[tuple[int, list[str] | None]]:
    """For each request: the number of texts, and what is wrong with the prompt; None if the request was refused."""

    async def every() -> list[tuple[int, list[str] | None]]:
        return [await _search(route, body) for body in bodies(route.template.spec, texts)]

    yield from asyncio.run(every())


async def _search(route: Route, body: dict[str, Any]) -> tuple[int, list[str] | None]:
    for dialogue in _dialogues(body):
        try:
            prompt = await route.renderer.render(dialogue)
        except InputError:
            continue
        try:
            safe = await route.renderer.render_safely(dialogue, prompt)
        except ForgedMarker:
            return len(dialogue.messages), None
        segments = safe.prompt.segments or ()
        if not any(segment.origin == MIXED for segment in segments):
            return len(dialogue.messages), violations(route, segments) or _changed(route, prompt, segments)
        assert route.renderer.rule is not None
        blank = _blank(route.renderer.rule, dialogue)
        tools = tuple([{"type": "function", "function": {"name": "find"}} for _ in dialogue.options.tools])
        expected = (await route.renderer.render(Dialogue(blank, replace(dialogue.options, tools=tools)))).text
        markers = route.renderer.rule.markers.token_like
        return len(blank), [m for m in markers if _count(m, expected) != _count(m, safe.prompt.text)]
    raise AssertionError(f"the template {route.template.spec.name} renders none of the requests")


def _blank(rule: MarkerRule, dialogue: Dialogue) -> list[Message]:
    """The messages with other texts. Texts that are equal after the policy stay equal: a template may compare them."""
    texts: dict[str, str] = {}
    blank = []
    for message in dialogue.messages:
        safe = rule.apply_to_json(as_sent(message), "", MarkerCounts())["content"]
        text = safe if isinstance(safe, str) else "".join([part["text"] for part in safe])
        blank.append(Message(message.role, texts.setdefault(text, f"x{len(texts)}")))
    return blank


def _changed(route: Route, before: Prompt, segments: Sequence[Segment]) -> list[str]:
    """A problem if the policy changed the text of the template, or if ``escape`` changed more than it may."""
    if isinstance(before.source, DeferredSegments):
        return []
    old = [segment.text for segment in before.segments or () if segment.scaffold and segment.text]
    if old != [segment.text for segment in segments if segment.scaffold and segment.text]:
        return ["the text of the template has changed"]
    if route.spec.policy.markers.token_like == "escape" and route.spec.policy.markers.text_like == "escape":
        text = "".join([segment.text for segment in segments])
        if text.replace(JOINER, "") != before.text.replace(JOINER, ""):
            return ["escape has changed more than it may"]
    return []


def _dialogues(body: dict[str, Any]) -> Iterator[Dialogue]:
    """The dialogue of a body, then simpler ones for templates that accept fewer roles, or one message."""
    messages = body["messages"]
    talk = [message for message in messages if message["role"] != "system"]
    for chosen, rest in ((messages, body), (talk, body), (talk[-1:], body), (talk[-1:], {})):
        call = read_chat({**rest, "model": "m", "messages": chosen}, request_id="r")
        assert call.dialogue is not None
        yield call.dialogue


def violations(route: Route, segments: Sequence[Segment]) -> list[str]:
    """The markers that the prompt has more often than its stretches of template text."""
    assert route.renderer.rule is not None
    markers = route.renderer.rule.markers
    stretches = [""]
    for segment in segments:
        if segment.scaffold:
            stretches[-1] += segment.text
        elif segment.text:
            stretches.append("")
    whole = "".join([segment.text for segment in segments])
    wrong = [m for m in markers.token_like if _count(m, whole) != sum(_count(m, one) for one in stretches)]
    for marker in markers.text_like:
        expression = re.compile(rf"(?m)^[ \t]*{re.escape(marker)}")
        inside, at = 0, 0
        for segment in _merged(segments):
            end = at + len(segment.text)
            if segment.scaffold:
                inside += sum(
                    at <= found.end() - len(marker) and found.end() <= end for found in expression.finditer(whole)
                )
            at = end
        if inside != len(expression.findall(whole)):
            wrong.append(marker)
    return wrong


def _merged(segments: Sequence[Segment]) -> list[Segment]:
    merged: list[Segment] = []
    for segment in segments:
        if merged and segment.text and merged[-1].scaffold == segment.scaffold:
            merged[-1] = Segment(merged[-1].text + segment.text, "", "", segment.scaffold)
        elif segment.text:
            merged.append(segment)
    return merged


def _count(marker: str, text: str) -> int:
    """The number of times that the text contains the marker, also where markers overlap."""
    number, at = 0, text.find(marker)
    while at >= 0:
        number, at = number + 1, text.find(marker, at + 1)
    return number
