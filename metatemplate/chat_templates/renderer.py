"""The class ``JinjaTemplate`` turns a dialogue into a prompt with a Hugging Face chat template (``kind: jinja``).

Short conversations are rendered in this process, and long conversations in a subprocess with a time limit
(``in_process.py``). Both give the same prompt.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from metatemplate.chat_templates.attribution import Keeps, segments_of, without_texts
from metatemplate.chat_templates.call_content import (
    CONTENT_FORMS,
    EMPTY_TEXT,
    FORM_NAMES,
    LEFT_OUT,
    round_trips,
    with_content_form,
    without_content,
)
from metatemplate.chat_templates.folder import TOOL_USE
from metatemplate.chat_templates.in_process import CHARACTERS_PER_MESSAGE, message_limits
from metatemplate.chat_templates.sandbox.compiled_template import CompiledTemplate, RenderedText, RenderingFailed
from metatemplate.chat_templates.sandbox.limits import LimitedEnvironment, LimitReached, size_of
from metatemplate.chat_templates.sandbox.subprocess_renderer import SubprocessRenderer
from metatemplate.chat_templates.variables import (
    MAX_CHANGED,
    changed_messages,
    check_call_fields,
    ignored_fields,
    template_messages,
)
from metatemplate.errors import ForbiddenInput, InvalidInput, MetaTemplateError
from metatemplate.templates.chat.messages import check_dialogue, check_open_turn, refuse_variables
from metatemplate.templates.spec import JinjaSpec, TemplateSpec
from metatemplate.templates.stops import stop_token_ids
from metatemplate.templates.tools import choice_of, forced, tools_of
from metatemplate.values.dialogue import Dialogue, PlainMessages
from metatemplate.values.prompt import DeferredSegments, Notice, Prompt, PromptMetadata, Segment
from metatemplate.values.words import in_ascii

ATTRIBUTED_BY_NAME = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""The variables whose texts get the variable's name as origin, also if the request sets the variable."""
ALL_FORMS_FAIL = (
    "{template}: no tool call without content, as clients send it, can be rendered: not with the key content left out, "
    "not with null and not with an empty text ({message})"
)
PROBE_TEXT = "7031948265"
"""The texts of the conversations that are rendered at load."""


@dataclass(frozen=True, slots=True)
class _Job:
    """The input of one rendering."""

    template: int
    """The index of the template in ``JinjaTemplate.compiled``."""
    variables: Mapping[str, Any]
    in_process: bool
    forced_call: tuple[Segment, ...] = ()
    """The beginning of the forced tool call, which follows the rendered text; see ``tools.forced``."""
    request_variables: tuple[str, ...] = ()
    """The names of the variables that the request has set."""
    end_mark: str = ""
    """A mark at the end of the message that the model continues. The prompt is cut at this mark."""
    without_content: tuple[int, ...] = ()
    """The indexes of the messages that have tool calls and no content."""
    content_form: int = LEFT_OUT
    """The index in ``CONTENT_FORMS`` of the content of these messages."""

    @property
    def forced_text(self) -> str:
        """The text of ``forced_call``."""
        return "".join([segment.text for segment in self.forced_call])


