"""Parses, inspects, compiles and renders a chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import TemplateSyntaxError

from metatemplate.chat_templates.sandbox.environment import ChatEnvironment, ConversationRefused
from metatemplate.chat_templates.sandbox.limits import (
    MAX_SECONDS,
    TEMPLATE_FUNCTIONS,
    TEMPLATE_METHODS,
    LimitReached,
    calls_known,
    has_known_operations,
)
from metatemplate.errors import InvalidInput, TemplateFailure

MAX_SOURCE = 64 * 1024
"""The largest number of characters of a chat template. The longest known templates have a third of this number."""
MAX_OUTPUT = 8 * 1024 * 1024
"""The largest number of characters of one rendered text."""
MAX_ERROR_TEXT = 300
"""The client sees at most this many characters of an error that was raised inside a template."""

OTHER_TEMPLATES = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)
"""The statements that load another template. They are refused, because a chat template has no loader."""

UNCHANGING_FILTERS = frozenset({
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length",
    "list", "lower", "max", "min", "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort",
    "string", "sum", "title", "tojson", "trim", "unique", "upper",
})  # fmt: skip
"""The filters that put no character such as ``<`` into a text."""
INSERTING = frozenset({"join", "replace"})
"""The filters and methods whose texts are listed in ``CompiledTemplate.inserted``."""


class RenderingFailed(TemplateFailure):
    """The template cannot render these variables: one of its expressions failed, or the text is too long."""


@dataclass(frozen=True, slots=True)
class RenderedText:
    """The result of one render."""

    text: str
    undefined: tuple[str, ...] = ()
    """The undefined names that the template printed. Each was printed as an empty text."""


class CompiledTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, environment: ChatEnvironment) -> None:
        """Compile the source. Raises ``TemplateFailure``, with the line number if this number is known."""
        if len(source) > MAX_SOURCE:
            raise TemplateFailure(f"the template has {len(source)} characters; at most {MAX_SOURCE} are allowed")
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise TemplateFailure(f"line {error.lineno} of the template: {error.message}") from None
        except (RecursionError, SyntaxError, MemoryError):
            raise TemplateFailure("the template nests too deeply to be compiled; simplify its expressions") from None
        except ValueError as error:  # a number has more digits than Python accepts
            raise TemplateFailure(f"the template cannot be compiled: {error}") from None
        for node in tree.find_all(OTHER_TEMPLATES):
            name = type(node).__name__.lower()
            raise TemplateFailure(
                f"line {node.lineno} of the template: {name} is not supported; copy the other template's text here"
            )
        self._template.globals = dict(self._template.globals)  # each render would copy a ChainMap slowly
        self.source = source
        self.names = frozenset([name.name for name in tree.find_all(nodes.Name)])
        """The names of all variables of the template."""
        self.keys = frozenset(_keys(tree))
        """The keys and attributes that the template reads by a constant name."""
        self.constants = tuple(dict.fromkeys(_texts(tree.find_all(nodes.Const))))
        """The constant texts in the template's expressions."""
        self.written = tuple([data.data for data in tree.find_all(nodes.TemplateData)])
        """The texts outside the template's expressions."""
        self.searched = tuple(dict.fromkeys(_searched(tree)))
        """The constant texts that the template looks for in other texts, such as the end of reasoning."""
        self.inserted = tuple(dict.fromkeys(_inserted(tree, self.constants)))
        """The constant texts that the template may write inside a text of the client."""
        self.adds_characters = _adds_characters(tree)
        """Whether an operation of the template may add other characters inside a text of the client."""
        self.has_known_operations = has_known_operations(tree)
        """Whether the template may be rendered in the gateway's process, with a ``LimitedEnvironment``."""

    def mentions(self, field: str) -> bool:
        """Return whether the template's source contains ``field``. If not, the field cannot be in the prompt."""
        return field in self.source

    def render(self, variables: Mapping[str, Any]) -> RenderedText:
        """Render the template with these variables.

        Raises ``InvalidInput`` if the template refuses the conversation, ``RenderingFailed`` if it fails, and
        ``LimitReached`` beyond a limit of a ``LimitedEnvironment``.
        """
        template = self._template
        context: Any = template.new_context(dict(variables))
        context.undefined, context.end = {}, monotonic() + MAX_SECONDS
        try:
            text = template.environment.concat(template.root_render_func(context))
        except LimitReached:
            raise
        except ConversationRefused as error:
            raise refusal(error_text(error)) from None
        except Exception as error:  # an expression may raise any error, for example ``+`` a TypeError
            raise RenderingFailed(_located(error, template)) from None
        if len(text) > MAX_OUTPUT:
            raise RenderingFailed(f"the rendered text has {len(text)} characters; at most {MAX_OUTPUT} are allowed")
        return RenderedText(text, tuple(context.undefined))


