"""The sandboxed Jinja environment of chat templates. It renders the same bytes as the one of ``transformers``.

Source: ``utils/chat_template_utils.py`` of ``transformers`` 5.23: an immutable sandbox, ``trim_blocks`` and
``lstrip_blocks``, loop controls, ``{% generation %}`` blocks, JSON without HTML escapes, ``raise_exception`` and
``strftime_now``; no loader and no autoescape. An undefined value prints nothing, as in ``transformers``, because some
templates print a missing field on purpose. Each undefined name that is printed becomes a notice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

Clock = Callable[[], datetime]

DICT_ATTRIBUTES = frozenset(dir(dict))
SAFE_ATTRIBUTES: Mapping[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if not name.startswith(("_", "format"))),
    LoopContext: frozenset(name for name in dir(LoopContext) if not name.startswith("_")),
}
"""Attributes that the sandbox returns unchanged. The sandbox replaces only ``str.format`` and ``str.format_map``."""


class ConversationRefused(TemplateError):
    """The template called ``raise_exception``. The error has the message of the template."""


class GenerationBlocks(Extension):
    """The block ``{% generation %}``, which marks the assistant's text for training. The prompt does not change."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Replace the block with a call that returns the block's text."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("block_text"), [], [], body).set_lineno(line)

    def block_text(self, caller: Macro) -> Any:
        """Return the block's text."""
        return caller()


class SafeNamespace(Namespace):
    """``namespace()`` without attributes that begin with an underscore, which could reach internals of Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # no named parameter, so that namespace(self=…) works
        self, attributes = args[0], dict(*args[1:], **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


class DictFactory:
    """The function ``dict`` of a template. The template can make dicts, but cannot reach the type ``dict``."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Return a new dict. See ``dict.fromkeys``."""
        return dict.fromkeys(*args, **kwargs)


class RenderContext(Context):
    """The variables of one render."""

    undefined: dict[str, None]
    """The undefined names that the template printed."""
    end: float
    """The time at which a render in the gateway's process becomes too slow."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one model's chat templates."""

    context_class: type[Context] = RenderContext

    def __init__(self, clock: Clock) -> None:
        """Create the environment. ``clock``: the time that ``strftime_now`` formats."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # the optimizer computes constants, and would never end for ``{{ 9 ** (9 ** 9) }}``
            extensions=[GenerationBlocks, LoopControls],
        )
        self.finalize = note_undefined
        self.filters["tojson"] = tojson
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = lambda format: clock().strftime(format)
        self.globals["dict"] = DictFactory()
        self.globals["namespace"] = SafeNamespace

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return the value of an attribute, or of a key of a dict.

        jinja2's form tries attributes before keys, which takes half the time of a render, so the keys of a dict and the
        known attributes are read here.
        """
        kind = type(obj)
        if kind is dict and attribute not in DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if kind in SAFE_ATTRIBUTES and attribute in SAFE_ATTRIBUTES[kind]:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)


@pass_context
def note_undefined(context: RenderContext, value: Any) -> Any:
    """Return a printed value unchanged. If the value is undefined, record its name."""
    if isinstance(value, Undefined):
        context.undefined[str(value._undefined_name)] = None
    return value


def tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return a value as JSON, without the HTML escapes of jinja2's filter ``tojson``."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: Any) -> None:
    """Refuse the conversation. Raises ``ConversationRefused`` with the template's message."""
    raise ConversationRefused(message)


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"the name of a namespace attribute must not begin with an underscore: {name[:32]!r}")