class JinjaTemplate:
    """Renders dialogues with a chat template."""

    def __init__(self, spec: TemplateSpec) -> None:
        """Compile and measure the templates. Raises ``TemplateFailure`` for a template that cannot be compiled.

        The template is measured in a subprocess, because in this process nothing could stop an endless template.
        """
        assert spec.jinja is not None
        self.spec = spec
        self._jinja: JinjaSpec = spec.jinja
        self._names, sources = zip(*self._jinja.sources, strict=True)
        self._fixed = {"documents": None, **self._jinja.special_tokens, **self._jinja.kwargs}
        variables = json.dumps(self._fixed, default=dict)
        limits = message_limits(spec.name, sources, self._jinja.clock, variables)
        fixed_time = datetime.fromisoformat(self._jinja.clock) if self._jinja.clock else None
        environment = LimitedEnvironment(lambda: fixed_time or datetime.now())
        self.compiled = tuple([CompiledTemplate(source, environment) for source in sources])
        """The compiled template, and the compiled template for requests with tools if there is such a template."""
        self._message_limits = [
            limit if compiled.has_known_operations else 0 for limit, compiled in zip(limits, self.compiled, strict=True)
        ]
        self._subprocess = SubprocessRenderer(spec.name, sources, self._jinja.clock)
        self._stops = tuple(dict.fromkeys([*self._jinja.ends, *spec.stop]))
        self._stop_token_ids = tuple(dict.fromkeys([*stop_token_ids(spec), *self._jinja.end_ids]))
        self._content_forms = [LEFT_OUT] * len(sources)
        """For each template, the index in ``CONTENT_FORMS`` of the last form that it is expected to need."""
        self.notes = self._choose_content_forms()
        """Notes on conversations that the templates cannot render."""

    def render(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt. This call blocks while the subprocess renders. A server awaits ``render_async``.

        See ``base.Template``.
        """
        jobs, failures = self._jobs(dialogue), list[MetaTemplateError]()
        for job in jobs:
            try:
                rendered = self._rendered(job)
            except (RenderingFailed, InvalidInput) as error:  # then the next form of a missing content is tried
                failures.append(error)
            else:
                return self._prompt(dialogue, job, rendered)
        raise self._failure(jobs, failures)

    async def render_async(self, dialogue: Dialogue) -> Prompt:
        """Return the prompt without blocking the event loop. See ``render``. Also raises RendererBusy."""
        jobs, failures = self._jobs(dialogue), list[MetaTemplateError]()
        for job in jobs:
            try:
                rendered = await self._rendered_async(job)
            except (RenderingFailed, InvalidInput) as error:  # then the next form of a missing content is tried
                failures.append(error)
            else:
                return self._prompt(dialogue, job, rendered)
        raise self._failure(jobs, failures)

    def _failure(self, jobs: Sequence[_Job], failures: Sequence[MetaTemplateError]) -> MetaTemplateError:
        """Return the error of a dialogue that no form of a missing content renders: that of the expected form."""
        return failures[self._content_forms[jobs[0].template]] if len(failures) > 1 else failures[0]

    def _rendered(self, job: _Job) -> RenderedText:
        return self._rendered_here(job) or self._subprocess.render(job.template, job.variables)

    async def _rendered_async(self, job: _Job) -> RenderedText:
        return self._rendered_here(job) or await self._subprocess.render_async(job.template, job.variables)

    def _rendered_here(self, job: _Job) -> RenderedText | None:
        """Render in this process; None if the subprocess has to render."""
        if not job.in_process:
            return None
        try:
            return self.compiled[job.template].render(job.variables)
        except LimitReached:
            return None

    # ------------------------------------------------------------ the content beside tool calls

    def _choose_content_forms(self) -> tuple[str, ...]:
        """Find for each template which forms it needs to render the round trips of a tool call.

        Returns a note for each template that fails with every form.
        """
        forms: dict[int, int] = {}
        failures: dict[int, str] = {}
        for dialogue in round_trips(PROBE_TEXT):
            with suppress(MetaTemplateError):  # the template does not support tools or tool calls
                for job in self._jobs(dialogue):
                    try:
                        self._rendered(job)
                    except InvalidInput:  # the template refuses the conversation
                        continue
                    except RenderingFailed as error:
                        failures[job.template] = error.message
                        continue
                    forms[job.template] = max(job.content_form, forms.get(job.template, job.content_form))
                    break
        for index, form in forms.items():
            self._content_forms[index] = form
        failed = [(self._names[index], message) for index, message in failures.items() if index not in forms]
        return tuple([ALL_FORMS_FAIL.format(template=name, message=message) for name, message in failed])

    def _jobs(self, dialogue: Dialogue) -> list[_Job]:
        """Return the job, or the jobs to try one after the other if the content of a message may have several forms."""
        job = self._job(dialogue)
        if type(dialogue.messages) is PlainMessages or not (numbers := without_content(job.variables["messages"])):
            return [job]
        return [
            replace(
                job,
                variables={**job.variables, "messages": with_content_form(job.variables["messages"], numbers, form)},
                without_content=tuple(numbers),
                content_form=form,
            )
            for form in range(len(CONTENT_FORMS))
        ]

    # ------------------------------------------------------------ the variables

    def _job(self, dialogue: Dialogue) -> _Job:
        refuse_variables(dialogue)
        options = dialogue.options
        tools, forced_call = self._tools(dialogue) if options.tools or options.tool_choice else ((), ())
        index = self._names.index(TOOL_USE) if tools and TOOL_USE in self._names else 0
        check_call_fields(dialogue, self.compiled[index])
        messages = template_messages(dialogue, self._jinja)
        request_variables = self._request_variables(dialogue)
        end_mark = ""
        if dialogue.options.continue_final:
            check_open_turn(dialogue)
            end_mark = f"CONTINUE_{secrets.token_hex(8)} "
            messages[-1] = _marked(messages[-1], end_mark)
        limit = self._message_limits[index]
        max_size = limit * CHARACTERS_PER_MESSAGE
        if type(dialogue.messages) is PlainMessages and not tools and not request_variables:
            size = sum(map(len, dialogue.messages.texts))
        else:
            size = size_of([messages, tools, request_variables], max_size)
        return _Job(
            template=index,
            variables={
                **self._fixed,
                **request_variables,
                "messages": messages,
                "tools": list(tools) or None,
                "add_generation_prompt": not (options.continue_final or options.whole),
            },
            in_process=len(messages) <= limit and size <= max_size,
            forced_call=forced_call,
            request_variables=tuple([name for name in request_variables if name not in ATTRIBUTED_BY_NAME]),
            end_mark=end_mark,
        )

    def _tools(self, dialogue: Dialogue) -> tuple[Sequence[Mapping[str, Any]], tuple[Segment, ...]]:
        """Return the tools for the template, and the beginning of the forced call; empty if no call is forced."""
        declared = self.spec.tools
        if dialogue.options.tools and declared is None:
            check_dialogue(dialogue)  # raises the error
        choice = choice_of(dialogue)
        if choice.mode == "none" or declared is None:
            return (), ()
        return tools_of(dialogue), forced(declared, dialogue, choice, "")

    def _request_variables(self, dialogue: Dialogue) -> Mapping[str, Any]:
        for name in dialogue.options.template_kwargs:
            if name not in self._jinja.request_kwargs:
                allowed = ", ".join(self._jinja.request_kwargs) or "none"
                raise ForbiddenInput(
                    f"a request cannot set this variable of the model's chat template; allowed variables: {allowed}",
                    param=f"chat_template_kwargs.{in_ascii(name, 40)}",
                )
        return dialogue.options.template_kwargs

    # ------------------------------------------------------------ the prompt

    def _prompt(self, dialogue: Dialogue, job: _Job, rendered: RenderedText) -> Prompt:
        text = rendered.text
        if job.end_mark:
            _check_unchanged(dialogue, text)
            text = _cut(text, job.end_mark)
        metadata = PromptMetadata(
            stops=self._stops,
            stop_token_ids=self._stop_token_ids,
            bos=self.spec.bos,
            bos_text=self.spec.bos_text,
            notices=self._notices(dialogue, job, rendered, text),
            opened=job.forced_text,
        )
        source = DeferredSegments(
            lambda: self._segments(job, text), lambda keeps: self._render_without_texts(job, keeps), job.in_process
        )
        return Prompt(text + job.forced_text, metadata, source)

    def _notices(self, dialogue: Dialogue, job: _Job, rendered: RenderedText, text: str) -> tuple[Notice, ...]:
        template = self.compiled[job.template]
        notices = ignored_fields(dialogue, template)
        if job.template:
            notices.append(Notice("template_variant", self._names[job.template]))
        if not self._jinja.clock_given and "strftime_now" in template.names:
            notices.append(Notice("frozen_clock", self._jinja.clock))
        if job.content_form == EMPTY_TEXT or job.content_form > self._content_forms[job.template]:
            notices += [
                Notice("filled_content", f"messages[{number}].content={FORM_NAMES[job.content_form]}")
                for number in job.without_content[:MAX_CHANGED]
            ]
        notices += [Notice("undefined_variable", in_ascii(name, 40)) for name in rendered.undefined]
        if self._jinja.content == "text":
            notices += changed_messages(dialogue, text)
        return tuple(dict.fromkeys(notices))

    def _segments(self, job: _Job, text: str) -> tuple[Segment, ...]:
        def render(variables: Mapping[str, Any]) -> str:
            rendered = self._rendered(replace(job, variables=variables)).text
            return _cut(rendered, job.end_mark)

        segments = segments_of(
            text,
            job.variables,
            request_variables=job.request_variables,
            template=self.compiled[job.template],
            end_mark=job.end_mark.strip(),
            render=render,
        )
        return (*segments, *job.forced_call)

    async def _render_without_texts(self, job: _Job, keeps: Keeps) -> str:
        keys = self.compiled[job.template].keys
        variables = without_texts(job.variables, job.request_variables, keys, job.end_mark.strip(), keeps)
        rendered = await self._rendered_async(replace(job, variables=variables))
        return _cut(rendered.text, job.end_mark) + job.forced_text


# ---------------------------------------------------------------- a message that is continued


def _marked(message: Mapping[str, Any], mark: str) -> Mapping[str, Any]:
    """Return the message with a mark at the end of its text."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + mark}
    parts = list(content) if isinstance(content, (list, tuple)) else []
    texts = [index for index, part in enumerate(parts) if "text" in part]
    if texts:
        parts[texts[-1]] = {**parts[texts[-1]], "text": parts[texts[-1]]["text"] + mark}
        return {**message, "content": parts}
    raise InvalidInput("the last message has no text that could be continued", param="continue_final_message")


def _cut(text: str, mark: str) -> str:
    """Return the text before the mark. As in ``transformers``, white space is removed if the template trims.

    ``mark``: empty if the whole text is returned.
    """
    if not mark:
        return text
    word = mark.strip()
    at = text.find(word)
    if at < 0:
        raise _not_continuable("changes or leaves out the last message")
    if text.find(word, at + 1) >= 0:  # ``transformers`` leaves its mark in such a prompt
        raise _not_continuable("writes the last message twice")
    return text[:at] if text.startswith(mark, at) else text[:at].rstrip()


def _check_unchanged(dialogue: Dialogue, text: str) -> None:
    """Raise InvalidInput, as ``transformers`` does, if the template did not write the last message unchanged."""
    last = dialogue.messages[-1]
    content = next((part.text for part in reversed(last.parts) if part.kind == "text"), last.text)
    if content.strip() not in text:
        raise _not_continuable("changes or leaves out the last message")


def _not_continuable(reason: str) -> InvalidInput:
    return InvalidInput(
        f"this model's chat template {reason}, so the message cannot be continued", param="continue_final_message"
    )
