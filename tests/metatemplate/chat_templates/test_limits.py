"""A template that is fast when it is measured cannot take much time or memory of the gateway's process later."""

from __future__ import annotations

import tracemalloc

import pytest

from metatemplate.chat_templates.renderer import JinjaTemplate
from metatemplate.chat_templates.sandbox.compiled_template import RenderedText
from metatemplate.errors import TemplateFailure
from tests.metatemplate.chat_templates.samples import CHATML, dialogue, jinja

MEMORY = 160 * 1024 * 1024
"""The largest number of bytes that a render in the gateway's process may take."""

DOUBLING = "{% set ns = namespace(x='ab') %}" + "{% set ns.x = SUM %}" * 99 + "{{ ns.x | length }}"
LISTS = "{% set ns = namespace(x=['ab']) %}{% for i in range(60) %}{% set ns.x = SUM %}{% endfor %}{{ ns.x }}"
FAR = "{% for i in range(99999) %}"
END = "{% endfor %}"
LONG = "{% set a = 'AAA' * 20000 %}{% set b = 'ab' ~ 'AAA' * 6000 %}".replace("AAA", "a" * 32)
EMOJI = "{% set c = 'E' * 8000 %}".replace("E", "\U0001f600" * 32)

HUNGRY = {  # what the template does with a message that it was not measured with
    "a product": "{{ (content * 10**9) | length }}",
    "a product without a power": "{{ (content * 1000000000) | length }}",
    "a product from the left": "{{ (1000000000 * content) | length }}",
    "a product of a list": "{{ ([content] * 1000000000) | length }}",
    "a product of products": "{{ (content * 100000 * 100000) | length }}",
    "products of a number": "{% set ns = namespace(x=9) %}" + "{% set ns.x = ns.x * ns.x %}" * 40,
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a format with a width": "{{ '%1000000000d' % 1 }}",
    "the filter format": "{{ '%1000000000d' | format(1) }}",
    "the method format": "{{ '{:1000000000}'.format(1) }}",
    "a format made from texts": "{{ ('{:1000' ~ '000000}').format(1) }}",
    "the filter center": "{{ content | center(1000000000) }}",
    "the method center": "{{ content.center(1000000000) }}",
    "a method with another name": "{% set f = content.center %}{{ f(1000000000) }}",
    "a method by its key": "{{ content['center'](1000000000) }}",
    "a method in place of a macro": "{% macro m(x) %}{% endmacro %}{% set m = content.center %}{{ m(1000000000) }}",
    "the filter attr": "{{ (content | attr('center'))(1000000000) }}",
    "bytes": "{{ (1).to_bytes(1000000000, 'big') }}",
    "indent": "{{ content | indent(1000000000, true) }}",
    "JSON with an indent": "{{ [[content]] | tojson(indent=1000000000) }}",
    "a batch": "{{ [content] | batch(1000000000, 'x') | list }}",
    "lorem ipsum": "{{ lipsum(n=100000) }}",
    "a join": "{{ (['x' * 100000] * 100000) | join }}",
    "a join with a long text": "{{ range(100000) | join('x' * 100000) }}",
    "the method join": "{{ ('x' * 100000).join((content * 10000) | list) }}",
    "the filter replace": "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
    "the method replace": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "mapped replace": "{{ range(100000) | map('replace', '1', 'x' * 100000) | list }}",
    "mapped default": "{{ ([''] * 100000) | map('default', 'x' * 100000, true) | list }}",
    "doubling by +": DOUBLING.replace("SUM", "ns.x + ns.x"),
    "doubling by ~": DOUBLING.replace("SUM", "ns.x ~ ns.x"),
    "doubling in an argument": "{% macro m(x, n) %}{{ m(x + x, n - 1) if n else 'x' }}{% endmacro %}{{ m('ab', 99) }}",
    "doubling by a block": "{% set x = 'ab' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60 + "{{ x | length }}",
    "doubling by a macro": "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n else 'x' }}{% endmacro %}{{ m(60) }}",
    "doubling by a format": DOUBLING.replace("SUM", "'{}{}'.format(ns.x, ns.x)"),
    "doubling a list": LISTS.replace("SUM", "ns.x + ns.x"),
    "lists in lists": LISTS.replace("SUM", "[ns.x, ns.x]"),
    "dicts in dicts": LISTS.replace("SUM", "{'a': ns.x, 'b': ns.x}"),
    "dicts by dict()": LISTS.replace("SUM", "dict(a=ns.x, b=ns.x)"),
    "namespaces in namespaces": LISTS.replace("SUM", "namespace(a=ns.x, b=ns.x)"),
    "JSON of lists in lists": LISTS.replace("SUM", "[ns.x, ns.x]").replace("{{ ns.x }}", "{{ ns.x | tojson }}"),
    "a long loop": FAR + FAR + "{{ content }}" + END + END,
    "loops over messages": "{% for a in messages * 300 %}" + "{% for a in messages * 300 %}" * 4 + "{% endfor %}" * 5,
    "short loops in short loops": "{% for a in 'abcdefghij' %}" * 14 + "{% endfor %}" * 14,
    "a macro that calls itself": "{% macro m(n) %}{% if n %}{{ m(n-1) ~ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "a filter in a loop": FAR + "{% for b in range(99999) | map('string') | select %}" + END + END,
    "constants in a long loop": FAR + "x" * 60_000 + END,
    "constants in a macro": "{% macro m() %}" + FAR + "x" * 60_000 + END + "{% endmacro %}{{ m() | length }}",
    "a long output of parts": FAR + "{{ content[1:] }}" * 9 + END,
    "a long output of safe parts": "{% set x = ('x' * 99999) | safe %}" + FAR + "{{ x[1:] }}" + END,
    "rfind": LONG + "{{ a.rfind(b) }}",
    "rpartition": LONG + "{{ a.rpartition(b) }}",
    "rsplit": LONG + "{{ a.rsplit(b) | length }}",
    "rsplit with a named separator": LONG + "{{ a.rsplit(maxsplit=9, sep=b) | length }}",
    "strip": LONG + "{{ a.strip('c' ~ b) }}",
    "trim": LONG + "{{ a | trim('c' ~ b) }}",
    "in a long list": "{% set l = range(100000) | list %}{% for i in range(3000) %}{{ -1 in l }}{% endfor %}",
    "the test in": "{% set l = range(100000) | list %}{% for i in range(3000) %}{{ -1 is in(l) }}{% endfor %}",
    "comparing long lists": "{% set l = range(100000) | list %}{% set m = l[:] %}"
    "{% for i in range(3000) %}{{ l == m }}{% endfor %}",
    "the condition of a loop": "{% set l = range(100000) | list %}{% for i in range(3000) if -1 in l %}{% endfor %}",
    "printed lists": EMOJI + "{% set l = [c] %}{% for i in range(1000) %}{{ l }}{% endfor %}",
    "printed items": EMOJI + "{% set l = {'a': c} %}{% for i in range(1000) %}{{ l.items() }}{% endfor %}",
    "separators of JSON": "{{ ([0] * 20000) | tojson(separators=('a' * 10000, ':')) | length }}",
    "stored slices": EMOJI + "".join(f"{{% set x{n} = c[1:] %}}" for n in range(200)),
    "stored lists": "{% set c = range(100000) | list %}" + "".join(f"{{% set x{n} = c[1:] %}}" for n in range(300)),
    "stored results of methods": EMOJI + "".join(f"{{% set x{n} = c.upper() %}}" for n in range(200)),
    "stored results of filters": EMOJI + "".join(f"{{% set x{n} = c | upper %}}" for n in range(200)),
    "a long format of the time": "{{ strftime_now('%999d' * 90000) | length }}",
    "a long format of the time by its name": "{{ strftime_now(format='%999d' * 90000) | length }}",
    "a long output": FAR + "{{ content[1:] }}{{ 'x' * 99999 }}" + END,
}


