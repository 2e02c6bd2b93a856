"""Renders a conversation and applies the marker policy to the rendered prompt.

``MarkerSet.may_occur`` reads the texts of the client once, and finds no marker in almost every request. If a text may
have a marker, the segments of the prompt show which markers are forged. A chat template that changes texts gives no
exact segments. For such a template, the texts of the request are changed, and the conversation is rendered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metatemplate.errors import ForgedMarker
from metatemplate.markers.marker_rule import MarkerCounts, MarkerRule, refusal, texts_in
from metatemplate.templates.base import Template
from metatemplate.templates.chat.passthrough import as_sent
from metatemplate.values.dialogue import (
    DATASET_PARAM,
    DEFAULT_OPTIONS,
    EMPTY_MAPPING,
    Dialogue,
    PlainMessages,
    read_messages,
)
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import MIXED, DeferredSegments, Notice, Pieces, Prompt, Segment

if TYPE_CHECKING:
    from metatemplate.markers.made_markers import MadeMarkers


@dataclass(frozen=True, slots=True)
class SafePrompt:
    """A prompt to which the marker policy has been applied."""

    prompt: Prompt
    notices: tuple[Notice, ...] = ()
    markers: tuple[tuple[str, int], ...] = ()
    """Pairs (action of the policy, number of markers)."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """The changed tools of a request to a target that accepts messages. None if the tools are unchanged."""


class SafeRenderer:
    """Renders the conversations of one model, and applies the model's policy for markers."""

    def __init__(self, template: Template, rule: MarkerRule | None) -> None:
        """``rule``: None if the model has no markers."""
        self.template = template
        self._render_async: Callable[[Dialogue], Awaitable[Prompt]] | None = getattr(template, "render_async", None)
        """Used in place of ``template.render`` if the template is a chat template. It may render in another process."""
        self.rule = rule
        self._allowing = None if rule is None else MarkerRule(rule.markers, "allow", "allow")
        """The rule for clients that may send markers. This rule counts markers and never changes a text."""
        self.made: MadeMarkers | None = None
        """None if the template is no chat template, or if the rule changes and refuses nothing."""
        if self._render_async is not None and rule is not None and rule.changes:
            from metatemplate.markers.made_markers import MadeMarkers

            self.made = MadeMarkers(rule, self.render)

    async def render(self, dialogue: Dialogue) -> Prompt:
        """Render a dialogue without the policy."""
        return self.template.render(dialogue) if self._render_async is None else await self._render_async(dialogue)

    async def render_safely(
        self,
        dialogue: Dialogue,
        prompt: Prompt | None = None,
        *,
        allow: bool = False,
        variables: Mapping[str, Any] = EMPTY_MAPPING,
    ) -> SafePrompt:
        """Render a dialogue, and apply the marker policy.

        ``prompt``: the prompt, if the dialogue is already rendered. ``allow``: whether the client may send markers.
        ``variables``: request fields that the target's own template may write. A marker in these fields is refused.
        Raises ``ForgedMarker`` if the policy refuses a marker.
        """
        if prompt is None:
            prompt = await self.render(dialogue)
        rule = self.rule if not allow else self._allowing
        if rule is None:
            return SafePrompt(prompt)
        for name, value in variables.items():
            rule.check_variables(value, name, MarkerCounts())
        texts, names = client_texts(dialogue, prompt), _message_names(dialogue)
        if names:
            texts = [*texts, *names.values()]
        folded: MarkerCounts | None = None
        if rule.folded is not None:
            folded = rule.count_folded([*texts, *texts_in(list(variables.values()))])
        made = self.made if not allow and isinstance(prompt.source, DeferredSegments) else None
        if made is not None:
            await made.refuse_names(dialogue)
        if not rule.may_occur(texts) and not (made is not None and await made.are_in(dialogue, prompt, texts)):
            if folded is None:
                return SafePrompt(prompt)
            return SafePrompt(prompt, rule.notices(folded), rule.actions_taken(folded))
        for path, name in names.items():  # a name may be refused, also if the template does not write it
            rule.apply([Segment(name, "", path, False)], MarkerCounts())
        counts = MarkerCounts()
        safe = await self._with_policy(rule, dialogue, prompt, counts)
        if folded is not None:
            counts.found = folded.found | counts.found
        return replace(safe, notices=rule.notices(counts), markers=rule.actions_taken(counts))

    async def _with_policy(
        self, rule: MarkerRule, dialogue: Dialogue, prompt: Prompt, counts: MarkerCounts
    ) -> SafePrompt:
        """Apply the marker policy to a prompt that may have forged markers, and count them in ``counts``."""
        if prompt.messages is not None:
            sent = [rule.apply_to_json(one, f"messages[{at}]", counts) for at, one in enumerate(prompt.messages)]
            return SafePrompt(replace(prompt, source=tuple(sent)), tools=_safe_tools(rule, dialogue, counts))
        if isinstance(prompt.source, DeferredSegments) and not rule.changes:
            _safe_dialogue(rule, dialogue, counts)  # only counts: the segments of a chat template are costly
            return SafePrompt(prompt)
        if isinstance(prompt.source, Pieces):
            segments = prompt.segments or ()
        else:  # a long conversation is rendered again
            segments = await asyncio.to_thread(lambda: prompt.segments or ())
        if any(segment.origin == MIXED for segment in segments):
            return SafePrompt(await self._rendered_again(rule, dialogue, counts))
        try:
            safe = rule.apply(segments, counts)
        except ForgedMarker as error:
            error.param = _field(rule, dialogue, error.param or "")
            raise
        if safe.segments != segments or safe.breaks:  # the segments of a chat template are costly
            prompt = Prompt.of(safe.segments, prompt.metadata, safe.breaks)
        return SafePrompt(prompt)

    async def _rendered_again(self, rule: MarkerRule, dialogue: Dialogue, counts: MarkerCounts) -> Prompt:
        """Change the texts of a conversation by the policy and render it again.

        For a chat template without exact segments. Raises ``ForgedMarker`` if the policy needs the segments
        (``token_ids``), and if the template still writes other markers than for the same conversation with numbers as
        texts.
        """
        changed = _safe_dialogue(rule, dialogue, counts)
        if "token_ids" in [action for action, _ in rule.actions_taken(counts)]:
            raise refusal("messages")
        prompt = await self.render(changed)
        assert self.made is not None
        if not await self.made.are_as_expected(prompt):
            raise refusal(
                "messages", "characters from which this model's chat template may make a marker that separates"
            )
        return prompt


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
    except ForgedMarker as error:
        return error.param or origin
    return origin  # the marker has a part in the template


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


def _message_names(dialogue: Dialogue) -> Mapping[str, str]:
    """Return path → ``name`` of each message that has a name."""
    if type(dialogue.messages) is PlainMessages:
        return EMPTY_MAPPING
    names = {f"messages[{at}].name": one.raw.get("name") for at, one in enumerate(dialogue.messages)}
    return {path: name for path, name in names.items() if isinstance(name, str)}


def client_texts(dialogue: Dialogue, prompt: Prompt) -> Sequence[str]:
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
