# ruff: noqa: E501 - a template is read best as it stands
"""Templates that nobody should load: they reach for Python, change what they are given, or never end."""

from __future__ import annotations

ESCAPES = {
    "the class of a text": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "the class by index": "{{ ''['__class__'] }}",
    "the class by a filter": "{{ '' | attr('__class__') }}",
    "the class by a name in pieces": "{{ '' | attr('__cl' ~ 'ass__') }}",
    "the class of many": "{{ messages | map(attribute='__class__') | list | join }}",
    "attr applied to many": "{{ messages | map('attr', '__class__') | list | join }}",
    "globals of cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "globals of joiner": "{{ joiner.__init__.__globals__ }}",
    "globals of namespace": "{{ namespace.__init__.__globals__ }}",
    "globals of lipsum": "{{ lipsum.__globals__['os'] }}",
    "globals of raise_exception": "{{ raise_exception.__globals__ }}",
    "globals of strftime_now": "{{ strftime_now.__globals__ }}",
    "closure of strftime_now": "{{ strftime_now.__closure__ }}",
    "globals of dict": "{{ dict.__call__.__globals__ }}",
    "a format that walks": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "a format that walks by names": "{{ '{m.__class__}'.format_map({'m': messages}) }}",
    "a format from the client": "{{ messages[0].content.format(messages) }}",
    "the template itself": "{{ self.__init__.__globals__ }}",
    "the loop": "{% for m in messages %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "a macro": "{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}",
    "the code of a macro": "{% macro m() %}{% endmacro %}{{ m._func.__code__ }}",
    "a hidden name in a namespace": "{% set ns = namespace(__class__='x') %}{{ ns.__class__ }}",
    "a hidden name set later": "{% set ns = namespace() %}{% set ns._x = 1 %}{{ ns._x }}",
    "an import": "{{ __import__('os') }}",
    "a generator's frame": "{{ (messages | select('defined')).gi_frame }}",
}

MUTATIONS = {
    "append": "{% set x = messages.append(1) %}",
    "pop": "{% set x = messages.pop() %}",
    "clear": "{% set x = messages[0].clear() %}",
    "update": "{% set x = messages[0].update({'content': 'no'}) %}",
    "setdefault": "{% set x = messages[0].setdefault('x', 1) %}",
    "reverse": "{% set x = messages.reverse() %}",
    "sort": "{% set x = messages.sort() %}",
    "by name": "{{ (messages | attr('clear'))() }}",
}

TWICE = (
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = DOUBLED %}{% endfor %}{{ ns.x | length }}"
)

ENDLESS = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "messages times messages": "{% for a in messages %}{% for b in messages %}{% for c in messages %}{% for d in messages %}"
    "{% if a.content == d.content %}{% endif %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
    "a macro that calls itself": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "a macro that calls itself twice": "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n else 'x' }}{% endmacro %}{{ m(40) }}",
    "a loop that calls itself": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "a long text": "{{ 'x' * 2000000000 }}",
    "a long list": "{{ ([1] * 500000000) | length }}",
    "a high power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "squares": "{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "center": "{{ 'x'.center(2000000000) }}",
    "ljust": "{{ messages[0].content.ljust(2000000000) | length }}",
    "zfill": "{{ '7'.zfill(2000000000) }}",
    "expandtabs": "{{ '\\t'.expandtabs(2000000000) }}",
    "the filter center": "{{ 'x' | center(2000000000) }}",
    "indent": "{{ 'x' | indent(2000000000, true) }}",
    "a width in a format": "{{ '%2000000000d' % 1 }}",
    "a width in the filter format": "{{ '%2000000000d' | format(1) }}",
    "a width in str.format": "{{ '{:2000000000d}'.format(1) }}",
    "a width in a date": "{{ strftime_now('%2000000000Y') }}",
    "json with wide indents": "{{ messages | tojson(indent=200000000) }}",
    "json with long separators": "{{ messages | tojson(separators=('x' * 100000000, ':')) }}",
    "lipsum": "{{ lipsum(n=100000000) }}",
    "a text doubled by +": TWICE.replace("DOUBLED", "ns.x + ns.x"),
    "a text doubled by ~": TWICE.replace("DOUBLED", "ns.x ~ ns.x"),
    "a text doubled by join": TWICE.replace("DOUBLED", "[ns.x, ns.x] | join"),
    "a text doubled by a method": TWICE.replace("DOUBLED", "''.join([ns.x, ns.x])"),
    "a text squared by replace": TWICE.replace("DOUBLED", "ns.x.replace('a', ns.x)"),
    "a text squared by the filter replace": TWICE.replace("DOUBLED", "ns.x | replace('b', ns.x)"),
    "a text doubled by a block": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}{{ ns.x | length }}",
    "a text doubled by a macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + TWICE.replace("DOUBLED", "m(ns.x)"),
    "a text doubled by a call block": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% set ns = namespace(x='ab') %}"
    "{% for i in range(60) %}{% set y %}{% call m() %}{{ ns.x }}{% endcall %}{% endset %}{% set ns.x = y %}{% endfor %}",
    "a list doubled": TWICE.replace("'ab'", "[1]").replace("DOUBLED", "ns.x + ns.x"),
    "lists in lists, printed": TWICE.replace("DOUBLED", "[ns.x, ns.x]").replace("length", "tojson"),
    "lists in lists, compared": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "mappings in mappings": TWICE.replace("DOUBLED", "{'a': ns.x, 'b': ns.x}").replace("length", "string"),
    "dict in dict": TWICE.replace("DOUBLED", "dict(a=ns.x, b=ns.x)").replace("length", "string"),
    "namespaces in namespaces": TWICE.replace("DOUBLED", "namespace(a=ns.x, b=ns.x)").replace("length", "string"),
    "a namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "strings one by one": "{% for c in (messages[0].content * 1000000) %}{% endfor %}",
    "searches": "{% for i in range(99999) %}{% if ('a' * 5000 ~ 'b') in messages[0].content %}{% endif %}{% endfor %}",
    "sorting": "{% for i in range(9999) %}{{ range(99999) | sort(reverse=true) | first }}{% endfor %}",
    "firsts": "{% for i in range(99999) %}{{ range(99999) | select('gt', 99999) | first }}{% endfor %}",
    "sums": "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "a chain of sums": "{% for i in range(999) %}{% set x = "
    + " + ".join(["messages[0].content"] * 60)
    + " %}{% endfor %}",
    "unions of texts": "{% set x = " + " ~ ".join(["messages[0].content"] * 900) + " %}{{ x ~ x ~ x ~ x }}" * 9,
}
"""None of these may hold anybody up: they are stopped, refused, or come out after all."""

