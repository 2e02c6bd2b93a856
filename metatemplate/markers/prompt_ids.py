"""The token ids of prompts that are always sent as token ids.

Almost no text of a client has a part of a control token. Then the whole prompt is encoded as one text. Otherwise the
segments of the prompt show which control tokens the template has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metatemplate.errors import ForgedMarker, InputError, TemplateFailure
from metatemplate.markers.marker_rule import MarkerRule
from metatemplate.markers.marker_set import MarkerSet, TemplateTexts, fold, texts_of
from metatemplate.markers.prompt_tokens import PromptTokenizer
from metatemplate.markers.role_boundaries import SafePrompt, SafeRenderer, client_texts
from metatemplate.markers.token_splits import disguised
from metatemplate.templates.registry import dialogue_of, first_difference
from metatemplate.tokenizer import token_ids
from metatemplate.values.dialogue import Dialogue, Message, RenderOptions
from metatemplate.values.prompt import MIXED, DeferredSegments, Prompt, Segment

if TYPE_CHECKING:
    from metatemplate.markers.made_markers import MadeMarkers

PROBE_TEXTS = ("What is 12 + 30?", " a  b\n\n\tc ", "né 日本語 🙂\n", "x")
"""The texts of messages with which the ids are tested. Each has other characters at its edges."""
PROBE_ROLES = (("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user"))
"""The roles of the messages of each conversation with which the ids are tested."""

BOS_OF_ENGINE = "the template leaves the BOS to the engine"
BOS_IN_TEXT = "write bos: text in the template, and the BOS itself in its text"


class PromptIds:
    """Makes the token ids of one model's prompts."""

    def __init__(self, tokens: PromptTokenizer, renderer: SafeRenderer, *, whole: bool) -> None:
        """``whole``: whether clients may write control tokens, because the policy allows them. Blocks."""
        self.tokens = tokens
        self._template = renderer.template
        self.whole = whole
        """True: clients may write control tokens."""
        texts, control = texts_of(self._template), dict.fromkeys(tokens.control, True)
        further = TemplateTexts(further=(*texts.before, *texts.after, *texts.around, *texts.further))
        folds = bool(disguised(tokens.tokenizer, tokens.control))
        markers = MarkerSet(further, control)
        self._rule = MarkerRule(markers, "token_ids", "allow", MarkerSet(further, control, fold) if folds else None)
        found = self._rule.searched.token_like
        self._searches_all = all(self._rule.form(one.strip()) in found for one in control)
        """False if a control token, such as one of two characters, cannot be searched for."""
        self._made: MadeMarkers | None = None
        if hasattr(self._template, "render_async"):
            from metatemplate.markers.made_markers import MadeMarkers

            self._made = MadeMarkers(self._rule, renderer.render)

    async def of(self, dialogue: Dialogue, safe: SafePrompt, *, allow: bool, special: bool) -> tuple[int, ...]:
        """Return the token ids of the prompt of a dialogue, to which the marker policy has been applied.

        ``allow``: whether the client may write control tokens. ``special``: whether the tokenizer adds its special
        tokens (BOS). Raises ``ForgedMarker`` as ``PromptTokenizer.encode`` does.
        """
        if allow or self.whole or not await self._may_be_forged(dialogue, safe):
            return tuple(await token_ids(self.tokens.tokenizer, safe.prompt.text, special=special))
        return await self.tokens.ids(safe.prompt, special=special)

    async def attributed(self, dialogue: Dialogue, safe: SafePrompt, *, allow: bool) -> Prompt:
        """Return the prompt with segments for ``PromptTokenizer.ids``, for a prompt that is continued.

        It is one text of the template if ``of`` encodes it as one text.
        """
        prompt = safe.prompt
        if allow or self.whole or not await self._may_be_forged(dialogue, safe):
            return Prompt.of([Segment(prompt.text, "", "template", True)], prompt.metadata)
        if not isinstance(prompt.source, DeferredSegments):
            return prompt
        segments = await asyncio.to_thread(lambda: prompt.segments or ())
        return Prompt.of(segments, prompt.metadata, prompt.breaks)

    async def _may_be_forged(self, dialogue: Dialogue, safe: SafePrompt) -> bool:
        """Return whether a text of the client may have a control token, or a part of one that the template completes.

        Raises ``ForgedMarker`` if the template makes a control token of the name of a role.
        """
        if safe.markers or not self._searches_all:
            return True
        texts = client_texts(dialogue, safe.prompt)
        if self._rule.searched.may_occur(list(map(self._rule.form, texts))):
            return True
        if self._made is None or not isinstance(safe.prompt.source, DeferredSegments):
            return False
        await self._made.refuse_names(dialogue)
        return await self._made.are_in(dialogue, safe.prompt, texts)

    def fault(self, *, adds_bos: bool) -> str:
        """Return why the prompts of this template and tokenizer cannot be sent as ids. Empty if they can. Blocks.

        A prompt must have one BOS. The ids of a harmless prompt must be those of its whole text: the template's
        examples and conversations with ``PROBE_TEXTS`` are compared. ``adds_bos``: whether the engine adds a BOS to a
        prompt whose template has ``bos: none``.
        """
        bos, around = self._template.spec.bos, self.tokens.tokenizer.encode("a", True)
        before = list(around.ids[: (*around.special_tokens_mask, 0).index(0)])
        """The tokens that the tokenizer adds before every text."""
        if bos == "engine" and not before:
            return f"{BOS_OF_ENGINE} (bos: engine), and this tokenizer adds none; {BOS_IN_TEXT}"
        for dialogue in self._probes():
            try:
                prompt = self._template.render(dialogue)
            except (InputError, TemplateFailure):
                continue  # such as a chat template that refuses a system message
            segments = prompt.segments or ()
            if any(one.origin == MIXED for one in segments) or self._rule.may_occur(client_texts(dialogue, prompt)):
                continue
            expected = self.tokens.tokenizer.tokenize(prompt.text)
            twice = before and expected[len(before) : 2 * len(before)] == before
            if twice and (bos == "engine" or (bos == "none" and adds_bos)):
                return f"its BOS stands before the BOS that the template writes (bos: {bos}); {BOS_IN_TEXT}"
            try:
                ids = list(self.tokens.encode(segments, special=True))
            except ForgedMarker:
                return f"{prompt.text!a} has an added token of the template that is not read as a token"
            if ids != expected:
                at = first_difference(ids, expected)
                names = [self.tokens.tokenizer.names(some[at : at + 1]) for some in (expected, ids)]
                return f"{prompt.text!a} has other tokens in parts than as a whole, from token {at} on: {names}"
        return ""

    def _probes(self) -> Iterator[Dialogue]:
        for example in self._template.spec.examples:
            if example.prompt is not None:
                yield dialogue_of(example)
        for roles in PROBE_ROLES:
            for number in range(len(PROBE_TEXTS)):
                texts = PROBE_TEXTS[number:] + PROBE_TEXTS[:number]
                messages = [Message(role, text) for role, text in zip(roles, texts, strict=False)]
                yield Dialogue(tuple(messages), RenderOptions())
