"""A template file's keys, checked and frozen.

The keys of OpenCompass keep their names (``docs/spec/opencompass.md`` 1 and 4), the gateway's own stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.core.answer_markers import NonEmpty, Thinking, ToolParser, ToolTokens
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.prompt import Bos
from gateway.template.lazyllm.tokens import SpecialTokens

ApiRole = Literal["HUMAN", "BOT", "SYSTEM", "TOOL"]
"""The roles of an API model, in OpenCompass's words."""


@dataclass(frozen=True, slots=True)
class ToolList:
    """The form of the list of a request's tools in the prompt."""

    turn: Literal["system", "first_user", "last_user"] = "system"
    """The message that has the list; a system turn is added if the first message is not a system message."""
    place: Literal["before_text", "after_text", "before_turn", "after_turn"] = "after_text"
    """Inside that turn, or beside it."""
    begin: str = ""
    each: Literal["tool", "function"] = "tool"
    """The part of each tool that is written as JSON: all of it, or its ``function``."""
    indent: int | None = None
    """Spaces of indentation, 0 to 8; None: on one line, with a space after each comma and colon."""
    separator: str = "\n"
    end: str = ""
    between: str = ""
    """Between the list and the message's text, if the text is not empty."""
    system: str = ""
    """The text of the system turn that is added for the list."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """The form of the calls of an assistant's message."""

    after_text: str = ""
    """Between the message's text and its calls, if the text is not empty."""
    begin: str = ""
    each_begin: str = ""
    body: Literal["json", "named", "python"] = "json"
    """``json``: ``{"name": …, "arguments": …}``; ``named``: the name, ``between``, the arguments as JSON;
    ``python``: ``name(key=value)``."""
    key: Literal["arguments", "parameters"] = "arguments"
    """With ``json``: the key of the arguments."""
    between: str = ""
    """With ``named``."""
    each_end: str = ""
    separator: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ResultForm:
    """The form of a tool's result inside the turn of its role."""

    begin: str = ""
    end: str = ""
    together: bool = False
    """True: results that follow each other share one turn."""
    separator: str = ""
    """With ``together``: between them."""


@dataclass(frozen=True, slots=True)
class ForceForm:
    """The end of a prompt whose ``tool_choice`` forces a call."""

    begin: str
    """The opening of a call, up to the tool's name."""
    end: str
    """Between a demanded tool's name and its arguments."""


@dataclass(frozen=True, slots=True)
class ToolsSpec:
    """The key ``tools``. A string template without it refuses a request's tools."""

    parser: ToolParser
    """The format in which the model writes its calls."""
    tokens: ToolTokens = field(default=ToolTokens())
    declare: ToolList | None = None
    """None in kinds that have their own form for tools."""
    calls: CallForm | None = None
    """None: messages with calls are refused, or the kind has its own form for them."""
    results: ResultForm = ResultForm()
    force: ForceForm | None = None
    """None: a ``tool_choice`` that demands a call is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrompterSpec:
    """A LazyLLM prompter with its tokens (``docs/spec/lazyllm.md``)."""

    form: Literal["alpaca", "chat", "empty"]
    """The key ``class``."""
    tokens: SpecialTokens
    """Those of the family ``marks_of``, with the file's own ``marks`` over them."""
    instruction: str | tuple[str, str] = ""
    """Text, or (system, user); slots are written ``{name}``."""
    extra_keys: tuple[NonEmpty, ...] = ()
    """More slots, each under a heading of its own."""
    input_slot: NonEmpty = ""
    """The slot that the last user message fills; empty: the message has a turn of its own."""
    history: tuple[tuple[str, str], ...] = ()
    """Pairs of user and assistant texts before every conversation."""
    tools: bool = False
    """True: a request's tools are written into the prompt."""
    stop_words: tuple[str, ...] = ()
    """Those of the family."""
    dialect: str = "1.4"
    exact: bool = False
    """True: byte for byte what LazyLLM does, its accidents and refusals included."""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One entry of ``round`` or ``reserved_roles``."""

    role: NonEmpty
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
    roles: Mapping[str, NonEmpty] = field(default=EMPTY_MAPPING)
    """OpenAI role → template role, beyond the standard four."""
    stop: tuple[NonEmpty, ...] = ()
    bos: Bos = "none"
    bos_text: NonEmpty = ""
    turns: Literal["natural", "opencompass"] = "natural"
    media: NonEmpty | None = None
    """Placeholder text for a media part; None: media are refused."""
    tools: ToolsSpec | None = None
    """None: a request with tools is refused."""
    thinking: Thinking | None = None
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
