"""The keys of a template file, as frozen dataclasses with checked values.

OpenCompass's keys keep their names (``docs/spec/opencompass.md`` 1 and 4). The gateway adds further keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from metatemplate.values.answer_markers import Thinking, ToolTokens
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.kinds import NonEmpty, Switch, TextOr, Texts, WholeNumber
from metatemplate.values.prompt import Bos

ApiRole = Literal["HUMAN", "BOT", "SYSTEM", "TOOL"]
"""OpenCompass's names for the roles of an API model."""
UNKNOWN_SOURCE = "unknown"
"""The value of ``markers.source`` if no public source of a family's special tokens was found."""


@dataclass(frozen=True, slots=True)
class ToolList:
    """How the prompt shows the list of a request's tools."""

    turn: Literal["system", "first_user", "last_user"] = "system"
    """The turn that contains the list. ``system`` adds a system turn if the first message is not a system message."""
    place: Literal["before_text", "after_text", "before_turn", "after_turn"] = "after_text"
    """The position of the list: before or after the text of the turn, or before or after the whole turn."""
    begin: str = ""
    each: Literal["tool", "function"] = "tool"
    """The part of each tool that is written as JSON: the whole object, or only the value of ``function``."""
    indent: WholeNumber | None = None
    """Spaces of indentation, 0 to 8; None: the JSON is on one line, with a space after each comma and colon."""
    separator: str = "\n"
    end: str = ""
    between: str = ""
    """The text between the list and the message's text. It is left out if the message's text is empty."""
    system: str = ""
    """The text of the system turn that is added if no message can contain the list."""


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
    together: Switch = False
    """Whether adjacent tool results are written in one turn."""
    separator: str = ""
    """The text between two results in one turn."""


@dataclass(frozen=True, slots=True)
class ForceForm:
    """The text at the end of a prompt if the request's ``tool_choice`` forces a call."""

    begin: str
    """The beginning of a call, up to the tool's name."""
    end: str
    """The text between the tool's name and the arguments. It is written only if ``tool_choice`` names the tool."""