def hungry(name: str) -> JinjaTemplate:
    """A template that is expensive for a user message that begins with ``boom`` only."""
    return jinja(
        "{% set content = messages[0].content %}{% if content[:4] == 'boom' %}" + HUNGRY[name] + "{% endif %}ok"
    )


def rendered_here(template: JinjaTemplate, content: str) -> RenderedText | None:
    return template._rendered_here(template._job(dialogue({"messages": [{"role": "user", "content": content}]})))


@pytest.mark.parametrize("name", HUNGRY)
def test_a_template_that_is_cheap_on_the_probe_only_takes_little_of_this_process(name: str) -> None:
    template = hungry(name)
    tracemalloc.start()
    try:
        assert rendered_here(template, "boom and more") is None
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a product", "a power", "lists in lists", "a long loop", "a format with a width"])
def test_the_subprocess_stops_such_a_template_and_renders_the_next_conversation(name: str) -> None:
    template = hungry(name)
    with pytest.raises(TemplateFailure):
        template.render(dialogue({"messages": [{"role": "user", "content": "boom"}]}))
    assert template.render(dialogue({"messages": [{"role": "user", "content": "hello"}]})).text == "ok"


ORDINARY = {  # these stay in the gateway's process
    "an ordinary template": CHATML,
    "a small product": "{{ '-' * 40 }}{{ 2 * 3 }}{{ 7 % 2 }}",
    "a counter": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "lists": "{% set all = [{'role': 'system'}] + messages %}{{ all | map(attribute='role') | join(' ') }}",
    "a format without a width": "{{ '<{}>'.format(messages[0].role) }}",
    "replacing": "{{ messages[0].content.replace('a', 'b') | replace('b', 'c') }}",
    "a recursive macro": "{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "JSON": "{{ messages | tojson(indent=2) }}",
    "a block for training": "{% generation %}{{ messages[0].content }}{% endgeneration %}",
    "comparisons": "{{ messages[0].content in messages[1].content }}{{ messages[1] == messages[2] != messages }}",
    "the end of a text": "{{ messages[0].content.rsplit(' ', 1)[-1].strip('ale') }}{{ messages[0].content[3:] }}",
    "printed values": "{{ messages }}{{ messages[0].items() }}{{ none }}{{ true }}{{ 1.5 }}{{ missing }}",
    "a date": "{{ strftime_now('%Y') }}",
    "a selected loop": "{% for m in messages | selectattr('role', 'eq', 'user') if m %}{{ loop.last }}{% endfor %}",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_the_limits_do_not_change_a_text(name: str) -> None:
    template = jinja(ORDINARY[name])
    body = {"messages": [{"role": "user", "content": "an apple"}] * 3}
    here = template._rendered_here(job := template._job(dialogue(body)))
    assert here is not None
    assert here == template._subprocess.render(job.template, job.variables)
