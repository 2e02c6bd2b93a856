"""Rendering in a subprocess with a time limit and a memory limit.

A long render would block the event loop, so a subprocess renders the large conversations. Another subprocess measures
templates (``in_process.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from metatemplate.chat_templates.sandbox.compiled_template import RenderedText, RenderingFailed
from metatemplate.errors import InvalidInput, RendererBusy, TemplateFailure
from metatemplate.limited_process.process import JobNotDone, JobTooSlow, LimitedProcess, ProcessEnded, Reply

RENDER_CPU = 0.8
"""The limit of processor time for one render, in seconds."""
COMPILE_CPU = 2.0
"""The limit of processor time for compiling the templates, in seconds."""
MAX_WAITING = 16
"""The largest number of calls that wait for the process of a template. Further calls would wait too long."""

JOB_MODULE = "metatemplate.chat_templates.sandbox.render_job"


class SubprocessRenderer(LimitedProcess):
    """Renders the templates of one model's folder in a subprocess."""

    def __init__(self, name: str, sources: tuple[str, ...], clock: str) -> None:
        """Create a renderer. ``clock``: the time for ``strftime_now`` in ISO 8601; empty for the present time."""
        super().__init__(JOB_MODULE, "", max_waiting=MAX_WAITING)
        self._set_templates(name, sources, clock)

    def _set_templates(self, name: str, sources: tuple[str, ...], clock: str) -> None:
        self._name = name
        self._purpose = f"renders the template {name}"
        self._templates = {"sources": list(sources), "clock": clock}

    def load(self, name: str, sources: tuple[str, ...], clock: str) -> None:
        """Replace the templates. Raises ``TemplateFailure`` if a template cannot be compiled."""
        with self._template_errors():
            self._twice(lambda: self._load(name, sources, clock))

    def _load(self, name: str, sources: tuple[str, ...], clock: str) -> None:
        self._set_templates(name, sources, clock)
        if self._process is None:
            self._start()
        else:
            self._prepare()

    def seconds(self, template: int, variables: Mapping[str, Any]) -> float | None:
        """Return the processor time in seconds: infinity for a render that failed, None for a refused conversation."""
        try:
            reply, _ = self._reply(template, variables)
        except TemplateFailure:  # the process was stopped
            return float("inf")
        if "refused" in reply:
            return None
        return float("inf") if "failed" in reply else float(reply["seconds"])

    async def render_async(self, template: int, variables: Mapping[str, Any]) -> RenderedText:
        """Render without blocking the event loop. See ``render``. Raises ``RendererBusy`` if too many calls wait."""
        return await self.in_thread(self.render, template, variables)

    def render(self, template: int, variables: Mapping[str, Any]) -> RenderedText:
        """Render the conversation. ``template`` is an index into ``sources``.

        Raises ``InvalidInput`` if the template refuses the conversation, ``RenderingFailed`` if rendering fails,
        ``TemplateFailure`` if rendering exceeds a limit, and ``RendererBusy`` if the process was killed from outside or
        cannot be started.
        """
        reply, text = self._reply(template, variables)
        if "refused" in reply:
            raise InvalidInput(reply["refused"], param="messages")
        if "failed" in reply:
            raise RenderingFailed(reply["failed"])
        return RenderedText(text, tuple(reply["undefined"]))

    def _reply(self, template: int, variables: Mapping[str, Any]) -> Reply:
        """Return the process's reply and the rendered text. For the errors, see ``render``."""
        job = {"template": template, "variables": dict(variables), "now": datetime.now().isoformat()}
        with self._template_errors():
            return self.call(job, RENDER_CPU)

    def _prepare(self) -> None:
        """Compile the templates in the process."""
        reply, _ = self._send(self._templates, COMPILE_CPU)
        if "failed" in reply:
            self._stop()
            raise TemplateFailure(reply["failed"])

    @contextmanager
    def _template_errors(self) -> Iterator[None]:
        """Raise ``TemplateFailure`` for a job beyond a limit, and ``RendererBusy`` for one that may be tried again."""
        try:
            yield
        except JobTooSlow as error:
            raise TemplateFailure(
                f"the template {self._name} took longer than {error.limit} on this conversation and was stopped"
            ) from None
        except ProcessEnded as error:
            raise TemplateFailure(str(error)) from None
        except JobNotDone as error:
            raise RendererBusy(f"{error}; retry later", retry_after=1.0) from None
