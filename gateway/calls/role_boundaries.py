"""Renders a conversation and applies the marker policy to the rendered prompt.

``MarkerSet.may_occur`` reads the texts of the client once, and finds no marker in almost every request. If a text may
have a marker, the segments of the prompt show which markers are forged. A chat template that changes texts gives no
exact segments. For such a template, the texts of the request are changed, and the conversation is rendered again.
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
"""The maximum number of conversation shapes that a rule remembers. It is limited because clients choose the shapes."""


@dataclass(frozen=True, slots=True)
class SafePrompt:
    """A prompt to which the marker policy has been applied."""

    prompt: Prompt
    notices: tuple[Notice, ...] = ()
    markers: tuple[tuple[str, int], ...] = ()
    """Pairs (action of the policy, number of markers)."""
    breaks: tuple[int, ...] = ()
    """The offsets at which the prompt is split into parts for the tokenizer. Empty if the prompt is sent as text."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """The changed tools of a request to a target that accepts messages. None if the tools are unchanged."""


async def render_safely(
    route: Route,
    dialogue: Dialogue,
    prompt: Prompt | None = None,
    *,
    allow: bool = False,
    variables: Mapping[str, Any] = EMPTY_MAPPING,
) -> SafePrompt:
    """Render a dialogue, and apply the marker policy. Raises ``SpecialTokenInContent`` if the policy refuses a marker.

    ``prompt``: the prompt, if the dialogue is already rendered. ``allow``: whether the client's key may send markers.
    ``variables``: request fields that the target's own template may write. A marker in these fields is refused.
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
    """Return the shape of a conversation: its roles and options, and the number of markers in its prompt.

    A chat template is a program, so only a costly search of a prompt shows which markers the template wrote. Only one
    of the prompts with the same shape is searched.
    """
    options, messages = dialogue.options, dialogue.messages
    roles = messages.roles if type(messages) is PlainMessages else tuple([message.role for message in messages])
    return roles, options.continue_final, options.whole, len(options.tools), rule.markers.count(prompt.text)


def _field(rule: MarkerRule, dialogue: Dialogue, origin: str) -> str:
    """Return the path of the request field that contains a refused marker.

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
    """Return the token ids of a prompt that is tokenized in parts.

    ``special``: whether the tokenizer adds its special tokens (BOS) before the text.
    """
    text = safe.prompt.text
    if len(text) < MIN_THREADED:
        return split_ids(tokenizer, text, safe.breaks, special=special)
    return await asyncio.to_thread(split_ids, tokenizer, text, safe.breaks, special=special)


async def _rendered_again(route: Route, rule: MarkerRule, dialogue: Dialogue, counts: MarkerCounts) -> Prompt:
    """Change the texts of a conversation by the policy and render it again, for a chat template without exact segments.

    Raises ``SpecialTokenInContent`` if the policy needs the segments: for the action ``token_ids``, and for a text that
    may form a marker together with text of the template.
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
    """Return the texts of a prompt that do not come from the template."""
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
