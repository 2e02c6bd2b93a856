"""What does a template file say of tools and of thinking? Its keys ``tools`` and ``thinking``, checked and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PARSERS = ("hermes", "json", "llama3_json", "pythonic", "mistral", "lazyllm")
"""The formats of calls that ``stream/tool_calls`` reads; a test holds both together."""


@dataclass(frozen=True, slots=True)
class ToolTokens:
    """The texts around a call in the format ``lazyllm``; all empty: calls stand on lines of their own."""

    start: str = ""
    args: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ToolList:
    """How a request's tools are told to the model."""

    turn: Literal["system", "first_user", "last_user"] = "system"
    """The message by which they stand; a system turn is made if no system message leads the conversation."""
    place: Literal["before_text", "after_text", "before_turn", "after_turn"] = "after_text"
    """Inside that turn, or beside it."""
    begin: str = ""
    each: Literal["tool", "function"] = "tool"
    """What of each tool is written as JSON: all of it, or its ``function``."""
    indent: int | None = None
    """Spaces of indentation; None: on one line, with a blank after each comma and colon."""
    separator: str = "\n"
    end: str = ""
    between: str = ""
    """Between the list and the message's text, if there is any."""
    system: str = ""
    """The text of a system turn that is made for the list."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """How the calls of an assistant's message are written."""

    after_text: str = ""
    """Between the message's text and its calls, if there is any text."""
    begin: str = ""
    each_begin: str = ""
    body: Literal["json", "named", "python"] = "json"
    """``json``: ``{"name": …, "arguments": …}``; ``named``: the name, ``between``, the arguments as JSON;
    ``python``: ``name(key=value)``."""
    key: Literal["arguments", "parameters"] = "arguments"
    """With ``json``: what the arguments are called."""
    between: str = ""
    """With ``named``."""
    each_end: str = ""
    separator: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ResultForm:
    """How a tool's result stands inside the turn of its role."""

    begin: str = ""
    end: str = ""
    together: bool = False
    """Results that follow each other share one turn."""
    separator: str = ""
    """With ``together``: between them."""


@dataclass(frozen=True, slots=True)
class ForceForm:
    """What the prompt ends with when ``tool_choice`` demands a call."""

    begin: str
    """Opens a call; the model goes on with the tool's name."""
    end: str = ""
    """Behind a tool's name that is demanded; the model goes on with the arguments."""


@dataclass(frozen=True, slots=True)
class ToolsSpec:
    """The key ``tools``: with it, a string template takes a request's tools."""

    parser: str
    """One of ``PARSERS``: how the model writes its calls."""
    tokens: ToolTokens = ToolTokens()
    declare: ToolList | None = None
    """None in kinds that write tools themselves."""
    calls: CallForm | None = None
    """None: messages with calls are refused, or the kind writes them itself."""
    results: ResultForm = ResultForm()
    force: ForceForm | None = None
    """None: a ``tool_choice`` that demands a call is refused."""


@dataclass(frozen=True, slots=True)
class ThinkingSpec:
    """The key ``thinking``: the model thinks aloud between two markers."""

    begin: str
    end: str
    open: bool | Literal["auto"] = False
    """The prompt ends inside the reasoning already; ``auto``: where it ends with ``begin``, which may depend on the
    request."""
    fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The answer's keys that carry the reasoning."""
