"""A template file's keys, checked and frozen.

The keys of OpenCompass keep their names (``docs/spec/opencompass.md`` 1 and 4), the gateway's own stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.prompt import Bos
from gateway.template.spec.prompter import PrompterSpec
from gateway.template.spec.tools import ThinkingSpec, ToolsSpec, Word

ApiRole = Literal["HUMAN", "BOT", "SYSTEM", "TOOL"]
"""The roles of an API model, in OpenCompass's words."""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One entry of ``round`` or ``reserved_roles``."""

    role: Word
    begin: str = ""
    end: str = ""
    prompt: str | None = None
    """The default prompt; None: the role has none."""
    generate: bool = False
    api_role: ApiRole | None = None
    fallback_role: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation and the exact prompt that it must become. Rendered whenever the file is loaded."""

    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str | None = None
    """The exact string (string templates)."""
    sent: tuple[Mapping[str, Any], ...] | None = None
    """The exact messages (templates whose roles carry ``api_role``)."""
    continue_final_message: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)


@dataclass(frozen=True, slots=True)
class JinjaSpec:
    """A chat template with the settings from a model's folder (``kind: jinja``)."""

    sources: tuple[tuple[str, str], ...]
    """(name, text): the template, then ``tool_use`` if there is a separate one for tools."""
    special_tokens: Mapping[str, str] = field(default=EMPTY_MAPPING)
    """``bos_token``, ``eos_token`` …, variables of the template."""
    kwargs: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Further variables, the same for every request."""
    request_kwargs: tuple[str, ...] = ()
    """Variables that a request may set by ``chat_template_kwargs``."""
    clock: str = ""
    """The time that ``strftime_now`` formats, in ISO 8601; empty: the present time."""
    clock_given: bool = False
    content: Literal["text", "parts"] = "text"
    """The form of content that comes as a list: joined to one text, or unchanged."""
    tool_arguments: Literal["object", "text"] = "object"
    """The form of a call's arguments, which are JSON text on the wire: parsed, or unchanged."""
    ends: tuple[str, ...] = ()
    """The texts of the tokens that end an answer."""
    end_ids: tuple[int, ...] = ()
    """The ids of these tokens."""
    files: tuple[str, ...] = ()
    """The files that were read, by their paths relative to the template."""
    names: tuple[str, ...] = ()
    """The names of all templates in these files."""
    disagreements: tuple[str, ...] = ()
    """Differences between these files, and the file that counts."""
    choice: tuple[str, ...] = ()
    """The template that a request gets, if there are several and the file names none."""

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes on the files, for ``gateway check``."""
        return (*self.disagreements, *self.choice)


@dataclass(frozen=True, slots=True)
class TemplateSpec:
    """A template file. ``kind`` selects the renderer."""

    name: str
    kind: Literal["meta", "prompter", "jinja", "chat"]
    description: str = ""
    begin: str = ""
    end: str = ""
    round: tuple[RoleSpec | str, ...] = ()
    reserved_roles: tuple[RoleSpec, ...] = ()
    eos_token_id: int | None = None
    roles: Mapping[str, Word] = field(default=EMPTY_MAPPING)
    """OpenAI role → template role, beyond the standard four."""
    stop: tuple[Word, ...] = ()
    bos: Bos = "none"
    bos_text: Word = ""
    turns: Literal["natural", "opencompass"] = "natural"
    media: Word | None = None
    """Placeholder text for a media part; None: media are refused."""
    tools: ToolsSpec | None = None
    """None: a request with tools is refused."""
    thinking: ThinkingSpec | None = None
    """None: the model's text is its answer."""
    prompter: PrompterSpec | None = None
    """Set for ``kind: prompter``."""
    examples: tuple[Example, ...] = ()
    digest: str = ""
    """Twelve hex digits of the SHA-256 of the file and of the files it names, for ``x-gateway-template``."""
    jinja: JinjaSpec | None = None
    """Set for ``kind: jinja``."""

    @property
    def api(self) -> bool:
        """True if the roles have ``api_role``: then the template makes messages, not a string."""
        return any(isinstance(entry, RoleSpec) and entry.api_role is not None for entry in self.round)

    @property
    def generating(self) -> RoleSpec | None:
        """The role of the model's answer; None for ``kind: chat``."""
        return next((entry for entry in self.round if isinstance(entry, RoleSpec) and entry.generate), None)


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """A mistake in a template file, by its path of keys instead of its line."""

    path: tuple[str | int, ...]
    message: str
