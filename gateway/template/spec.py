"""The keys of a template file, as frozen dataclasses with checked values.

OpenCompass's keys keep their names (``docs/spec/opencompass.md`` 1 and 4). The gateway adds further keys.
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
"""OpenCompass's names for the roles of an API model."""


@dataclass(frozen=True, slots=True)
class ToolList:
    """How the prompt shows the list of a request's tools."""

    turn: Literal["system", "first_user", "last_user"] = "system"
    """The turn that has the list. ``system`` adds a system turn if the first message is not a system message."""
    place: Literal["before_text", "after_text", "before_turn", "after_turn"] = "after_text"
    """The position of the list: before or after the text of the turn, or before or after the whole turn."""
    begin: str = ""
    each: Literal["tool", "function"] = "tool"
    """The part of each tool that is written as JSON: the whole object, or only the value of ``function``."""
    indent: int | None = None
    """Spaces of indentation, 0 to 8; None: the JSON is on one line, with a space after each comma and colon."""
    separator: str = "\n"
    end: str = ""
    between: str = ""
    """The text between the list and the message's text. It is left out if the message's text is empty."""
    system: str = ""
    """The text of the system turn that is added if no message can have the list."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """How the prompt shows the tool calls of an assistant's message."""

    after_text: str = ""
    """The text between the message's text and the calls. It is left out if the message's text is empty."""
    begin: str = ""
    each_begin: str = ""
    body: Literal["json", "named", "python"] = "json"
    """A call is ``{"name": …, "arguments": …}`` with ``json``, and ``name(key=value)`` with ``python``. With ``named``,
    a call is the name, the text ``between``, and the arguments as JSON."""
    key: Literal["arguments", "parameters"] = "arguments"
    """The key of the arguments if ``body`` is ``json``."""
    between: str = ""
    """The text between the name and the arguments if ``body`` is ``named``."""
    each_end: str = ""
    separator: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ResultForm:
    """How the prompt shows the result of a tool, inside the turn of the tool's role."""

    begin: str = ""
    end: str = ""
    together: bool = False
    """True: all results that follow each other directly are in one turn."""
    separator: str = ""
    """The text between two results in one turn."""


@dataclass(frozen=True, slots=True)
class ForceForm:
    """The text at the end of a prompt if the request's ``tool_choice`` forces a call."""

    begin: str
    """The beginning of a call, up to the tool's name."""
    end: str
    """The text between the name of the tool and the arguments. It is written if ``tool_choice`` names the tool."""


@dataclass(frozen=True, slots=True)
class ToolsSpec:
    """The value of the key ``tools``. A string template without this key refuses requests with tools."""

    parser: ToolParser
    """The format in which the model writes its calls."""
    tokens: ToolTokens = field(default=ToolTokens())
    declare: ToolList | None = None
    """How the prompt shows the list of tools; None: the kind of the template decides this."""
    calls: CallForm | None = None
    """How the prompt shows calls; None: the kind of the template decides this, or messages with calls are refused."""
    results: ResultForm = ResultForm()
    force: ForceForm | None = None
    """How the prompt begins a forced call; None: a ``tool_choice`` that forces a call is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrompterSpec:
    """The settings and special tokens of a LazyLLM prompter (``docs/spec/lazyllm.md``)."""

    form: Literal["alpaca", "chat", "empty"]
    """The value of the key ``class``."""
    tokens: SpecialTokens
    """The special tokens of the model family ``marks_of``; tokens in the file's ``marks`` replace them."""
    instruction: str | tuple[str, str] = ""
    """One text, or a text for the system part and a text for the user part. A slot is written ``{name}``."""
    extra_keys: tuple[NonEmpty, ...] = ()
    """The names of further slots. Each is written under a separate heading."""
    input_slot: NonEmpty = ""
    """The slot that the last user message fills; empty: the last user message is a separate turn."""
    history: tuple[tuple[str, str], ...] = ()
    """Pairs of a user's and an assistant's text that are written before every conversation."""
    tools: bool = False
    """True: the tools of a request are written into the prompt."""
    default_tools: tuple[Mapping[str, Any], ...] = ()
    """The tools of a request without tools (the constructor's tools in LazyLLM)."""
    stop_words: tuple[str, ...] = ()
    """The stop words of the model family."""
    dialect: str = "1.4"
    exact: bool = False
    """True: do byte for byte what LazyLLM does, even where LazyLLM has a bug or refuses the request."""
    get_response: bool = False
    """True: the answer is the text after a repeated prompt, or after the last mark of an answer."""
    messages: bool = False
    """True: make OpenAI's messages (LazyLLM's ``return_dict``), for targets that take messages; else a string."""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One entry of ``round`` or ``reserved_roles``."""

    role: NonEmpty
    begin: str = ""
    end: str = ""
    prompt: str | None = None
    """The default prompt, which is the text of a turn without a message; None: the role has no default prompt."""
    generate: bool = False
    api_role: ApiRole | None = None
    fallback_role: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation and the exact prompt that it must give. It is rendered whenever the file is loaded."""

    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str | None = None
    """The exact prompt of a template that makes a string."""
    sent: tuple[Mapping[str, Any], ...] | None = None
    """The exact messages of a template that makes messages. A prompter's example may have a prompt and messages."""
    continue_final_message: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)


