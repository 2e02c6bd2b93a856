"""What does a template file say? The file's keys, checked and frozen.

The OpenCompass keys are kept word for word (``specs/opencompass.md`` 1 and 4);
the gateway's own keys stand beside them (design 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.prompt import Bos
from gateway.template.spec.prompter import PrompterSpec
from gateway.template.spec.tools import ThinkingSpec, ToolsSpec


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One entry of ``round`` or ``reserved_roles``."""

    role: str
    begin: str = ""
    end: str = ""
    prompt: str | None = None
    """The default prompt; None: none given."""
    generate: bool = False
    api_role: str | None = None
    fallback_role: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation and the exact prompt it must become; run whenever the file is loaded."""

    messages: tuple[Mapping[str, Any], ...]
    prompt: str | None = None
    """The exact string (string templates)."""
    sent: tuple[Mapping[str, Any], ...] | None = None
    """The exact messages (templates whose roles carry ``api_role``)."""
    continue_final: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)


@dataclass(frozen=True, slots=True)
class JinjaSpec:
    """A chat template, and what surrounds it in a model's folder (``kind: jinja``)."""

    sources: tuple[tuple[str, str], ...]
    """(name, text): the template, and behind it ``tool_use`` if it has one of its own for tools."""
    special_tokens: Mapping[str, str] = field(default=EMPTY_MAPPING)
    """``bos_token``, ``eos_token`` …, variables of the template."""
    kwargs: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Further variables, the same for every request."""
    request_kwargs: tuple[str, ...] = ()
    """Variables that a request may set by ``chat_template_kwargs``."""
    clock: str = ""
    """What ``strftime_now`` tells, in ISO 8601; empty: the present moment."""
    clock_given: bool = False
    content: Literal["text", "parts"] = "text"
    """Content that comes as a list: joined to one text, or as it is."""
    tool_arguments: Literal["object", "text"] = "object"
    """The arguments of a call, JSON text on the wire: read, or as they are."""
    ends: tuple[str, ...] = ()
    """The texts of the tokens that end an answer."""
    end_ids: tuple[int, ...] = ()
    """The ids of the same."""
    files: tuple[str, ...] = ()
    """The files that say all this, by their paths beside the template."""
    names: tuple[str, ...] = ()
    """Of all the templates that these files hold."""
    disagreements: tuple[str, ...] = ()
    """Where these files disagree, and which one counts."""
    choice: tuple[str, ...] = ()
    """Which of several templates a request gets, if nobody has chosen one."""

    @property
    def notes(self) -> tuple[str, ...]:
        """All that a person should know of the files."""
        return (*self.disagreements, *self.choice)


@dataclass(frozen=True, slots=True)
class TemplateSpec:
    """A template file; ``kind`` says which renderer reads it."""

    name: str
    kind: Literal["meta", "prompter", "jinja", "chat"]
    description: str = ""
    begin: str = ""
    end: str = ""
    round: tuple[RoleSpec | str, ...] = ()
    reserved_roles: tuple[RoleSpec, ...] = ()
    eos_token_id: int | None = None
    roles: Mapping[str, str] = field(default=EMPTY_MAPPING)
    """OpenAI role → template role, beyond the standard four."""
    stop: tuple[str, ...] = ()
    bos: Bos = "none"
    bos_text: str = ""
    turns: Literal["natural", "opencompass"] = "natural"
    media: str | None = None
    """Placeholder text for a media part; None: media are refused."""
    tools: ToolsSpec | None = None
    """None: a request with tools is refused."""
    thinking: ThinkingSpec | None = None
    """None: the model's text is its answer."""
    prompter: PrompterSpec | None = None
    """Set for ``kind: prompter``."""
    examples: tuple[Example, ...] = ()
    digest: str = ""
    """Twelve hex digits of the SHA-256 of the file, and of those beside it that count, for ``x-gateway-template``."""
    jinja: JinjaSpec | None = None
    """Set for ``kind: jinja``."""

    @property
    def api(self) -> bool:
        """Do the roles carry ``api_role``? Then the template makes messages, not a string."""
        return any(isinstance(entry, RoleSpec) and entry.api_role is not None for entry in self.round)

    @property
    def generating(self) -> RoleSpec | None:
        """The role that the model plays; None for ``kind: chat``."""
        return next((entry for entry in self.round if isinstance(entry, RoleSpec) and entry.generate), None)


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """A mistake in a template file, before anyone knows its line."""

    path: tuple[str | int, ...]
    message: str
