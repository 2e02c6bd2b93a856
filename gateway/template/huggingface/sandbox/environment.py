"""What may a chat template use? The environment of ``transformers``, rebuilt: the bytes have to be the same.

Read from ``transformers`` 5.23, ``utils/chat_template_utils.py``: an immutable sandbox, ``trim_blocks`` and
``lstrip_blocks``, loop controls, ``{% generation %}`` blocks, JSON without HTML escapes, ``raise_exception`` and
``strftime_now``; no loader, no autoescape. Undefined values print nothing, as there: ``StrictUndefined`` would refuse
templates that test a missing field by printing it, so each one met is told by a notice instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

Clock = Callable[[], datetime]


class Refused(TemplateError):
    """The template itself said no, by ``raise_exception``; its words are the message."""


class GenerationBlocks(Extension):
    """``{% generation %}`` marks what an assistant says, for training; a prompt is the same without the marks."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """The block becomes a call that gives back what it was given."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("said"), [], [], body).set_lineno(line)

    def said(self, caller: Macro) -> Any:
        """The block's text."""
        return caller()


class SafeNamespace(Namespace):
    """``namespace()`` without names that begin with an underscore, which could reach Python's own."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that namespace(self=…) works
        self, given = args[0], dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class DictMaker:
    """``dict()`` that makes dicts and is none itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """As ``dict.fromkeys``."""
        return dict.fromkeys(*args, **kwargs)


class NotingContext(Context):
    """The variables of one render, and what it printed that nobody had given a value."""

    undefined: dict[str, None]


@pass_context
def printed(context: NotingContext, value: Any) -> Any:
    """What a template prints, as it is; nothing is told if it is nothing."""
    if isinstance(value, Undefined):
        context.undefined[str(value._undefined_name)] = None
    return value


class Environment(ImmutableSandboxedEnvironment):
    """The environment of one template; ``clock`` answers ``strftime_now``.

    Nothing is computed while compiling, or ``{{ "a" | center(9999999999) }}`` would hang whoever only loads the file:
    ``optimized`` is off, and ``finalize`` takes a context, without which jinja2 makes no constants.
    """

    context_class: type[Context] = NotingContext

    def __init__(self, clock: Clock) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[GenerationBlocks, LoopControls]
        )
        self.filters["tojson"] = tojson
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = strftime_at(clock)
        self.globals["dict"] = DictMaker()
        self.globals["namespace"] = SafeNamespace
        self.finalize = printed


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON as the models were trained on: jinja2's own would escape ``<`` and ``&`` for HTML."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: Any) -> None:
    """The template refuses the conversation."""
    raise Refused(message)


def strftime_at(clock: Clock) -> Callable[[str], str]:
    """``strftime_now`` by a clock that may stand still."""

    def strftime_now(format: str) -> str:
        return clock().strftime(format)

    return strftime_now


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no attribute that begins with an underscore, such as {name[:32]!r}")
