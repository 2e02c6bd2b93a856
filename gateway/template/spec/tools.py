"""The keys ``tools`` and ``thinking`` of a template file, checked and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

Word = Annotated[str, "not empty"]
"""A text that is not empty in a template file."""

Parser = Literal["hermes", "json", "llama3_json", "pythonic", "mistral", "lazyllm"]
PARSERS: tuple[str, ...] = get_args(Parser)
"""The formats of calls that ``stream/tool_calls`` reads; a test compares both."""


@dataclass(frozen=True, slots=True)
class ToolTokens:
    """The texts around a call in the format ``lazyllm``; all empty: each call is a line."""

    start: str = ""
    args: str = ""
    end: str = ""


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

    parser: Parser
    """The format in which the model writes its calls."""
    tokens: ToolTokens = ToolTokens()
    declare: ToolList | None = None
    """None in kinds that have their own form for tools."""
    calls: CallForm | None = None
    """None: messages with calls are refused, or the kind has its own form for them."""
    results: ResultForm = ResultForm()
    force: ForceForm | None = None
    """None: a ``tool_choice`` that demands a call is refused."""


ReasoningField = Literal["reasoning_content", "reasoning"]


@dataclass(frozen=True, slots=True)
class ThinkingSpec:
    """The key ``thinking``: the model writes its reasoning between two markers."""

    begin: Word
    end: Word
    open: bool | Literal["auto"] = False
    """True: the prompt ends inside the reasoning; ``auto``: only a prompt that ends with ``begin`` does."""
    fields: tuple[ReasoningField, ...] = ("reasoning_content", "reasoning")
    """The answer's keys for the reasoning."""
