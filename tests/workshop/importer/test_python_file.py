"""Plain values of a Python file are read, all else is refused with its line, and nothing is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.workshop.importer.python.values import CallExpression, NameReference
from gateway.workshop.importer.python_file import PythonFile, check_plain
from metatemplate.values.words import MAX_QUOTED, shown
from tests.support.growth import assert_linear
from tests.workshop.importer.files import source


def read(text: str, **beside: str) -> PythonFile:
    return PythonFile(source("config.py", text, {f"{name.replace('__', '/')}.py": one for name, one in beside.items()}))


PLAIN = {
    "a text": "x = 'a'",
    "texts side by side": "x = 'a' 'b'\n",
    "a sum of texts": "y = 'b'\nx = 'a' + y + \"c\"",
    "a raw text": r"x = r'a\n'",
    "numbers": "x = [1, -2, 0.5, -0.5, 1e3]",
    "the three words": "x = (None, True, False)",
    "dict(...)": "x = dict(a=1, b=dict(c=2))",
    "a mapping": "x = {'a': 1, 2: 'c', **{'b': 2}}",
    "dict of a mapping": "base = dict(a=1)\nx = dict(base, b=2)",
    "dict with **": "base = dict(a=1)\nx = dict(**base, b=2)",
    "a list with *": "a = [1]\nx = [*a, 2]",
    "a sum of lists": "a = [1]\nx = a + [2] + a\na += [3]",
    "a sum of tuples": "x = (1,) + (2,)",
    "a list that grows": "x = [1]\ny = x\ny += [2]",
    "a list that grows by a tuple": "x = [1]\ny = x\ny += (2,)",
    "a name twice": "x = 1\nx = 2",
    "two targets": "y = x = 2",
    "two names of one mapping": "y = dict(a=[1])\nx = [y, y]\ny = 2",
    "format": "x = 'L {}. '.format(3) + 'a {{b}} {c}{d}'.format(c=1, d='e') + '{1}{0}'.format(1.5, None)",
    "strip": 'x = """\n a\n """.strip()',
    "a module that is run": "x = 1\nif __name__ == '__main__':\n    x = unknown()",
    "a function that is not called": "x = 1\ndef f(a, b=x, *, c=2):\n    global x\n    x = 3",
    "a text that stands alone": '"""About."""\nx = 1',
    "prints": "x = [1]\nprint(x)",
}


def as_lists(value: Any) -> Any:
    """A value with lists for tuples, as the reader gives them."""
    if isinstance(value, dict):
        return {key: as_lists(one) for key, one in value.items()}
    return [as_lists(one) for one in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_plain_values_are_read_as_python_computes_them(text: str) -> None:
    computed: dict[str, Any] = {}
    exec(text, computed)
    file = read(text)
    found = file.names["x"]
    assert repr(found) == repr(as_lists(computed["x"]))
    check_plain(found, "x", source("config.py", text))


UNSUPPORTED = {
    "an if": "x = 1 if y else 2",
    "an f-string": "x = f'{y}'",
    "a comprehension": "x = [i for i in y]",
    "a lambda": "x = lambda a: a",
    "an entry": "y = [1]\nx = y[0]",
    "format with a format": "x = '{:1000000000}'.format(1)",
    "format with a conversion": "x = '{!r}'.format('a')",
    "format with an attribute": "x = '{0.__class__}'.format(1)",
    "format with an entry": "x = '{a[b]}'.format(a=dict(b=1))",
    "format of a list": "x = '{}'.format([1])",
    "format with braces alone": "x = '{'.format(1)",
    "format without its value": "x = '{a}'.format(b=1)",
    "format with unknown names": "x = '{a}'.format(**y)",
    "format that repeats a long text": f"x = '{'{y}' * 10_000}'.format(y='{'a' * 1000}')",
    "strip of some characters": "x = 'a'.strip('b')",
    "a calculation": "x = 2 ** 99999",
    "a product": "x = 'a' * 1000000000",
    "bytes": "x = b'a'",
    "a key that is not a text": "x = {None: {'a': 1}}",
    "a key that is a mapping of entries": "x = {...: {'a': 1}}",
    "a ** of an unknown value": "x = dict(**y)",
    "a ** of names that are numbers": "d = {1: 2}\nx = dict(**d)",
    "a dict of pairs": "x = dict([('a', 1)])",
    "a dict of two mappings": "x = dict({}, {})",
    "a sum of a text and a number": "x = 'a' + 1",
    "a sum of a list and a tuple": "x = [1] + (2,)",
    "a large number": "x = 0x" + "f" * 100_000,
    "half of a character": r"x = 'a\ud800'",
    "a * of an unknown value": "x = [1, *y]",
    "a call": "x = f()",
    "a name": "x = [y]",
    "a function": "def x():\n    return 1",
    "an attribute of a mapping": "y = dict(a=1)\nx = y.a",
    "a copy": "import copy\nx = copy.deepcopy([1])",
}


@pytest.mark.parametrize("text", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_value_that_is_not_plain_is_refused_with_its_line_and_the_ways_out(text: str) -> None:
    file = read(text)
    with pytest.raises(
        ConfigError,
        match=r"^config\.py:[1-9]\d*: x contains .*; write the plain value there, or, for a config of OpenCompass or "
        r"AISBench, run it with --python ENV/bin/python, or import the resolved config \(mmengine's Config\.fromfile",
    ):
        check_plain(file.names["x"], "x", source("config.py", text))


NOT_READ_CODE = {  # name: (text, line, what)
    "a loop": ("x = [1]\nfor y in x:\n    y = 1", 2, "a loop"),
    "a loop without end": ("while True:\n    pass", 1, "a loop"),
    "a condition": ("x = 1\nif y:\n    x = 2", 2, "a condition"),
    "a module that is run or not": ("if __name__ == '__main__':\n    x = 1\nelse:\n    x = 2", 1, "a condition"),
    "a class": ("x = [1]\nclass A:\n    x.append(2)", 2, "a class"),
    "a try": ("try:\n    x = 1\nexcept A:\n    pass", 1, "this code"),
    "a with": ("with open('a') as f:\n    x = f.read()", 1, "this code"),
    "a del": ("x = 1\ndel x", 2, "this code"),
    "an entry that is set": ("x = {}\nx['a'] = 1", 2, "an assignment to x['a']"),
    "several names at once": ("x, y = 1, 2", 1, "an assignment to (x, y)"),
    "an attribute that is set": ("x = A()\nx.a = 1", 2, "an assignment to x.a"),
    "an entry that grows": ("x = dict(a=[1])\nx['a'] += [2]", 2, "this code"),
    "a text that grows": ("x = 'a'\nx += 'b'", 2, "this code"),
    "a tuple that grows": ("x = ('a',)\ny = x\ny += ('b',)", 3, "this code"),
    "a list that grows by an unknown value": ("x = [1]\nx += y", 2, "this code"),
    "a method of a list": ("x = [1]\nx.append(2)", 2, "the call x.append()"),
    "a method of a mapping whose result is kept": ("x = dict(a=1)\ny = x.pop('a')", 2, "the call x.pop()"),
    "a method of a text": ("x = 'a'.upper()", 1, "the call 'a'.upper()"),
    "a method of an entry": ("x = [[1]]\nx[0].append(2)", 2, "the call x[0].append()"),
    "a method of a value in a comprehension": (
        "x = [{}]\ny = [one.update(a=1) for one in x]",
        2,
        "a comprehension with a call or an assignment",
    ),
    "a method of the attribute of a call": ("x = A(k=[1])\nx.k.append(2)", 2, "the call x.k.append()"),
    "a walrus": ("x = 1\ny = (x := 2)", 2, "an expression with a call or an assignment"),
    "an f-string with a call": ("x = f'{y()}'", 1, "an f-string with a call or an assignment"),
    "a lambda with a call": ("x = lambda a: a.clear()", 1, "a lambda with a call or an assignment"),
    "a function of the file": ("x = [1]\ndef f():\n    x.append(2)\nf()", 4, "the call f()"),
    "a function that gets a function": (
        "def f(a):\n    a.clear()\ny = map(f, [])",
        3,
        "the call map() with a function of the file",
    ),
    "a function that may change a list": (
        "import random\nx = [1]\nrandom.shuffle(x)",
        3,
        "the call random.shuffle(), which may change its arguments,",
    ),
    "a function that may change an entry": ("x = [{}]\nf(x[0])", 2, "the call f(), which may change its arguments,"),
    "a function that may change a mapping by its class": (
        "x = dict(a=1)\ndict.update(x, b=2)",
        2,
        "the call dict.update(), which may change its arguments,",
    ),
    "a method of a result that may change a list": (
        "y = f()\nx = [1]\nz = y.g(x)",
        3,
        "the call f.g(), which may change its arguments,",
    ),
    "exec": ("x = [1]\nexec('x.clear()')", 2, "the call exec()"),
    "globals": ("x = 1\nglobals().update(x=2)", 2, "the call globals()"),
    "a base that is not imported": ("with read_base():\n    x = 1", 2, "this code"),
    "a sum of the names of the file": (
        "datasets = sum((v for k, v in locals().items() if k.endswith('_datasets')), [])",
        1,
        "a comprehension with a call or an assignment",
    ),
}


@pytest.mark.parametrize(("text", "line", "what"), NOT_READ_CODE.values(), ids=NOT_READ_CODE)
def test_code_that_may_change_a_value_is_refused_with_its_line_and_the_ways_out(
    text: str, line: int, what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(f"config.py:{line}: {what} is not read; write the plain value there, or, for ")
    assert "--python ENV/bin/python" in str(caught.value)
    assert "Config.fromfile(FILE).dump('resolved.json')" in str(caught.value)


@pytest.mark.parametrize("line", ["x.f()", "_ = x.f()", "print(x.f())", "x.f([1])"])
def test_a_method_of_a_call_is_noted(line: str) -> None:
    file = read(f"x = A(k=[1])\n{line}")
    assert file.notes == ["line 2: the effect of .f() on A(…) (line 1) was not imported"]


SESSION = """\
>>> import lazyllm
>>> tools = [dict(a=1)]
>>> x = [
...     '''>>> b
... c''',
... ]
>>> tools
[{'a': 1}]
>>>
>>> print('a')
a
"""


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_session_is_read_without_its_prompts_and_outputs(indent: str) -> None:
    text = "".join([indent + line for line in SESSION.splitlines(keepends=True)])
    file = read(text)
    assert file.names["tools"] == [{"a": 1}]
    assert file.names["x"] == [">>> b\nc"]
    with pytest.raises(ConfigError, match=r"^config\.py:12: a loop is not read"):
        read(text + f"{indent}>>> for a in b:\n{indent}...     c = a\n")


BOMBS: dict[str, tuple[str, dict[str, str]]] = {
    "many star imports of many names": (
        "with read_base():\n" + "    from .base import *\n" * 10_000,
        {"base": "".join([f"n{i} = 1\n" for i in range(20_000)])},
    ),
    "bases of bases": (
        "with read_base():\n    from .b0 import *\n",
        {
            f"{a}{n}": f"with read_base():\n    from .b{n + 1} import *\n    from .c{n + 1} import *\n"
            for n in range(40)
            for a in "bc"
        }
        | {"b40": "", "c40": ""},
    ),
    "a text that grows": ("x = 'aaaaaaaa'\n" + "x = x + x\n" * 40, {}),
    "a list that grows": ("x = [1]\n" + "x = [*x, *x]\n" * 40, {}),
    "a list that grows in place": ("x = [1]\n" + "x += x\n" * 40, {}),
    "a list of a list many times": ("x = [" + "1, " * 1000 + "]\ny = [" + "*x, " * 60_000 + "]", {}),
    "a mapping of a mapping many times": (
        "x = {" + "".join([f"'{n}': 1, " for n in range(1000)]) + "}\ny = {" + "**x, " * 60_000 + "}",
        {},
    ),
    "many imports of a large file": (
        "with read_base():\n    from .b0 import x\n",
        {f"b{n}": f"with read_base():\n    from .b{n + 1} import x\nx = '{'a' * 300_000}'" for n in range(40)},
    ),
}


@pytest.mark.parametrize(("text", "beside"), BOMBS.values(), ids=BOMBS)
def test_a_file_that_computes_too_much_is_refused(text: str, beside: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="the code needs too many steps"):
        read(text, **beside)


def test_a_class_that_gets_a_value_does_not_change_it() -> None:
    text = "from a import B\nx = ['a']\nprint(x)\nB(x)\ny = f(x)"
    check_plain(read(text).names["x"], "x", source("config.py", text))


def test_calls_and_classes_are_kept_as_such() -> None:
    call, name = read("from a import B\nimport c\nx = [B(1, k=c.D), c.d.E]").names["x"]
    assert isinstance(call, CallExpression)
    assert (call.last, call.args, call.line) == ("B", (1,), 3)
    assert isinstance(call.keywords["k"], NameReference)
    assert name.last == "E"


def test_nothing_is_executed(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    read(
        f"import pathlib\nx = pathlib.Path({str(witness)!r}).write_text('x')\n@x\ndef f():\n    y = x()\nx.y(1)\n"
        f"from {tmp_path.name} import *\nopen({str(witness)!r}, 'w')"
    )
    assert not witness.exists()


def test_a_base_beside_is_read() -> None:
    text = (
        "with read_base():\n    from .base import meta as m, other\n    from .sub.deep import *\nx = dict(m, c=other)"
    )
    found = read(text, base="meta = dict(a=1)\nother = 2", sub__deep="deep = 3").names
    assert found["x"] == {"a": 1, "c": 2}
    assert found["deep"] == 3


def test_each_file_has_values_of_its_own_from_a_base() -> None:
    text = "with read_base():\n    from .base import a\n    from .other import a as b\na += [2]"
    names = read(text, base="a = [1]", other="with read_base():\n    from .base import a\n").names
    assert (names["a"], names["b"]) == ([1, 2], [1])


def test_a_problem_in_a_base_names_the_base_and_its_line() -> None:
    file = read("with read_base():\n    from .base import a\n", base="\na = dict(b=f'{c}')")
    with pytest.raises(ConfigError, match=r"^base\.py:2: a contains an f-string \(line 2\)"):
        check_plain(file.names["a"], "a", source("config.py", ""))
    with pytest.raises(ConfigError, match=r"^base\.py:1: a loop is not read"):
        read("with read_base():\n    from .base import a\n", base="for a in b: pass")


GONE = "put gone.py there (a link out of the folder is not read), or correct the name"
BASES_NOT_READ = {  # name: (import, problem)
    "a file beside": (".gone", f"config.py:3: .gone was not found beside config.py; {GONE}"),
    "a file of another folder": (
        "..up",
        "config.py:3: ..up was not found in the config's folder; name the folder of its package with --root",
    ),
    "a file of a package": (
        "opencompass.x",
        "config.py:3: opencompass.x was not found in the config's folder; name the folder of its package with --root",
    ),
    "a file of a base": (".sub.base", f"sub/base.py:2: .gone was not found beside sub/base.py; {GONE}"),
    "a name that is missing": (".base", "config.py:3: .base has no a"),
    "a base that reads itself": (".again", "config.py: the Python code is nested too deeply; split its expressions"),
}


@pytest.mark.parametrize("names", ["a", "*"])
@pytest.mark.parametrize(("module", "problem"), BASES_NOT_READ.values(), ids=BASES_NOT_READ)
def test_a_base_that_is_not_read_is_refused_with_its_line(module: str, problem: str, names: str) -> None:
    if problem.endswith("has no a") and names == "*":
        return
    with pytest.raises(ConfigError) as caught:
        read(
            f"\nwith read_base():\n    from {module} import {names}\nx = 1",
            up="a = 1",
            base="b = 1",
            sub__base="with read_base():\n    from .gone import a",
            again="with read_base():\n    from .again import a",
        )
    assert str(caught.value) == problem


NOT_READ = {
    "not Python": ("x = (", "config.py:1: the file is not valid Python"),
    "a null byte": ("x = 1\0", "config.py"),
    "signs without end": ("x = " + "-" * 300_000 + "1", "config.py: the Python code is nested too deeply"),
    "brackets without end": ("x = " + "[" * 150_000, "config.py"),
    "a chain of names": ("x = a" + ".b" * 150_000, "config.py: the Python code is nested too deeply"),
    "a chain of sums": ("x = 1" + "+1" * 150_000, "config.py: the Python code is nested too deeply"),
    "a session with an error": (">>> x = 1\n>>> y = (\n1\n", "config.py:2: the file is not valid Python: '(' was"),
    "a long chain of sums": ("x = ''" + "+'a'" * 2000, "config.py: the Python code is nested too deeply"),
    "many calls": ("foo()\n" * 150_000, "config.py: the code is larger than 384 KiB; import the resolved config"),
    "too long": ("x = '" + "a" * 2_000_000 + "'", "config.py: the file is larger than 1024 KiB"),
    "not UTF-8": (b"a = 1\nb = '\xff'\n", "config.py:2: the file is not UTF-8"),
}


@pytest.mark.parametrize(("text", "message"), NOT_READ.values(), ids=NOT_READ)
def test_a_file_that_cannot_be_read_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PythonFile(source("config.py", text))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("text", ["x = [1]\n" + "x = [x, x, x, x]\n" * 30, "x = []\nx += [x]"])
def test_lists_that_hold_each_other_many_times_are_refused_and_shown_in_short(text: str) -> None:
    file = read(text)
    assert len(shown(file.names["x"])) == MAX_QUOTED + 1
    with pytest.raises(ConfigError, match="x has more than 300000 parts; import a smaller config"):
        check_plain(file.names["x"], "x", source("config.py", text))


def test_many_values_are_searched_for_calls_in_linear_time() -> None:
    def find(size: int) -> None:
        file = read("x = [A(1), " + "[], " * size + "[B(A(2))]]")
        assert [call.args for _, call in file.find_calls(("A",))] == [(1,), (2,)]

    assert_linear(find, 5_000)


def test_calls_are_found_in_the_order_of_the_file() -> None:
    file = read("x = [A(A(2), k=[A(3)]), dict(a=A(4), b=(A(5),))]\ny = A(6)")
    found = [(name, call.args[0] if isinstance(call.args[0], int) else 1) for name, call in file.find_calls(("A",))]
    assert found == [("x", 1), ("x", 2), ("x", 3), ("x", 4), ("x", 5), ("y", 6)]
