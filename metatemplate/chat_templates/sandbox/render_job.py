"""The job of the subprocess that renders chat templates: either to compile templates, or to render a conversation.

Strangers write the templates that ``gateway import`` reads, so the process has limits. The sandbox of
``environment.py`` keeps templates away from files and from the network, as in the gateway's process.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from metatemplate.chat_templates.sandbox.compiled_template import CompiledTemplate
from metatemplate.chat_templates.sandbox.environment import ChatEnvironment
from metatemplate.errors import InvalidInput, TemplateFailure
from metatemplate.limited_process.process import Reply


class _LoadedTemplates:
    """The templates that the process renders."""

    def __init__(self) -> None:
        self._clock, self._now = "", datetime.min
        self._environment = ChatEnvironment(lambda: self._now)
        self._templates: list[CompiledTemplate] = []

    def load(self, sources: list[str], clock: str) -> None:
        self._clock = clock
        self._now = datetime.fromisoformat(clock) if clock else self._now
        self._templates = [CompiledTemplate(source, self._environment) for source in sources]

    def render(self, template: int, variables: Mapping[str, Any], now: str) -> Reply:
        if not self._clock:
            self._now = datetime.fromisoformat(now)  # in the gateway's time zone
        rendered = self._templates[template].render(variables)
        return {"undefined": rendered.undefined}, rendered.text


_loaded = _LoadedTemplates()


def do_job(job: Mapping[str, Any]) -> Reply:
    """Compile the templates ``sources``, or else render ``variables`` with the template of number ``template``."""
    try:
        if "sources" not in job:
            return _loaded.render(job["template"], job["variables"], job["now"])
        _loaded.load(job["sources"], job["clock"])
    except InvalidInput as error:
        return {"refused": error.message}, ""
    except TemplateFailure as error:
        return {"failed": error.message}, ""
    return {}, ""
