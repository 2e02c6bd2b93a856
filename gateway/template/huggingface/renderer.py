"""How does a dialogue become a prompt by a Hugging Face chat template? (``kind: jinja``)

The renderer of design 4.4. A template whose every construct can be metered is rendered where it stands; what cannot
be, and what proves too much for it, is done by a process of its own. Both give the same text.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.errors import ForbiddenParameter, InvalidValue
from gateway.core.prompt import DeferredSegments, Notice, Prompt, PromptMetadata, Segment
from gateway.template.huggingface.attribution import segments_of
from gateway.template.huggingface.sandbox.environment import Refused
from gateway.template.huggingface.sandbox.meter import Beyond, size_of
from gateway.template.huggingface.sandbox.metered import MeteredEnvironment
from gateway.template.huggingface.sandbox.script import Rendered, Script, told
from gateway.template.huggingface.sandbox.subprocess_renderer import Confined
from gateway.template.huggingface.variables import all_plain, check_fields, messages_of, unread, unseen
from gateway.template.messages import check_dialogue, check_open_turn, refuse_variables
from gateway.template.spec.template import JinjaSpec, TemplateSpec
from gateway.template.stops import stop_token_ids
from gateway.template.tools import choice_of, forced, tools_of
from gateway.template.validation.jinja import TOOL_USE

GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""Variables whose origin is told by their own names."""
MOST_NAMED = 40
"""Characters of a name that a notice repeats."""


@dataclass(frozen=True, slots=True)
class Job:
    """One render to be done."""

    script: int
    variables: Mapping[str, Any]
    size: int
    """Characters of the conversation."""
    opened: tuple[str, str, str] = ("", "", "")
    """What follows the rendering where a call is demanded; see ``tools.forced``."""
    asked: tuple[str, ...] = ()
    """Variables that the request has set."""
    tag: str = ""
    """Stands at the end of a message that is to be continued; the prompt ends there."""


