"""What does the text of one chat template hold? Parsed and judged once; rendered by whoever may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import TemplateSyntaxError
from jinja2.runtime import Context

from gateway.core.errors import TemplateError
from gateway.template.huggingface.sandbox.environment import Environment, Refused
from gateway.template.huggingface.sandbox.filters import FILTERS
from gateway.template.huggingface.sandbox.meter import Beyond, Meter
from gateway.template.huggingface.sandbox.metered import MeteredEnvironment
from gateway.template.huggingface.sandbox.proof import confined_by, foreign

MOST_SOURCE = 64 * 1024
"""Characters of a chat template; the longest that are known have a third of that."""
MOST_SAID = 300
"""Characters of a template's own refusal that a client is told."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What came out."""

    text: str
    undefined: tuple[str, ...] = ()
    """Names that printed nothing because nobody had given them a value."""


class Script:
    """One chat template, compiled with a meter where that is possible."""

    def __init__(self, source: str, environment: MeteredEnvironment) -> None:
        """Raises ``TemplateError``, with the line, for what is no chat template."""
        self.source = source
        tree = parsed(source, environment)
        self.names = frozenset([name.name for name in tree.find_all(nodes.Name)])
        """Every variable it speaks of."""
        self._speaks_of: dict[str, bool] = {}
        self.reads = frozenset(_reads(tree))
        """Every key that it looks up by name."""
        self.words = tuple(dict.fromkeys(_words(tree)))
        """Every text in its expressions."""
        self.confined_by = tuple(sorted(set(confined_by(tree, FILTERS))))
        """(line, construct): why it is rendered in a process of its own; empty: it need not be."""
        self._environment = environment
        self._template: Template | None = None
        if not self.confined_by:
            try:
                self._template, self._weight = environment.compiled(tree)
            except (RecursionError, SyntaxError, MemoryError):
                raise TemplateError("the template nests too deeply to be compiled: simplify its expressions") from None

    def speaks_of(self, field: str) -> bool:
        """Does the template name a field of a message? If it does not, nothing of the field can come out."""
        known = self._speaks_of.get(field)
        if known is None:
            known = self._speaks_of[field] = field in self.source
        return known

    def render(self, variables: Mapping[str, Any], size: int) -> Rendered:
        """The text. Raises ``Beyond`` where the worker has to do it, ``Refused``, or ``TemplateError``.

        ``size``: characters of the conversation.
        """
        template = self._template
        if template is None:
            raise Beyond
        meter = Meter(size)
        context: Any = template.new_context(dict(variables))
        context.meter = meter
        meter.step(self._weight)
        try:
            text = "".join(template.root_render_func(context))
        except (Beyond, Refused):
            raise
        except RecursionError:
            raise Beyond from None
        except Exception as error:  # whatever a template may raise: a TypeError of its own ``+`` as well as jinja2's
            raise TemplateError(failure(error, template)) from None
        return Rendered(text, tuple(meter.undefined))


def parsed(source: str, environment: Environment) -> nodes.Template:
    """The tree of a template. Raises ``TemplateError`` with the line."""
    if len(source) > MOST_SOURCE:
        raise TemplateError(f"the template has {len(source)} characters; {MOST_SOURCE} are the most")
    try:
        tree = environment.parse(source)
        # Code that is only written, to find filters that do not exist; the plain environment computes no constants.
        Environment(datetime.now)._generate(tree, None, "<chat template>")
    except TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno} of the template: {error.message}") from None
    except ValueError:  # Python's own bound, of 4300 digits
        raise TemplateError("the template holds a number with too many digits to be read") from None
    except RecursionError:
        raise TemplateError("the template nests too deeply to be read: simplify its expressions") from None
    for line, name in foreign(tree):
        raise TemplateError(f"line {line} of the template: {name} reads another template, and there is none")
    return tree


def failure(error: BaseException, template: Template) -> str:
    """What went wrong where, of an error that came out of a template."""
    where, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__jinja_template__") is not None or trace.tb_frame.f_code.co_filename == (
            "<chat template>"
        ):
            where = f"line {template.get_corresponding_lineno(trace.tb_lineno)} of the template: "
        trace = trace.tb_next
    return f"{where}{type(error).__name__}: {told(error)}"


def told(error: BaseException) -> str:
    """An error's words, short and without control characters: they may repeat what a client wrote."""
    return "".join([character if character.isprintable() else " " for character in str(error)[:MOST_SAID]])


def new_context(template: Template, variables: Mapping[str, Any]) -> Context:
    """The context of a plain render."""
    context: Any = template.new_context(dict(variables))
    context.undefined = {}
    return context  # type: ignore[no-any-return]


def _words(tree: nodes.Template) -> list[str]:
    return [const.value for const in tree.find_all(nodes.Const) if isinstance(const.value, str) and const.value]


def _reads(tree: nodes.Template) -> Iterator[str]:
    for attribute in tree.find_all(nodes.Getattr):
        yield attribute.attr
    for item in tree.find_all(nodes.Getitem):
        yield from _constants([item.arg])
    for compare in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in compare.ops):
            yield from _constants([compare.expr])
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr == "get":
            yield from _constants(call.args[:1])
    for filter_ in tree.find_all(nodes.Filter):
        if filter_.name in ("selectattr", "rejectattr"):
            yield from _constants(filter_.args[:1])
        yield from _constants([pair.value for pair in filter_.kwargs if pair.key == "attribute"])


def _constants(given: list[nodes.Expr]) -> list[str]:
    return [one.value for one in given if isinstance(one, nodes.Const) and isinstance(one.value, str)]
