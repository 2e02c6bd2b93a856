"""A template reaches neither Python nor the request that it renders."""

from __future__ import annotations

import copy

import pytest

from metatemplate.errors import InvalidInput, TemplateFailure
from tests.metatemplate.chat_templates.samples import dialogue, jinja

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

PYTHON_WORDS = ("class", "function", "module", "method", "object at", "root:", "builtin", "uid=")


@pytest.mark.parametrize("name", ESCAPES)
def test_a_template_does_not_reach_python(name: str) -> None:
    body = {"messages": [{"role": "user", "content": "{0.__class__}"}]}
    try:
        text = jinja(ESCAPES[name]).render(dialogue(body)).text
    except TemplateFailure:
        return  # refused when it was loaded or rendered
    assert not any(word in text for word in PYTHON_WORDS), text


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_template_does_not_change_the_request(name: str) -> None:
    body = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    before, request = copy.deepcopy(body), dialogue(body)
    with pytest.raises((TemplateFailure, InvalidInput)):
        jinja(MUTATIONS[name]).render(request)
    assert body == before