HEAVY = {
    "comparisons": "{% for i in range(500) %}"
    + "{% if messages[0].content == messages[-1].content %}{% endif %}" * 60
    + "{% endfor %}",
    "lists compared": "{% for i in range(5000) %}{% if messages == (messages | list) %}{% endif %}{% endfor %}",
    "slices": "{% for i in range(5000) %}{% set x = messages[0].content[1:] %}{% endfor %}",
    "searches": "{% for i in range(500) %}{% if '</think>' in messages[0].content %}{% endif %}{% endfor %}",
    "splits": "{% for i in range(500) %}{{ messages[0].content.split('</think>') | length }}{% endfor %}",
    "letters": "{{ messages[0].content | list | length }}{{ messages[-1].content | unique | list | length }}",
    "titles": "{% for a in range(500) %}{{ (messages[0].content | title) | length }}{% endfor %}",
    "sorting": "{% for c in range(30) %}{{ (messages | sort(attribute='content')) | length }}{% endfor %}",
    "pairs": "{% for a in messages %}{% for b in messages %}{{ a.role }}{% endfor %}{% endfor %}",
    "filters": "{% for a in messages %}{{ messages | selectattr('role', 'equalto', 'x') | list | length }}{% endfor %}",
    "json": "{% for a in range(50) %}{{ messages | tojson }}{% endfor %}",
    "assignments": "{% for c in range(90000) %}" + "{% set x = c %}" * 200 + "{% endfor %}",
    "conditions": "{% for c in range(90000) %}" + "{% if not c %}{% endif %}" * 500 + "{% endfor %}",
    "differences": "{% for c in range(9000) %}" + "{% set q = c - 1 - 2 - 3 - 4 - 5 - 6 - 7 %}" * 300 + "{% endfor %}",
    "macros": "{% macro m() %}x{% endmacro %}{% for c in range(30000) %}{{ m() }}{% endfor %}",
    "numbers printed": "{% for c in range(5000) %}" + "{{ c }}" * 20 + "{% endfor %}",
    "quotients": "{% for c in range(9000) %}" + "{% set x = c / 3 // 2 %}" * 50 + "{% endfor %}",
    "namespaces": "{% set ns = namespace(x=1) %}{% for c in range(3000) %}"
    + "{% set ns.x = c %}" * 10
    + "{% endfor %}",
    "what is undefined": "{% for c in range(3000) %}" + "{% if c.nope %}{% endif %}" * 10 + "{% endfor %}",
    "generation blocks": "{% for c in range(10000) %}{% generation %}x{% endgeneration %}{% endfor %}",
    "call blocks": "{% macro m() %}{{ caller() }}{% endmacro %}{% for c in range(9000) %}{% call m() %}x{% endcall %}{% endfor %}",
    "ranges": "{% for c in range(20000) %}{% set x = range(5) %}{% endfor %}",
}
"""Templates that can be metered and are dear; what they cost this process with the largest conversations is bounded."""
