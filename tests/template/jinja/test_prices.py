# ruff: noqa: E501 - a template is read best as it stands
"""Does every step of a template cost what it takes? What is dearer than its price holds up the event loop."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import Any

import pytest

from gateway.core.errors import TemplateError
from gateway.template.jinja.meter import Beyond, size_of
from gateway.template.jinja.metered import MeteredEnvironment
from gateway.template.jinja.script import Script

MOST = 0.25
"""Seconds of processor time for the dearest render; the purse means to hold for a fraction of it."""


def metered(source: str, **fields: Any) -> str:
    """What comes out here; ``fields`` are those of the only message."""
    variables = {"messages": [fields]}
    return Script(source, MeteredEnvironment(datetime.now)).render(variables, size_of(variables)).text


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
        "{% for i in range(22) %}{{ a(x=ns.a,y=ns.a) }}{{ b(x=ns.b,y=ns.b) }}{% endfor %}{{ ns.a==ns.b }}",
        {},
    ),
}
"""Each took seconds, or would have, when its price did not know how large its operands are."""


@pytest.mark.parametrize("name", DEAR)
def test_no_step_takes_longer_than_it_costs(name: str) -> None:
    source, fields = DEAR[name]
    began = time.process_time()
    with contextlib.suppress(Beyond, TemplateError):
        metered(source, **fields)
    assert time.process_time() - began < MOST


def test_an_ordinary_number_is_rounded_here() -> None:
    assert metered("{{ 2.345 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(method='ceil') }}") == "2.35 2.0 3.0"
