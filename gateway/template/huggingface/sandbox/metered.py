"""How is a template rendered in this process without holding anybody up? In an environment that pays for each step.

The text is the one of ``Environment``, or there is none: what the purse does not reach for, or has no price, raises
``Beyond``, and the same render is done in the worker. Prices stand in the tables of methods and filters.
"""

from __future__ import annotations

import re
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.utils import Namespace

from gateway.template.huggingface.sandbox.context import MeteredContext
from gateway.template.huggingface.sandbox.environment import (
    Clock,
    DictMaker,
    Environment,
    GenerationBlocks,
    SafeNamespace,
)
from gateway.template.huggingface.sandbox.filters import FILTERS, paid_filter
from gateway.template.huggingface.sandbox.meter import Beyond, Meter
from gateway.template.huggingface.sandbox.metering import Metering, weight_of
from gateway.template.huggingface.sandbox.methods import METHODS, OF_TEXT
from gateway.template.huggingface.sandbox.operators import INTERNAL

OF_DICT = frozenset(dir(dict))
"""Names that mean a mapping's own methods, whatever its keys."""

PLAIN_FORMAT = re.compile(r"[^%]*(%[A-Za-z%][^%]*){0,32}")
"""Formats of a date without widths, which may be of any size."""


class MeteredNamespace(SafeNamespace):
    """A namespace holds values, and no namespaces: one that holds itself could be printed without end."""

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Namespace):
            raise Beyond
        super().__setitem__(name, value)


class MeteredEnvironment(Environment):
    """``Environment`` that pays. Compiles what ``proof`` found no fault with, and nothing else."""

    context_class = MeteredContext

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.globals["namespace"] = MeteredNamespace
        for name in FILTERS:
            self.filters[name] = paid_filter(name, self.filters[name])
        self.filters.update(INTERNAL)
        self.finalize = None  # what is printed goes through ``_printed`` instead, and takes a context as well

    def compiled(self, tree: nodes.Template) -> tuple[Template, int]:
        """The template of a tree, with the meter in it, and the steps of what stands outside its loops."""
        weight = weight_of(tree.body)
        metered: nodes.Template = Metering().visit(tree)
        source = self._generate(metered, None, "<chat template>")
        code = self._compile(source, "<chat template>")
        return Template.from_code(self, code, dict(self.globals)), weight

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The plain one, in a shorter way for what is looked up most often, and known to be safe."""
        kind = type(obj)
        if kind is dict:
            if attribute not in OF_DICT:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        elif kind is str:
            if attribute in OF_TEXT:
                return getattr(obj, attribute)
        elif (kind is MeteredNamespace or kind is LoopContext) and attribute[0] != "_" and hasattr(obj, attribute):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call pays by what is called; what has no price is not called here."""
        meter: Meter = __context.meter  # type: ignore[attr-defined]
        kind = type(__obj)
        if kind is BuiltinMethodType:
            kwargs.pop("_loop_vars", None)  # jinja2 adds these for functions that take a context
            kwargs.pop("_block_vars", None)
            price = METHODS.get((type(__obj.__self__), __obj.__name__))
            if price is None:
                raise Beyond
            return price(meter, __obj, args, kwargs)
        meter.step()
        if kind is Macro:
            text = super().call(__context, __obj, *args, **kwargs)
            meter.made(len(text))
            return text
        if kind is MethodType:
            if not isinstance(__obj.__self__, (LoopContext, GenerationBlocks)):
                raise Beyond
            if args:  # ``loop.changed`` compares them
                meter.read(meter.weigh(list(args)))
        elif kind is DictMaker or __obj is MeteredNamespace:
            if any(type(one) is not dict for one in args):
                raise Beyond  # a key may be a tuple then
            given = [value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")]
            meter.made(meter.weigh([*args, *given]))
        elif kind is str or isinstance(__obj, Undefined):
            pass  # an error in any case
        elif __obj is __self.globals["strftime_now"]:
            meter.step(8)
            if not args or type(args[0]) is not str or not PLAIN_FORMAT.fullmatch(args[0]):
                raise Beyond
        elif __obj is not __self.globals["raise_exception"] and __obj is not __self.globals["range"]:
            raise Beyond
        return super().call(__context, __obj, *args, **kwargs)
