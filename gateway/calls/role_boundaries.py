"""Renders a conversation and applies the marker policy to it, before it becomes the request to a target.

Almost every prompt passes ``MarkerSet.may_occur``, which reads the texts of the client once. For the others, the
segments of the prompt show which markers are forged. Chat templates that change texts have no exact segments: then the
texts of the request are changed, and the conversation is rendered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.backend.tokenizer import MIN_THREADED, Tokenizer
from gateway.calls.route import Route
from gateway.core.dialogue import DEFAULT_OPTIONS, EMPTY_MAPPING, Dialogue, PlainMessages
from gateway.core.errors import SpecialTokenInContent
from gateway.core.frozen import dataclass
from gateway.core.prompt import MIXED, DeferredSegments, Notice, Pieces, Prompt, Segments
from gateway.policy.admit.markers import MarkerCounts, MarkerRule, refusal, split_ids, texts_in
from gateway.template.opencompass.prompt_lists import DATASET_PARAM
from gateway.template.passthrough import as_sent
from gateway.wire.requests import read_messages

MAX_VERIFIED = 1024
"""The largest number of shapes that a rule remembers. Clients choose the shapes."""


@dataclass(frozen=True, slots=True)
class SafePrompt:
    """A prompt after the marker policy."""

    prompt: Prompt
    notices: tuple[Notice, ...] = ()
    markers: tuple[tuple[str, int], ...] = ()
    """(action, number of markers)."""
    breaks: tuple[int, ...] = ()
    """Offsets at which the prompt must be tokenized in parts; empty: the prompt is sent as text."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """The changed tools of a request to a target of messages; None: they are unchanged."""


async def render_safely(
    route: Route,
    dialogue: Dialogue,
    prompt: Prompt | None = None,
    *,
    allow: bool = False,
    variables: Mapping[str, Any] = EMPTY_MAPPING,
) -> SafePrompt:
    """Render a dialogue, and apply the marker policy of the route. Raises ``SpecialTokenInContent``.

    ``prompt``: the dialogue as already rendered. ``allow``: the client's key may send markers. ``variables``: fields of
    the request that the target's own template may write. They are never changed, only refused.
    """
    if prompt is None:
        prompt = await route.render(dialogue)
    rule = route.marker_rule if not allow else route.allowed_markers
    if rule is None:
        return SafePrompt(prompt)
    for name, value in variables.items():
        rule.check_variables(value, name, MarkerCounts())
    texts, shape = _texts_of(dialogue, prompt), None
    folded: MarkerCounts | None = None
    if rule.folded is not None:
        folded = rule.count_folded([*texts, *texts_in(list(variables.values()))])
    if isinstance(prompt.source, DeferredSegments) and rule.changes and rule.markers.has_rare_character(texts):
        shape = _shape(rule, dialogue, prompt)
    if not rule.may_occur(texts) and (shape is None or shape in rule.verified):
        if folded is None:
            return SafePrompt(prompt)
        return SafePrompt(prompt, rule.notices(folded), rule.actions_taken(folded))
    counts = MarkerCounts()
    tools: Sequence[Mapping[str, Any]] | None = None
    breaks: tuple[int, ...] = ()
    if prompt.messages is not None:
        sent = [rule.apply_to_json(one, f"messages[{at}]", counts) for at, one in enumerate(prompt.messages)]
        tools = _safe_tools(rule, dialogue, counts)
        prompt = replace(prompt, source=tuple(sent))
    elif isinstance(prompt.source, DeferredSegments) and not rule.changes:
        _safe_dialogue(rule, dialogue, counts)  # only counts: the segments of a chat template are costly
    else:
        segments = await _segments_of(prompt)
        if any(segment.origin == MIXED for segment in segments):
            prompt = await _rendered_again(route, rule, dialogue, counts)
        else:
            try:
                safe = rule.apply(segments, counts)
            except SpecialTokenInContent as error:
                error.param = _field(rule, dialogue, error.param or "")
                raise
            breaks = safe.breaks
            if safe.segments != segments:
                prompt = _prompt_of(prompt, safe.segments)
    if shape is not None and not counts.found:
        if len(rule.verified) >= MAX_VERIFIED:
            rule.verified.clear()
        rule.verified.add(shape)
    if folded is not None:
        counts.found = folded.found | counts.found
    return SafePrompt(prompt, rule.notices(counts), rule.actions_taken(counts), breaks, tools)


def _shape(rule: MarkerRule, dialogue: Dialogue, prompt: Prompt) -> tuple[Any, ...]:
    """The roles and options of a conversation, and the number of markers in its prompt.

    A chat template is a program, so its own markers are known only after a costly search of a prompt. Prompts of the
    same shape with the same number of markers are searched once.
    """
    options, messages = dialogue.options, dialogue.messages
    roles = messages.roles if type(messages) is PlainMessages else tuple([message.role for message in messages])
    return roles, options.continue_final, options.whole, len(options.tools), rule.markers.count(prompt.text)


def _field(rule: MarkerRule, dialogue: Dialogue, origin: str) -> str:
    """The path of the field in the request that contains a refused marker.

    ``origin``: the origin of the segment that contains the marker.
    """
    kind, _, rest = origin.partition("[")
    if origin.startswith("variables."):
        return f"gateway.{origin}"
    if kind == "prompt":
        return DATASET_PARAM
    number = rest.partition("]")[0]
    rows: Sequence[Any] = {"messages": dialogue.messages, "tools": dialogue.options.tools}.get(kind, ())
    if not number.isdigit() or int(number) >= len(rows):
        return origin
    row = rows[int(number)]
    try:
        rule.apply_to_json(row if kind == "tools" else as_sent(row), origin, MarkerCounts())
    except SpecialTokenInContent as error:
        return error.param or origin
    return origin  # the marker has a part in the template


async def token_prompt(tokenizer: Tokenizer, safe: SafePrompt, *, special: bool) -> tuple[int, ...]:
    """The token ids of a prompt with ``breaks``. ``special``: with the tokens before a text (BOS)."""
    text = safe.prompt.text
    if len(text) < MIN_THREADED:
        return split_ids(tokenizer, text, safe.breaks, special=special)
    return await asyncio.to_thread(split_ids, tokenizer, text, safe.breaks, special=special)


async def _rendered_again(route: Route, rule: MarkerRule, dialogue: Dialogue, counts: MarkerCounts) -> Prompt:
    """The prompt of the conversation with safe texts, for a chat template whose segments are not known.

    Refuses what cannot be made safe without the segments: ``token_ids``, and a text that may form a marker together
    with the template.
    """
    changed = _safe_dialogue(rule, dialogue, counts)
    if "token_ids" in [action for action, _ in rule.actions_taken(counts)]:
        raise refusal("messages")
    prompt = await route.render(changed)
    if rule.markers.may_join(_texts_of(changed, prompt)):
        raise refusal("messages")
    return prompt


def _safe_dialogue(rule: MarkerRule, dialogue: Dialogue, counts: MarkerCounts) -> Dialogue:
    messages = [rule.apply_to_json(as_sent(one), f"messages[{at}]", counts) for at, one in enumerate(dialogue.messages)]
    options = dialogue.options
    if options is not DEFAULT_OPTIONS:
        options = replace(
            options,
            tools=tuple(_safe_tools(rule, dialogue, counts)),
            template_kwargs=rule.apply_to_json(options.template_kwargs, "chat_template_kwargs", counts),
        )
    return Dialogue(read_messages(messages), options)


def _safe_tools(rule: MarkerRule, dialogue: Dialogue, counts: MarkerCounts) -> list[Any]:
    return [rule.apply_to_json(one, f"tools[{at}]", counts) for at, one in enumerate(dialogue.options.tools)]


async def _segments_of(prompt: Prompt) -> Segments:
    if isinstance(prompt.source, Pieces):
        return prompt.segments or ()
    return await asyncio.to_thread(lambda: prompt.segments or ())  # a long conversation is rendered again


def _prompt_of(prompt: Prompt, segments: Segments) -> Prompt:
    texts = tuple([one.text for one in segments])
    labels = tuple([(one.role, one.origin, one.scaffold) for one in segments])
    return replace(prompt, text="".join(texts), source=Pieces(texts, labels))


def _texts_of(dialogue: Dialogue, prompt: Prompt) -> Sequence[str]:
    """The texts of a prompt that do not come from the template."""
    source = prompt.source
    if isinstance(source, Pieces):
        return [text for text, label in zip(source.texts, source.marks, strict=True) if label and not label[2]]
    options = dialogue.options
    messages: Any = source if isinstance(source, tuple) else dialogue.messages
    if type(messages) is PlainMessages:
        if options is DEFAULT_OPTIONS:
            return messages.texts
        texts = list(messages.texts)
    else:
        texts = list(texts_in([one if isinstance(one, Mapping) else as_sent(one) for one in messages]))
        texts.append("".join(dialogue.texts))  # a template may write nothing between two messages
    return [*texts, *texts_in([options.tools, options.variables, options.template_kwargs])]
