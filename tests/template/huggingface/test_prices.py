# ruff: noqa: E501 - a template is read best as it stands
"""Does every step of a template cost what it takes? What is dearer than its price holds up the event loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from gateway.core.errors import TemplateError
from gateway.template.huggingface.sandbox.environment import Environment
from gateway.template.huggingface.sandbox.filters import FILTERS
from gateway.template.huggingface.sandbox.meter import MOST_TEXT, Beyond, size_of
from gateway.template.huggingface.sandbox.metered import MeteredEnvironment
from gateway.template.huggingface.sandbox.methods import METHODS
from gateway.template.huggingface.sandbox.proof import TESTS
from gateway.template.huggingface.sandbox.script import Script, new_context

MOST = 1.0
"""Seconds of processor time for the dearest render; the purse means to hold for a fraction of it."""


def metered(source: str, **fields: Any) -> str:
    """What comes out here; ``fields`` are those of the only message."""
    variables = {"messages": [fields]}
    return Script(source, MeteredEnvironment(datetime.now)).render(variables, size_of(variables)).text


def takes_at_most(seconds: float, render: Callable[[], object]) -> bool:
    """Of processor time, in one of three tries: what is dear is so each time, what a busy machine delays is not."""
    for _ in range(3):
        began = time.process_time()
        with contextlib.suppress(Beyond, TemplateError):
            render()
        if time.process_time() - began < seconds:
            return True
    return False


DEAR: dict[str, tuple[str, dict[str, Any]]] = {  # name: (template, fields of the message)
    "round to many digits": ("{{ 1 | round(-3000000) }}", {}),
    "round up to many digits": ("{{ 1.5 | round(2000000, 'ceil') }}", {}),
    "round to many digits by name": ("{{ 1 | round(precision=-3000000) }}", {}),
    "doubled by varargs": (
        "{% set ns=namespace(a=1,b=1) %}{% macro a() %}{% set ns.a=varargs %}{% endmacro %}"
        "{% macro b() %}{% set ns.b=varargs %}{% endmacro %}"
        "{% for i in range(26) %}{{ a(ns.a,ns.a) }}{{ b(ns.b,ns.b) }}{% endfor %}{{ ns.a==ns.b }}",
        {},
    ),
    "doubled by kwargs": (
        "{% set ns=namespace(a=1,b=1) %}{% macro a() %}{% set ns.a=kwargs %}{% endmacro %}"
        "{% macro b() %}{% set ns.b=kwargs %}{% endmacro %}"
        "{% for i in range(26) %}{{ a(x=ns.a,y=ns.a) }}{{ b(x=ns.b,y=ns.b) }}{% endfor %}{{ ns.a==ns.b }}",
        {},
    ),
    "strip of many wide letters": (
        "{% set x=messages[0].x %}{% set y=messages[0].y %}{% set z=x.strip(y) %}",
        {"x": "😀" * 120_000, "y": "\U0001f700" * 120_000 + "😀"},
    ),
    "trim of many wide letters": (
        "{% set z=messages[0].x|trim(messages[0].y) %}",
        {"x": "😀" * 120_000, "y": "\U0001f700" * 120_000 + "😀"},
    ),
    "in a long constant list": (
        "{% for i in range(20000) %}{% if i+0.5 in ["
        + ",".join(map(str, range(10000)))
        + "] %}{% endif %}{% endfor %}",
        {},
    ),
    "in a long constant text": (
        "{% for i in range(20000) %}{% if messages[0].x in '" + "a" * 60000 + "' %}{% endif %}{% endfor %}",
        {"x": "a" * 200 + "b" + "a" * 200},
    ),
    "slices of a block": (
        "{% set x %}{% for i in range(50) %}" + "a" * 50000 + "{% endfor %}{% endset %}"
        "{% for i in range(4000) %}{% set y=x[::-1] %}{% endfor %}",
        {},
    ),
    "long constants": ("{% for i in range(40000) %}{% set y=[" + "0," * 30000 + "] %}{% endfor %}", {}),
    "a chain of comparisons": (
        "{% set x=messages[0].x %}{% set y=messages[0].y %}{% if " + "x==y==" * 9000 + "x %}{% endif %}",
        {"x": [[] for _ in range(7000)], "y": [[] for _ in range(7000)]},
    ),
    "rfind": ("{{ messages[0].x.rfind(messages[0].y) }}", {"x": "a" * 120_000, "y": "a" * 30_000 + "b" + "a" * 30_000}),
    "a long tuple as a key": (
        "{% set t=(" + "0," * 30000 + ") %}{% for i in range(20000) %}{% if t in messages[0] %}{% endif %}{% endfor %}",
        {},
    ),
    "a format as a number": ("{{ messages[0].x is odd }}", {"x": "%900000000d"}),
    "large quotients": (
        "{% set a=0x"
        + "f" * 3000
        + " %}{% set b=0x"
        + "f" * 1500
        + " %}{% for i in range(90000) %}{% set c=a//b %}{% endfor %}",
        {},
    ),
    "a sum of lists": ("{{ messages[0].x | sum(start=[]) | length }}", {"x": [[1] for _ in range(5000)]}),
    "a long path": (
        "{% for i in range(20) %}{{ messages[0].x | sort(attribute='" + "a," * 8000 + "a') | length }}{% endfor %}",
        {"x": [{"a": 1} for _ in range(3000)]},
    ),
    "a long tuple of beginnings": (
        "{% for i in range(20000) %}{% if 'b'.startswith((" + "'a'," * 14000 + ")) %}{% endif %}{% endfor %}",
        {},
    ),
}
"""Each took seconds, or would have, when its price did not know how large its operands are."""


@pytest.mark.parametrize("name", DEAR)
def test_no_step_takes_longer_than_it_costs(name: str) -> None:
    source, fields = DEAR[name]
    script, variables = Script(source, MeteredEnvironment(datetime.now)), {"messages": [fields]}
    assert takes_at_most(MOST, lambda: script.render(variables, size_of(variables)))


def test_an_ordinary_number_is_rounded_here() -> None:
    assert metered("{{ 2.345 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(method='ceil') }}") == "2.35 2.0 3.0"


TEXTS = {
    "x": "a" * 60_000 + "b" + "a" * 25_000, "y": "a" * 30 + "b" + "a" * 30, "z": "a" * 40_000, "w": "😀" * 85_000,
}  # fmt: skip
LISTS = {
    "x": [["a"] for _ in range(2500)],
    "y": [["a"] for _ in range(2500)],
    "z": ["a" * 20] * 2500,
    "w": [1.5] * 3000,
}

ARGUMENTS = ("", "m.y", "m.z", "'ab'", "m.y, m.z", "'a', 'bc'", "2", "2, true")
"""What a filter or method is tried with; what does not fit fails at once."""

OPERATORS = (
    "m.x == m.y", "m.x < m.z", "m.x != (m.x + m.y)[1:]", "m.y in m.x", "m.z not in m.x", "m.x[1:]", "m.x[::-1]",
    "m.w[::2]", "m.x + m.y", "m.x ~ m.w", "[m.x, m.y, [m.z]]", "{'a': m.x, 'b': m.w}", "m.x * 2", "i * 3.5 // 7 % 5 - 1",
    "-i", "not m.x", "m.x and m.y", "namespace(a=m.x)", "dict(a=m.x)", "m.nope", "m[m.x]", "range(90000)", "i in range(90000)",
    "m.x if i in [1, 2, 3] else m.y", "range(9000)[::-1]", "m.x is string", "strftime_now('%Y')", "cycler(m.x)",
)  # fmt: skip


def _round_and_round(expression: str) -> str:
    return f"{{% set m=messages[0] %}}{{% for i in range(30000) %}}{{% set r={expression} %}}{{% endfor %}}"


WORST = [
    *[f"m.{of} | {name}({given})" for of in "xw" for name in sorted(FILTERS) for given in ARGUMENTS],
    *[
        f"m.{of} | map('{name}') | list"
        for of in "xz"
        for name in ("upper", "list", "trim", "replace", "join", "tojson")
    ],
    *[f"m.{of} | {name}('a', 'eq', m.z) | list" for of in "xz" for name in ("selectattr", "rejectattr")],
    *[f"m.{of}.{name}({given})" for of in "xw" for kind, name in sorted(METHODS, key=str) for given in ARGUMENTS],
    *[f"m.x is {name}" for name in sorted(TESTS) if name.isalpha()],
    *[f"m.x is {name}(m.y)" for name in sorted(TESTS) if name.isalpha()],
    *OPERATORS,
]


@pytest.mark.parametrize("of", ["texts", "lists"])
@pytest.mark.parametrize("expression", WORST)
def test_nothing_that_has_a_price_is_dearer_in_a_loop(expression: str, of: str) -> None:
    fields = TEXTS if of == "texts" else LISTS
    assert takes_at_most(MOST, lambda: metered(_round_and_round(expression), **fields))


ALIKE = (
    "{% set g=messages|map(attribute='content') %}{% if g|default([]) %}{{ g|join }}{% endif %}",
    "{% set g=messages|map(attribute='content') %}{{ g|first }}{{ g|list }}",
    "{% set g=messages|map(attribute='content') %}{{ 'a' in g }}{{ g|list }}",
    "{% set g=messages|map(attribute='content') %}{{ messages[0].content in g }}{{ g|list }}",
    "{% set g=messages|selectattr('role') %}{% set h=g|map(attribute='content') %}{{ h|first }}{{ g|list|length }}",
    "{% set r=messages|reverse %}{{ (r|first).content }}{{ r|list|length }}",
    "{{ messages|map(attribute='tool.name')|first }}",
    "{{ messages|map(attribute='content')|length }}",
    "{{ messages|map(attribute='content')|last }}",
    "{{ messages|map(attribute='content')|unique|first }}",
    "{% set x | upper | trim %} a {{ messages[0].content }} {% endset %}[{{ x }}]",
    "{% set x %} a {{ messages[0].content }} {% endset %}[{{ x }}]",
    "{% set x | upper %}a{% endset %}{{ x ~ 1 }}",
    "{{ messages[0].content == messages[1].content == 'b' }}{{ 1 < 2 < 3 }}{{ 'a' in 'ab' in ['ab'] }}",
    "{% for m in messages %}{{ loop.index0 - 1 }}{{ 7 // loop.index }}{{ loop.index is odd }}{{ loop.changed(m) }}{% endfor %}",
)


@pytest.mark.parametrize("source", ALIKE)
def test_the_meter_changes_no_text(source: str) -> None:
    variables = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    plain = Environment(datetime.now).from_string(source)
    try:
        expected = "".join(plain.root_render_func(new_context(plain, variables)))
    except Exception:
        with pytest.raises((Beyond, TemplateError)):
            Script(source, MeteredEnvironment(datetime.now)).render(variables, size_of(variables))
        return
    with contextlib.suppress(Beyond):  # then the plain one renders it
        assert Script(source, MeteredEnvironment(datetime.now)).render(variables, size_of(variables)).text == expected


def test_a_number_that_python_does_not_write_is_refused_when_loaded() -> None:
    with pytest.raises(TemplateError, match="too many digits"):
        Script("{{ 0x" + "f" * 40000 + " }}", MeteredEnvironment(datetime.now))


def test_a_request_is_measured_no_further_than_it_may_be_rendered_here() -> None:
    large = {"tools": [{"name": "f" * 10, "enum": ["", "a", None] * 100} for _ in range(10_000)]}
    began = time.process_time()
    for _ in range(10):
        assert size_of(large) > MOST_TEXT
    assert time.process_time() - began < MOST
    assert size_of(["ab", {"c": None}]) < 100
