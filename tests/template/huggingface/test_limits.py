"""Can a template escape, change what it is given, or hold anybody up? (``specs/reliability.md`` 3.3)"""

from __future__ import annotations

import contextlib
import copy
import resource
import time

import pytest

from gateway.core.errors import InvalidValue, TemplateError
from gateway.template.huggingface.sandbox.meter import Beyond
from gateway.template.huggingface.sandbox.subprocess_renderer import TIME, Confined
from tests.serving import PATIENCE
from tests.template.huggingface.hostile import ENDLESS, ESCAPES, HEAVY, MUTATIONS
from tests.template.huggingface.samples import HELLO, dialogue, jinja

TELLTALE = ("class", "function", "module", "method", "object at", "root:", "builtin", "uid=")

LARGEST = {
    "two long texts": [{"role": "user", "content": "字" * 127_000}, {"role": "user", "content": "字" * 126_999 + "y"}],
    "many messages": [{"role": "user", "content": "ab" * 40 + str(number % 10)} for number in range(2040)],
    "what is nearly found": [{"role": "user", "content": "</thin" * 42_000}],
}
"""The largest conversations that are rendered in this process."""


@pytest.mark.parametrize("name", ESCAPES)
def test_a_template_does_not_reach_python(name: str) -> None:
    body = {"messages": [{"role": "user", "content": "{0.__class__}"}]}
    try:
        text = jinja(ESCAPES[name]).render(dialogue(body)).text
    except TemplateError:
        return  # refused, here or when it was loaded
    assert not any(word in text for word in TELLTALE), text


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_template_does_not_change_the_request(name: str) -> None:
    body = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    before, asked = copy.deepcopy(body), dialogue(body)
    with pytest.raises((TemplateError, InvalidValue)):
        jinja(MUTATIONS[name]).render(asked)
    assert body == before


@pytest.mark.parametrize("name", ENDLESS)
def test_what_does_not_end_is_stopped(name: str) -> None:
    talk = [{"role": "user", "content": "ab" * 5000}] * 12 + [{"role": "user", "content": "x"}]
    asked = dialogue({"messages": talk})
    try:
        template = jinja(ENDLESS[name])
    except TemplateError:
        return  # it is not even loaded
    job = template._job(asked)
    began = time.thread_time()
    with pytest.raises((Beyond, TemplateError)):
        template.scripts[0].render(job.variables, job.size)
    assert time.thread_time() - began < 0.5, "the event loop would have stood still"
    began = time.monotonic()
    with contextlib.suppress(TemplateError):
        template.render(asked)
    assert time.monotonic() - began < TIME + PATIENCE  # and the start of a process, on a machine with other work
    assert jinja().render(asked).text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("conversation", LARGEST)
@pytest.mark.parametrize("name", HEAVY)
def test_the_largest_conversations_hold_nobody_up(name: str, conversation: str) -> None:
    template = jinja(HEAVY[name])
    assert template.scripts[0].confined_by == ()
    job = template._job(dialogue({"messages": LARGEST[conversation]}))
    began = time.thread_time()
    with contextlib.suppress(Beyond):
        template.scripts[0].render(job.variables, job.size)
    assert time.thread_time() - began < 0.5


def test_a_long_conversation_goes_to_the_worker_and_comes_out_the_same() -> None:
    asked = dialogue({"messages": [{"role": "user", "content": "word " * 100_000}]})
    template = jinja()
    job = template._job(asked)
    with pytest.raises(Beyond):
        template.scripts[0].render(job.variables, job.size)
    assert template.render(asked).text == f"<|im_start|>user\n{'word ' * 100_000}<|im_end|>\n<|im_start|>assistant\n"


def test_this_process_does_not_grow() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asked = dialogue(HELLO)
    for name in ("a long text", "a text doubled by +", "lists in lists, printed", "center"):
        with pytest.raises(TemplateError):
            jinja(ENDLESS[name]).render(asked)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


WORKER = {  # name: (template, part of what is told)
    "refuses": ("{{ messages.__class__ }}{{ raise_exception('still here') }}", "still here"),
    "fails with a line": ("\n{{ 'x'.center('y') }}", "line 2 of the template: TypeError"),
    "needs too much memory": ("{{ 'x'.center(2000000000) }}", "MemoryError"),
    "writes too much": ("{% for i in range(9999) %}{{ 'x'.center(9999) }}{% endfor %}", "grew beyond"),
    "takes too long": (ENDLESS["loops in loops"], "took longer than 0.8 s"),
}


@pytest.mark.parametrize("name", WORKER)
def test_the_worker_says_what_went_wrong_and_serves_the_next(name: str) -> None:
    source, says = WORKER[name]
    worker = Confined("t", (source, "{{ messages[0].content.center(9) }}"), "")
    variables = {"messages": HELLO["messages"]}
    with pytest.raises(Exception, match=says):
        worker.render(0, variables)
    assert worker.render(1, variables).text == "  hello  "


def test_a_worker_ends_with_its_template() -> None:
    worker = Confined("t", ("{{ 'x'.center(3) }}",), "")
    worker.render(0, {})
    process = worker._process
    assert process is not None
    assert process.poll() is None
    del worker
    assert process.poll() is not None