@dataclass(frozen=True, slots=True)
class JinjaSpec:
    """A chat template with the settings from the model's folder (``kind: jinja``)."""

    sources: tuple[tuple[str, str], ...]
    """(name, text) of the chat template, then of ``tool_use`` if requests with tools have a separate chat template."""
    special_tokens: Mapping[str, str] = field(default=EMPTY_MAPPING)
    """The special tokens by the names of their variables in the template: ``bos_token``, ``eos_token`` …"""
    kwargs: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Further variables of the template, with the same values for every request."""
    request_kwargs: tuple[str, ...] = ()
    """The names of the variables that a request may set with ``chat_template_kwargs``."""
    clock: str = ""
    """The time that ``strftime_now`` formats, in ISO 8601; empty: the present time."""
    clock_given: bool = False
    content: Literal["text", "parts"] = "text"
    """How the template gets content that is a list of parts: with ``text``, joined to one text; else unchanged."""
    tool_arguments: Literal["object", "text"] = "object"
    """How the template gets the arguments of a call: with ``text``, as the JSON text of the request; else parsed."""
    ends: tuple[str, ...] = ()
    """The texts of the tokens that end an answer."""
    end_ids: tuple[int, ...] = ()
    """The ids of these tokens."""
    files: tuple[str, ...] = ()
    """The paths of the files that were read, relative to the template file."""
    names: tuple[str, ...] = ()
    """The names of all templates in these files."""
    disagreements: tuple[str, ...] = ()
    """Notes on differences between these files. Each note names the file that is used."""
    choice: tuple[str, ...] = ()
    """A note on the chat template that requests get, if the folder has several and the template file names none."""

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes on the files, for ``gateway check``."""
        return (*self.disagreements, *self.choice)


@dataclass(frozen=True, slots=True)
class TemplateSpec:
    """The content of a template file. ``kind`` selects the renderer."""

    name: str
    kind: Literal["meta", "prompter", "jinja", "chat", "base"]
    description: str = ""
    begin: str = ""
    end: str = ""
    round: tuple[RoleSpec | str, ...] = ()
    reserved_roles: tuple[RoleSpec, ...] = ()
    eos_token_id: int | None = None
    roles: Mapping[str, NonEmpty] = field(default=EMPTY_MAPPING)
    """OpenAI role → template role, in addition to the four standard roles."""
    stop: tuple[NonEmpty, ...] = ()
    bos: Bos = "none"
    bos_text: NonEmpty = ""
    turns: Literal["natural", "opencompass"] = "natural"
    media: NonEmpty | None = None
    """The text that replaces each media part; None: a request with media is refused."""
    tools: ToolsSpec | None = None
    """None: a request with tools is refused."""
    thinking: Thinking | None = None
    """How reasoning is separated from the answer; None: the whole text of the model is the answer."""
    prompter: PrompterSpec | None = None
    """Set for ``kind: prompter``."""
    examples: tuple[Example, ...] = ()
    digest: str = ""
    """Twelve hex digits of the SHA-256 of this file and the files that it names. Sent as ``x-gateway-template``."""
    jinja: JinjaSpec | None = None
    """Set for ``kind: jinja``."""

    @property
    def api(self) -> bool:
        """True if the roles have ``api_role``, so that the template makes messages and not a string."""
        return any(isinstance(entry, RoleSpec) and entry.api_role is not None for entry in self.round)

    @property
    def makes_messages(self) -> bool:
        """True if the template makes messages and not a string."""
        return self.kind == "chat" or self.api or (self.prompter is not None and self.prompter.messages)

    @property
    def generating(self) -> RoleSpec | None:
        """The role of the model's answer; None if no role has ``generate``, as with ``kind: chat``."""
        return next((entry for entry in self.round if isinstance(entry, RoleSpec) and entry.generate), None)


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """A mistake in a template file. ``path`` has the keys that lead to the wrong value."""

    path: tuple[str | int, ...]
    message: str