def refusal(reason: str) -> InvalidInput:
    """Return the error for a conversation that the template itself refuses."""
    return InvalidInput(f"this model's chat template refuses the conversation: {reason}", param="messages")


def error_text(error: BaseException) -> str:
    """Return the message of an error, shortened and escaped, because the message may repeat text of the client."""
    return "".join([character if character.isprintable() else " " for character in str(error)[:MAX_ERROR_TEXT]])


def _located(error: Exception, template: Template) -> str:
    """Return the line of the template, the type and the message of an error, as one text."""
    where, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__jinja_template__") is not None:
            where = f"line {template.get_corresponding_lineno(trace.tb_lineno)} of the template: "
        trace = trace.tb_next
    return f"{where}{type(error).__name__}: {error_text(error)}"


def _keys(tree: nodes.Template) -> Iterator[str]:
    for attribute in tree.find_all(nodes.Getattr):
        yield attribute.attr
    for item in tree.find_all(nodes.Getitem):
        yield from _texts([item.arg])
    for compare in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in compare.ops):
            yield from _texts([compare.expr])
    for method, call in _method_calls(tree):
        if method.attr == "get":
            yield from _texts(call.args[:1])
    for filter_ in tree.find_all(nodes.Filter):
        if filter_.name in ("selectattr", "rejectattr"):
            yield from _texts(filter_.args[:1])
        yield from _texts([pair.value for pair in filter_.kwargs if pair.key == "attribute"])


def _method_calls(tree: nodes.Template) -> Iterator[tuple[nodes.Getattr, nodes.Call]]:
    return ((call.node, call) for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Getattr))


def _searched(tree: nodes.Template) -> Iterator[str]:
    for compare in tree.find_all(nodes.Compare):
        yield from _texts([compare.expr])
    for _, call in _method_calls(tree):
        yield from _texts(call.args)


def _inserted(tree: nodes.Template, constants: Sequence[str]) -> Iterator[str]:
    """Yield the texts that ``replace`` and ``join`` write: all ``constants`` if such a text is not constant."""
    written: list[nodes.Node] = []
    for one in tree.find_all(nodes.Filter):
        if one.name in INSERTING:
            written += [*one.args[one.name == "replace" :][:1], *[pair.value for pair in one.kwargs]]
    for method, call in _method_calls(tree):
        if method.attr == "replace":
            written += [*call.args[1:2], *[pair.value for pair in call.kwargs]]
        elif method.attr == "join":
            written.append(method.node)
    yield from _texts(written) if all(isinstance(text, nodes.Const) for text in written) else constants


def _adds_characters(tree: nodes.Template) -> bool:
    """Return whether a template has a filter, a call or an operator that may add characters to a text."""
    functions = TEMPLATE_FUNCTIONS | {macro.name for macro in tree.find_all(nodes.Macro)}
    filters = UNCHANGING_FILTERS | INSERTING
    for one in tree.find_all(nodes.Filter):
        names = [one.name, *(_texts(one.args[:1]) if one.name == "map" else [])]
        if not filters.issuperset({*names} - {"map"}):
            return True
    if not all(calls_known(call, TEMPLATE_METHODS | INSERTING, functions) for call in tree.find_all(nodes.Call)):
        return True
    # ``%`` formats a text if its left side is one; the divisor of a number is constant.
    return any(
        not isinstance(mod.right, nodes.Const) or isinstance(mod.left, nodes.Const) for mod in tree.find_all(nodes.Mod)
    )


def _texts(expressions: Any) -> list[str]:
    """Return the constant texts in expressions, except empty texts."""
    return [
        one.value for one in expressions if isinstance(one, nodes.Const) and isinstance(one.value, str) and one.value
    ]