class JinjaTemplate:
    """Renders dialogues by a chat template."""

    def __init__(self, spec: TemplateSpec) -> None:
        """Raises ``TemplateError`` for a template that cannot be compiled."""
        if spec.jinja is None:
            raise ValueError("a jinja template without its chat template passed the checks")
        self.spec = spec
        self._jinja: JinjaSpec = spec.jinja
        at = datetime.fromisoformat(self._jinja.clock) if self._jinja.clock else None
        environment = MeteredEnvironment(lambda: at or datetime.now())
        self._names = [name for name, _ in self._jinja.sources]
        self.scripts = tuple([Script(source, environment) for _, source in self._jinja.sources])
        self._worker = Confined(spec.name, tuple([script.source for script in self.scripts]), self._jinja.clock)
        self._stops = tuple(dict.fromkeys([*self._jinja.ends, *spec.stop]))
        self._stop_token_ids = tuple(dict.fromkeys([*stop_token_ids(spec), *self._jinja.end_ids]))
        self._always = {**self._jinja.special_tokens, **self._jinja.kwargs}

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``; may take as long as ``confined.TIME``, so a server awaits ``render_awaited``."""
        job = self._job(dialogue)
        return self._prompt(dialogue, job, self._text(job))

    async def render_awaited(self, dialogue: Dialogue) -> Prompt:
        """The same prompt; the event loop goes on meanwhile."""
        job = self._job(dialogue)
        try:
            rendered = self.scripts[job.script].render(job.variables, job.size)
        except Refused as refusal:
            raise _refusal(refusal) from None
        except Beyond:
            try:
                rendered = await self._worker.render_awaited(job.script, job.variables)
            except Refused as refusal:
                raise _refusal(refusal) from None
        return self._prompt(dialogue, job, rendered)

    def whole(self, dialogue: Dialogue) -> str:
        """The complete conversation with no turn left open, as with ``add_generation_prompt: false``."""
        job = self._job(dialogue)
        return self._text(replace(job, variables={**job.variables, "add_generation_prompt": False})).text

    def _text(self, job: Job) -> Rendered:
        try:
            try:
                return self.scripts[job.script].render(job.variables, job.size)
            except Beyond:
                return self._worker.render(job.script, job.variables)
        except Refused as refusal:
            raise _refusal(refusal) from None

    # ------------------------------------------------------------ what the template is given

    def _job(self, dialogue: Dialogue) -> Job:
        if dialogue.variables:
            refuse_variables(dialogue)
        tools, opened = self._tools(dialogue) if dialogue.tools or dialogue.tool_choice else ((), ("", "", ""))
        which = self._names.index(TOOL_USE) if tools and TOOL_USE in self._names else 0
        script = self.scripts[which]
        plain = not dialogue.tools and all_plain(dialogue.messages)
        if not plain:
            check_fields(dialogue, script)
        messages = messages_of(dialogue, self._jinja)
        variables = {**self._always, **self._asked(dialogue)} if dialogue.template_kwargs else dict(self._always)
        tag = ""
        if dialogue.continue_final:
            check_open_turn(dialogue)
            tag = f"CONTINUE_{secrets.token_hex(8)} "
            messages[-1] = _tagged(messages[-1], tag)
        variables["messages"] = messages
        variables["tools"] = list(tools) or None
        variables.setdefault("documents", None)
        variables["add_generation_prompt"] = not dialogue.continue_final
        if plain and not dialogue.template_kwargs:
            size = sum(map(len, dialogue.texts)) + 32 * len(dialogue.messages)
        else:
            size = size_of(variables)
        asked = tuple([name for name in dialogue.template_kwargs if name not in GIVEN])
        return Job(which, variables, size, opened, asked, tag)

    def _tools(self, dialogue: Dialogue) -> tuple[Sequence[Mapping[str, Any]], tuple[str, str, str]]:
        """The tools to be written, and what follows the prompt if one of them must be called."""
        declared = self.spec.tools
        if dialogue.tools and declared is None:
            check_dialogue(dialogue)  # says what is missing
        choice = choice_of(dialogue)
        if choice.mode == "none" or declared is None:
            return (), ("", "", "")
        return tools_of(dialogue), forced(declared, dialogue, choice)

    def _asked(self, dialogue: Dialogue) -> Mapping[str, Any]:
        for name in dialogue.template_kwargs:
            if name not in self._jinja.request_kwargs:
                takes = ", ".join(self._jinja.request_kwargs) or "none"
                raise ForbiddenParameter(
                    f"this model's template takes no such variable from a request; it takes: {takes}",
                    param=f"chat_template_kwargs.{ascii(name)[1:-1][:MOST_NAMED]}",
                )
        return dialogue.template_kwargs

    # ------------------------------------------------------------ what becomes of the text

    def _prompt(self, dialogue: Dialogue, job: Job, rendered: Rendered) -> Prompt:
        text = rendered.text
        if job.tag:
            _check_kept(dialogue, text)
            text = _cut(text, job.tag)
        spec, opened = self.spec, "".join(job.opened)
        notices = tuple(self._notices(dialogue, job, rendered, text))
        manner = PromptMetadata(self._stops, self._stop_token_ids, spec.bos, spec.bos_text, notices, opened)
        return Prompt(text + opened, manner, DeferredSegments(lambda: self._segments(job, text)))

    def _notices(self, dialogue: Dialogue, job: Job, rendered: Rendered, text: str) -> dict[Notice, None]:
        script = self.scripts[job.script]
        notices = dict.fromkeys(unread(dialogue, script))
        if job.script:
            notices[Notice("template_variant", self._names[job.script])] = None
        if not self._jinja.clock_given and "strftime_now" in script.names:
            notices[Notice("frozen_clock", self._jinja.clock)] = None
        for name in rendered.undefined:
            notices[Notice("undefined_variable", ascii(name)[1:-1][:MOST_NAMED])] = None
        if self._jinja.content == "text":
            notices.update(dict.fromkeys(unseen(dialogue, text)))
        return notices

    def _segments(self, job: Job, text: str) -> tuple[Segment, ...]:
        script = self.scripts[job.script]

        def render(variables: Mapping[str, Any]) -> str:
            again = Job(job.script, variables, size_of(variables))
            rendered = self._text(again).text
            return _cut(rendered, job.tag) if job.tag else rendered

        variables = job.variables
        kept = (job.tag.strip(),) if job.tag else ()
        begin, name, end = job.opened
        demanded = (Segment(begin, "", "generate", True), Segment(name, "", "tool_choice", False),
                    Segment(end, "", "generate", True))  # fmt: skip
        found = segments_of(text, variables, job.asked, script.reads, script.words, kept, render)
        return (*found, *[one for one in demanded if one.text])


def _tagged(message: Mapping[str, Any], tag: str) -> Mapping[str, Any]:
    """The message with a tag at the end of what it says."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + tag}
    if isinstance(content, (list, tuple)):
        parts = list(content)
        for place in range(len(parts) - 1, -1, -1):
            if "text" in parts[place]:
                parts[place] = {**parts[place], "text": parts[place]["text"] + tag}
                return {**message, "content": parts}
    raise InvalidValue("the last message holds no text to go on with", param="continue_final_message")


def _cut(text: str, tag: str) -> str:
    """The text up to the tag; blanks that the template trimmed there are gone, as in ``transformers``."""
    word = tag.strip()
    at = text.find(word)
    if at < 0:
        raise _not_kept()
    if text.find(word, at + 1) >= 0:  # where ``transformers`` leaves its tag in the prompt
        raise InvalidValue(
            "this model's chat template writes the last message twice, so there is no one place to go on from",
            param="continue_final_message",
        )
    return text[:at] if text.startswith(tag, at) else text[:at].rstrip()


def _check_kept(dialogue: Dialogue, text: str) -> None:
    """As ``transformers`` does: a message to be continued must come out as it went in."""
    last = dialogue.messages[-1]
    words = next((part.text for part in reversed(last.parts) if part.kind == "text"), last.text)
    if words.strip() not in text:
        raise _not_kept()


def _not_kept() -> InvalidValue:
    return InvalidValue(
        "this model's chat template changes or leaves out the last message, so nothing can go on from its end",
        param="continue_final_message",
    )


def _refusal(refusal: Refused) -> InvalidValue:
    return InvalidValue(f"this model's chat template refuses the conversation: {told(refusal)}", param="messages")