@dataclass(frozen=True, slots=True)
class ToolsSpec:
    """The value of the key ``tools``. A string template without this key refuses requests with tools."""

    parser: str
    """The format in which the model writes its calls: a row of ``metatemplate/answers/tool_calls/formats.yaml``, or
    ``lazyllm``."""
    tokens: ToolTokens = field(default=ToolTokens())
    declare: ToolList | None = None
    """How the prompt shows the list of tools; None if the kind of the template decides this."""
    calls: CallForm | None = None
    """How the prompt shows tool calls. If None, meta templates refuse messages with calls, and other kinds use their
    own form."""
    results: ResultForm = ResultForm()
    force: ForceForm | None = None
    """How the prompt begins a forced call. If None, a ``tool_choice`` that forces a call is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """The special tokens of a model. None: a token is not configured, which may differ from an empty token."""

    system: str = ""
    """The system sentence of the model, which LazyLLM configures like a special token."""
    sos: str = ""
    """``sos`` starts the system turn, and ``eos`` ends this turn. In other names, h is human, a assistant, e
    environment."""
    soh: str = ""
    soa: str = ""
    eos: str = ""
    eoh: str = ""
    eoa: str = ""
    soe: str | None = None
    eoe: str | None = None
    tool_start_token: str | None = None
    tool_end_token: str | None = None
    tool_args_token: str | None = None

    def updated(self, texts: Mapping[str, Any]) -> SpecialTokens:
        """Return a copy in which ``texts`` replace the tokens of the same names. Unknown names and None are ignored."""
        known = {name: text for name, text in texts.items() if name in TOKEN_NAMES and text is not None}
        return replace(self, **known)

    @property
    def tool_tokens(self) -> tuple[tuple[str, str | None], ...]:
        """(name, token) of the three tokens of a tool call, in the order in which LazyLLM fills these slots."""
        return tuple([(name, getattr(self, name)) for name in TOOL_TOKENS])


TOKEN_NAMES = tuple(field.name for field in fields(SpecialTokens))
TOOL_TOKENS = ("tool_start_token", "tool_args_token", "tool_end_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrompterSpec:
    """The settings and special tokens of a LazyLLM prompter (``docs/spec/lazyllm.md``)."""

    form: Literal["alpaca", "chat", "empty"]
    """The value of the key ``class``."""
    tokens: SpecialTokens
    """The special tokens of the model family ``marks_of``. Tokens in the file's ``marks`` replace them."""
    instruction: str | tuple[str, str] = ""
    """One text, or a text for the system part and a text for the user part. A slot is written ``{name}``."""
    extra_keys: Texts = ()
    """The names of further slots. Each is written under a separate heading."""
    input_slot: NonEmpty = ""
    """The slot that the last user message fills; empty if the last user message is a separate turn."""
    history: tuple[tuple[str, str], ...] = ()
    """Pairs of a user's and an assistant's text that are written before every conversation."""
    history_messages: tuple[Mapping[str, Any], ...] = ()
    """Messages that an API model gets before every conversation, after ``history``."""
    tools: bool = False
    """Whether the tools of a request are written into the prompt."""
    default_tools: tuple[Mapping[str, Any], ...] = ()
    """The tools of a request without tools (the constructor's tools in LazyLLM)."""
    stop_words: tuple[str, ...] = ()
    """The stop words of the model family."""
    dialect: str = "1.4"
    get_response: Switch = False
    """Whether everything up to a repeated prompt, or up to the last mark of an answer, is removed from the answer."""
    messages: bool = False
    """Whether the prompter makes OpenAI messages (LazyLLM's ``return_dict``) instead of a string."""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One entry of ``round`` or ``reserved_roles``."""

    role: NonEmpty
    begin: str = ""
    end: str = ""
    prompt: str | None = None
    """The text of a turn without a message (the default prompt); None if the role has no default prompt."""
    generate: Switch = False
    api_role: ApiRole | None = None
    fallback_role: str | None = None


@dataclass(frozen=True, slots=True)
class FamilyMarkers:
    """The value of the key ``markers``: the special tokens of the model family, for models without a tokenizer here."""

    source: NonEmpty
    """The public source of the tokens; ``unknown`` if no source was found."""
    tokens: Texts = ()


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation and the exact prompt that must result. Every example is rendered when the file is loaded."""

    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str | None = None
    """The exact prompt of a template that makes a string."""
    sent: tuple[Mapping[str, Any], ...] | None = None
    """The exact messages of a template that makes messages. A prompter's example may have a prompt and messages."""
    continue_final_message: Switch = False
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: TextOr[Mapping[str, Any]] | None = None
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
    """The time that ``strftime_now`` formats, in ISO 8601; empty for the present time."""
    clock_given: bool = False
    content: Literal["text", "parts"] = "text"
    """How the template gets a content that is a list of parts: ``text`` joins the parts to one text, ``parts`` keeps
    the list."""
    tool_arguments: Literal["object", "text"] = "object"
    """How the template gets the arguments of a call: ``object`` is the parsed JSON, ``text`` is the JSON text of the
    request."""
    ends: tuple[str, ...] = ()
    """The texts of the tokens that end an answer."""
    end_ids: tuple[int, ...] = ()
    """The ids of the tokens that end an answer."""
    further_special_tokens: tuple[str, ...] = ()
    """The texts of the special tokens that have no variable in the template."""
    files: tuple[str, ...] = ()
    """The paths of the files that were read, relative to the template file."""
    names: tuple[str, ...] = ()
    """The names of all chat templates in ``files``."""
    disagreements: tuple[str, ...] = ()
    """Notes on differences between ``files``. Each note names the file that is used."""
    choice: tuple[str, ...] = ()
    """A note on the chat template that is used, if the folder has several and the template file does not select one."""
    failures: tuple[str, ...] = ()
    """Notes on conversations that a chat template cannot render."""

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes on the files, for ``gateway check``."""
        return (*self.disagreements, *self.choice, *self.failures)


@dataclass(frozen=True, slots=True)
class TemplateSpec:
    """The content of a template file. ``kind`` selects the renderer."""

    name: str
    kind: Literal["meta", "prompter", "jinja", "chat", "base"]
    description: str = ""
    begin: str = ""
    end: str = ""
    round: tuple[TextOr[RoleSpec], ...] = ()
    reserved_roles: tuple[RoleSpec, ...] = ()
    eos_token_id: WholeNumber | None = None
    roles: Mapping[str, NonEmpty] = field(default=EMPTY_MAPPING)
    """OpenAI role → template role, in addition to the four standard roles."""
    stop: Texts = ()
    bos: Bos = "none"
    bos_text: NonEmpty = ""
    turns: Literal["natural", "opencompass"] = "natural"
    media: NonEmpty | None = None
    """The text that replaces each media part; None if requests with media are refused."""
    tools: ToolsSpec | None = None
    """How tools are written into the prompt; None if requests with tools are refused."""
    thinking: Thinking | None = None
    """How reasoning is separated from the answer; None: the whole text of the model is the answer."""
    markers: FamilyMarkers | None = None
    """The special tokens of the model family, which are markers; None if the file does not name them."""
    prompter: PrompterSpec | None = None
    """The settings of ``kind: prompter``; None for other kinds."""
    examples: tuple[Example, ...] = ()
    digest: str = ""
    """Twelve hex digits of the SHA-256 of this file and the files that it names. Sent as ``x-gateway-template``."""
    jinja: JinjaSpec | None = None
    """The settings of ``kind: jinja``; None for other kinds."""

    @property
    def api(self) -> bool:
        """Whether the roles have ``api_role``, so that the template makes messages and not a string."""
        return any(isinstance(entry, RoleSpec) and entry.api_role is not None for entry in self.round)

    @property
    def makes_messages(self) -> bool:
        """Whether the template makes messages and not a string."""
        return self.kind == "chat" or self.api or (self.prompter is not None and self.prompter.messages)

    @property
    def parses_answers(self) -> bool:
        """Whether not all text of an answer is content: it may have reasoning or tool calls, or begin with a marker."""
        extracts = self.prompter is not None and self.prompter.get_response
        return self.tools is not None or self.thinking is not None or extracts

    def for_messages(self) -> TemplateSpec:
        """Return a copy of a prompter's template for targets that accept messages.

        The keys for tools, reasoning and the BOS are removed, because the target itself writes tools, calls, reasoning
        and the BOS.
        """
        assert self.prompter is not None
        prompter = replace(self.prompter, messages=True, get_response=False)
        return replace(self, tools=None, thinking=None, bos="none", bos_text="", prompter=prompter)

    @property
    def generating(self) -> RoleSpec | None:
        """The role of the model's answer; None if no role has ``generate``, as with ``kind: chat``."""
        return next((entry for entry in self.round if isinstance(entry, RoleSpec) and entry.generate), None)

    @property
    def scores_only(self) -> bool:
        """Whether the template renders only complete conversations: ``kind: meta`` without a generating role."""
        return self.kind == "meta" and self.generating is None


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """A mistake in a template file. ``path`` has the keys that lead to the wrong value."""

    path: tuple[str | int, ...]
    message: str
