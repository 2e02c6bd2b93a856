"""Plain values of a Python file are read, all else is refused with its line, and nothing is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.importer.python_file import CallExpression, NameReference, PythonFile, Unsupported
from tests.growth import assert_linear
from tests.importer.files import source


def read(text: str, **beside: str) -> PythonFile:
    return PythonFile(source("config.py", text, {f"{name.replace('__', '/')}.py": one for name, one in beside.items()}))


PLAIN: dict[str, tuple[str, Any]] = {
    "a text": ("x = 'a'", "a"),
    "texts side by side": ("x = 'a' 'b'\n", "ab"),
    "a sum of texts": ("y = 'b'\nx = 'a' + y + \"c\"", "abc"),
    "a raw text": (r"x = r'a\n'", "a\\n"),
    "numbers": ("x = [1, -2, 0.5, -0.5, 1e3]", [1, -2, 0.5, -0.5, 1000.0]),
    "the three words": ("x = (None, True, False)", [None, True, False]),
    "dict(...)": ("x = dict(a=1, b=dict(c=2))", {"a": 1, "b": {"c": 2}}),
    "a mapping": ("x = {'a': 1, 2: 'c', **{'b': 2}}", {"a": 1, 2: "c", "b": 2}),
    "dict of a mapping": ("base = dict(a=1)\nx = dict(base, b=2)", {"a": 1, "b": 2}),
    "dict with **": ("base = dict(a=1)\nx = dict(**base, b=2)", {"a": 1, "b": 2}),
    "a list with *": ("a = [1]\nx = [*a, 2]", [1, 2]),
    "a list that grows": ("x = [1]\ny = x\ny += [2]", [1, 2]),
    "a list that grows by a tuple": ("x = [1]\ny = x\ny += (2,)", [1, 2]),
    "a text that grows": ("x = 'a'\ny = x\nx += 'b'", "ab"),
    "an entry": ("a = dict(b=[1, 2])\nx = a['b'][1]", 2),
    "a name twice": ("x = 1\nx = 2", 2),
    "two targets": ("y = x = 2", 2),
    "an annotation": ("x: int = 3", 3),
    "append": ("x = [1]\ny = x\ny.append(2)", [1, 2]),
    "an f-string": ("y = 'b'\nx = f'{{a}} {y} {1}'", "{a} b 1"),
    "a method": ("x = 'a_b'.replace('_', ' ')", "a b"),
    "a copy": ("y = dict(a=1)\nx = y.copy()\ny.update(z)", {"a": 1}),
    "a loop": ("x = []\nfor a, b in [(1, 2), (3, 4)]:\n    x.append(b)", [2, 4]),
    "a loop over keys": ("y = dict(a=1, b=2)\nx = []\nfor k in list(y.keys()):\n    x.append(y[k])", [1, 2]),
    "a comprehension": ("i = 7\nx = [[i for i in range(2)], i]", [[0, 1], 7]),
    "a comprehension with one name twice": ("x = [1 for _, _ in [(1, 2)]]", [1]),
    "a loop over a list that grows": ("x = [1]\nfor n in x:\n    if n != 3:\n        x.append(n + 1)", [1, 2, 3]),
    "a comprehension of pairs": ("x = {k: f'{k}!' for k in ['a', 'b']}", {"a": "a!", "b": "b!"}),
    "a condition": ("y = 1\nif y == 1:\n    x = 2\nelse:\n    x = 3", 2),
    "a choice": ("x = 2 if 'a' in ['b'] else 3", 3),
}


@pytest.mark.parametrize(("text", "value"), PLAIN.values(), ids=PLAIN)
def test_plain_values_are_read(text: str, value: Any) -> None:
    file = read(text)
    found = file.names["x"]
    assert found == value
    assert type(found) is type(value)
    file.check_plain(found, "x")


UNSUPPORTED = {
    "a comprehension with a condition": "x = [i for i in range(3) if i]",
    "a comprehension over an unknown value": "x = [i for i in y]",
    "a lambda": "x = lambda: 1",
    "an if": "x = 1 if y else 2",
    "an f-string of an unknown value": "x = f'{y}'",
    "an f-string with a format": "y = 1\nx = f'{y:03}'",
    "a calculation": "x = 2 ** 99999",
    "a product": "x = 'a' * 1000000000",
    "bytes": "x = b'a'",
    "a key that is not a text": "x = {None: {'a': 1}}",
    "a ** of an unknown value": "x = dict(**y)",
    "a method that is not followed": "x = 'a'.encode()",
    "a method of a changed value": "y = dict(a=1)\ny.update(z)\nx = y.copy()",
    "an entry of a changed value": "y = dict(a=1)\ny.update(z)\nx = y['a']",
    "a ** of a changed value": "y = dict(a=1)\ny.update(z)\nx = dict(**y)",
    "a comparison with an unknown value": "x = 1 if y == 2 else 3",
    "an entry that is not there": "a = dict(b=1)\nx = a['c']",
    "set inside an if": "x = 1\nif y:\n    x = 2",
    "set inside a loop": "for x in y:\n    pass",
    "set inside an expression": "x = 1\ny = (x := 2)",
    "set inside a loop that may end early": "for y in (1, 2):\n    x = y\n    break",
    "deleted": "x = 1\ndel x",
    "a function": "def x():\n    return 1",
    "several names at once": "a, x = 1, 2",
    "a sum of a text and a number": "x = 'a' + 1",
    "half of a character": r"x = 'a\ud800'",
    "a text that grows beyond all bounds": "x = 'aaaaaaaa'\n" + "x = x + x\n" * 40,
    "a replacement that grows beyond all bounds": f"y = '{'a' * 1000}'\nx = y.replace('a', y)",
    "a range beyond all bounds": "x = list(range(1000000000))",
    "a list that grows beyond all bounds": "x = [1]\n" + "x = [*x, *x]\n" * 40,
}


@pytest.mark.parametrize("text", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_value_that_is_not_plain_is_refused_with_its_line(text: str) -> None:
    file = read(text)
    with pytest.raises(ConfigError, match=r"^config\.py:[1-9]\d*: x contains .*; write the plain value there$"):
        file.check_plain(file.names["x"], "x")


CHANGED = {
    "by insert": "x = [1]\ny = x\ny.insert(0, 2)",
    "by a key": "x = dict(a=1)\nx['b'] = 'c'",
    "by a key of another name": "x = dict(a=1)\ny = x\ny['a'] = 2",
    "by a key inside of a key": "x = dict(a=[dict(b=1)])\ny = x['a'][0]\ny['b'] = 2",
    "by a loop": "x = dict(a=1)\nfor k in x:\n    x[k] = 2",
    "by a method": "x = dict(a=1)\nx.update(b=2)",
    "by a method of another name": "x = dict(a=1)\ny = x\ny.pop('a')",
    "by a method without arguments": "x = [1]\nx.sort()",
    "by an if": "x = []\nif 1:\n    x.append(1)",
    "by a method whose result is kept": "x = dict(a=1)\nold = x.pop('a')",
    "by a method inside of a call": "x = dict(a=1)\nprint(x.update(a=2))",
    "by a method inside of a value": "x = dict(a=1)\ny = [dict(b=x.update(a=2))]",
    "by a method of what it holds": "x = dict(a=[1])\nx['a'].insert(0, 2)",
    "by a method of what another value holds too": "z = [1]\nx = dict(a=z)\ny = dict(b=z)\ny['b'].insert(0, 2)",
    "by a method of what an unknown key holds": "x = dict(a=[1])\nx[k].insert(0, 2)",
    "by a comprehension": "x = dict(a=1)\ny = [one.update(a=2) for one in [x]]",
    "by a method on one of two": "x = dict(a=1)\n(x if y else z).update(a=2)",
    "by |=": "x = dict(a=1)\ny = x\ny |= {'a': 2}",
    "by |= inside an if": "x = dict(a=1)\ny = x\nif 1:\n    y |= {'a': 2}",
    "by an unknown value": "x = [1]\ny = x\ny += f()",
    "by a function of the file": "def f(one):\n    one['a'] = 2\nx = dict(a=1)\nf(x)",
}


@pytest.mark.parametrize("text", CHANGED.values(), ids=CHANGED)
def test_a_value_that_a_statement_may_have_changed_is_refused(text: str) -> None:
    file = read(text)
    with pytest.raises(ConfigError, match=r"^config\.py:[2-9]: x contains "):
        file.check_plain({"around": file.names["x"]}, "x")


@pytest.mark.parametrize("line", ["x.k.append(4)", "x.k[0] = 4", "x.k.l = 4", "y = x.k.pop()", "if 1:\n    x.k = 4"])
def test_a_call_whose_parts_are_changed_is_refused(line: str) -> None:
    file = read(f"x = A(k=[1])\n{line}")
    with pytest.raises(ConfigError, match=r"^config\.py:[23]: x contains "):
        file.check_unchanged(file.names["x"], "x")


@pytest.mark.parametrize("line", ["x.f()", "_ = x.f()", "if 1: x.f()", "for r in y: x.f(r)", "print(x.f())"])
def test_a_method_of_a_call_is_noted(line: str) -> None:
    file = read(f"x = A(k=[1])\n{line}")
    assert file.notes == ["line 2: the effect of .f() on A(…) (line 1) was not imported"]
    file.check_unchanged(file.names["x"], "x")


def test_a_file_that_computes_too_much_is_refused() -> None:
    loops = "".join([f"{' ' * depth}for a{depth} in range(1000):\n" for depth in range(3)])
    with pytest.raises(ConfigError, match="the code needs too many steps"):
        read(f"{loops}   x = 1")


def test_a_module_that_gets_a_value_does_not_change_it() -> None:
    file = read("import sys\nx = ['a']\nprint(x)\nsys.setprofile(x)")
    file.check_plain(file.names["x"], "x")


def test_only_the_first_notes_are_kept() -> None:
    base = "c = F()\n" + "c.f()\n" * 100
    file = read("with read_base():\n    from .base import c\n", base=base)
    assert len(file.notes) == 20


def test_calls_and_classes_are_kept_as_such() -> None:
    call, name = read("from a import B\nimport c\nx = [B(1, k=c.D), c.d.E]").names["x"]
    assert isinstance(call, CallExpression)
    assert (call.last, call.args, call.line) == ("B", (1,), 3)
    assert isinstance(call.keywords["k"], NameReference)
    assert name.last == "E"


def test_nothing_is_executed(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    read(
        f"import pathlib\nx = pathlib.Path({str(witness)!r}).write_text('x')\n@x\nclass A:\n    y = x()\nassert x(1)\n"
    )
    assert not witness.exists()


def test_a_base_beside_is_read() -> None:
    text = (
        "with read_base():\n    from .base import meta as m, other\n    from .sub.deep import *\nx = dict(m, c=other)"
    )
    found = read(text, base="meta = dict(a=1)\nother = 2", sub__deep="deep = 3").names
    assert found["x"] == {"a": 1, "c": 2}
    assert found["deep"] == 3


def test_a_base_that_reads_itself_ends() -> None:
    again = "a = 1\nwith read_base():\n    from .base import a as b\n"
    assert read("with read_base():\n    from .base import a\nx = a", base=again).names["x"] == 1


@pytest.mark.parametrize("line", ["from ..up import a", "from .gone import a", "from opencompass.x import a"])
def test_a_base_that_is_not_beside_is_noted_and_not_used(line: str) -> None:
    file = read(f"with read_base():\n    {line}\nx = a", up="a = 1")
    assert isinstance(file.names["x"], Unsupported)
    assert file.notes[0].startswith("line 2: ")
    assert file.notes[0].endswith(", so a was not read")


NOT_READ = {
    "not Python": ("x = (", "config.py:1: the file is not valid Python"),
    "a null byte": ("x = 1\0", "config.py"),
    "signs without end": ("x = " + "-" * 300_000 + "1", "config.py: the Python code is nested too deeply"),
    "brackets without end": ("x = " + "[" * 150_000, "config.py"),
    "a chain of names": ("x = a" + ".b" * 300_000, "config.py: the Python code is nested too deeply"),
    "a chain of sums": ("x = 1" + "+1" * 300_000, "config.py: the Python code is nested too deeply"),
    "a long chain of sums": ("x = ''" + "+'a'" * 2000, "config.py: the Python code is nested too deeply"),
    "too long": ("x = '" + "a" * 2_000_000 + "'", "config.py: the file is larger than 1024 KiB"),
    "not UTF-8": (b"a = 1\nb = '\xff'\n", "config.py:2: the file is not UTF-8"),
}


@pytest.mark.parametrize(("text", "message"), NOT_READ.values(), ids=NOT_READ)
def test_a_file_that_cannot_be_read_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PythonFile(source("config.py", text))
    assert str(caught.value).startswith(message)


def test_lists_that_hold_each_other_many_times_are_searched_once() -> None:
    file = read("x = [1]\n" + "x = [x, x, x, x]\n" * 30)
    file.check_plain(file.names["x"], "x")


def test_many_values_are_searched_for_calls_in_linear_time() -> None:
    def find(size: int) -> None:
        file = read("x = [A(1), " + "[], " * size + "[B(A(2))]]")
        assert [call.args for _, call in file.find_calls(("A",))] == [(1,), (2,)]

    assert_linear(find, 5_000)


def test_calls_are_found_in_the_order_of_the_file() -> None:
    file = read("x = [A(A(2), k=[A(3)]), dict(a=A(4), b=(A(5),))]\ny = A(6)")
    found = [(name, call.args[0] if isinstance(call.args[0], int) else 1) for name, call in file.find_calls(("A",))]
    assert found == [("x", 1), ("x", 2), ("x", 3), ("x", 4), ("x", 5), ("y", 6)]
