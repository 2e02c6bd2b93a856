"""What is read of a Python file, and does nothing of it run?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.importer.python_source.module import read_module
from gateway.importer.python_source.values import Called, Named, Unread
from tests.growth import assert_linear
from tests.importer.files import source


def names(text: str, **beside: str) -> dict[str, Any]:
    files = {name.replace("__", "/") + ".py": one for name, one in beside.items()}
    return read_module(source("config.py", text, files)).names


PLAIN: dict[str, tuple[str, Any]] = {
    "a text": ("x = 'a'", "a"),
    "texts side by side": ("x = 'a' 'b'\n", "ab"),
    "a sum of texts": ("y = 'b'\nx = 'a' + y + \"c\"", "abc"),
    "an f-string without expressions": ("x = f'a{{b}}'", "a{b}"),
    "a raw text": (r"x = r'a\n'", "a\\n"),
    "numbers": ("x = [1, -2, 0.5, -0.5, 1e3]", [1, -2, 0.5, -0.5, 1000.0]),
    "the three words": ("x = (None, True, False)", (None, True, False)),
    "dict(...)": ("x = dict(a=1, b=dict(c=2))", {"a": 1, "b": {"c": 2}}),
    "a mapping": ("x = {'a': 1, **{'b': 2}}", {"a": 1, "b": 2}),
    "dict of a mapping": ("base = dict(a=1)\nx = dict(base, b=2)", {"a": 1, "b": 2}),
    "dict with **": ("base = dict(a=1)\nx = dict(**base, b=2)", {"a": 1, "b": 2}),
    "a list with *": ("a = [1]\nx = [*a, 2]", [1, 2]),
    "list and tuple": ("x = [list((1,)), tuple([2])]", [[1], (2,)]),
    "a list that grows": ("x = [1]\ny = x\ny += [2]", [1, 2]),
    "a list that grows by a tuple": ("x = [1]\ny = x\ny += (2,)", [1, 2]),
    "append and extend": ("x = [1]\nx.append(2)\nx.extend([3])", [1, 2, 3]),
    "a key that is set": ("x = dict(a=1)\nx['b'] = 'c'", {"a": 1, "b": "c"}),
    "a key that is set through another name": ("x = dict(a=1)\ny = x\ny['a'] = 2", {"a": 2}),
    "a key inside of a key": ("x = dict(a=[dict(b=1)])\ny = x['a'][0]\nx['a'][0]['b'] = 2\nx = y", {"b": 2}),
    "an entry": ("a = dict(b=[1, 2])\nx = a['b'][1]", 2),
    "a name twice": ("x = 1\nx = 2", 2),
    "two names": ("a, x = 1, 2", 2),
    "an annotation": ("x: int = 3", 3),
}


@pytest.mark.parametrize(("text", "value"), PLAIN.values(), ids=PLAIN)
def test_plain_values_are_read(text: str, value: Any) -> None:
    found = names(text)["x"]
    assert found == value
    assert type(found) is type(value)


UNREAD = {
    "a comprehension": "x = [i for i in range(3)]",
    "a lambda": "x = lambda: 1",
    "an if": "x = 1 if y else 2",
    "an f-string with a name": "y = 1\nx = f'{y}'",
    "a calculation": "x = 2 ** 99999",
    "a product": "x = 'a' * 1000000000",
    "bytes": "x = b'a'",
    "a method": "x = 'a'.upper()",
    "an entry that is not there": "a = dict(b=1)\nx = a['c']",
    "set inside an if": "x = 1\nif True:\n    x = 2",
    "set inside a loop": "for x in (1, 2):\n    pass",
    "deleted": "x = 1\ndel x",
    "a function": "def x():\n    return 1",
    "a sum of a text and a number": "x = 'a' + 1",
    "half of a character": r"x = 'a\ud800'",
    "half of a character in an f-string": r"x = f'a\ud800'",
    "a text that grows beyond all bounds": "x = 'aaaaaaaa'\n" + "x = x + x\n" * 40,
}


@pytest.mark.parametrize("text", UNREAD.values(), ids=UNREAD)
def test_what_is_no_plain_value_is_marked_with_its_line(text: str) -> None:
    found = names(text)["x"]
    assert isinstance(found, Unread)
    assert found.line > 0


CHANGED = {
    "by a loop": "x = dict(a=1)\nfor k in x:\n    x[k] = 2",
    "by a method": "x = dict(a=1)\nx.update(b=2)",
    "by a method of another name": "x = dict(a=1)\ny = x\ny.pop('a')",
    "inside a function's call": "x = [1]\nx.sort()",
    "by an if": "x = []\nif 1:\n    x.append(1)",
    "by a method whose result is kept": "x = dict(a=1)\nold = x.pop('a')",
    "by a method inside of a call": "x = dict(a=1)\nprint(x.update(a=2))",
    "by a method inside of a value": "x = dict(a=1)\ny = [dict(b=x.update(a=2))]",
    "by a method of what it holds": "x = dict(a=[1])\nx['a'].insert(0, 2)",
    "by a method of what an unknown key holds": "x = dict(a=[1])\nx[k].insert(0, 2)",
    "by a comprehension": "x = dict(a=1)\ny = [one.update(a=2) for one in [x]]",
    "by a method on one of two": "x = dict(a=1)\n(x if y else z).update(a=2)",
    "by |=": "x = dict(a=1)\ny = x\ny |= {'a': 2}",
    "by |= inside an if": "x = dict(a=1)\ny = x\nif 1:\n    y |= {'a': 2}",
    "by what cannot be read": "x = [1]\ny = x\ny += f()",
    "by a function of the file": "def f(one):\n    one['a'] = 2\nx = dict(a=1)\nf(x)",
}


@pytest.mark.parametrize("text", CHANGED.values(), ids=CHANGED)
def test_a_value_that_something_may_have_changed_is_not_trusted(text: str) -> None:
    module = read_module(source("config.py", text))
    trouble = module.trouble({"around": module.names["x"]})
    assert isinstance(trouble, Unread)
    assert trouble.line > 1


UNCHANGED = {
    "a copy": "x = dict(a=1)\ny = x.copy()",
    "an entry that is asked for": "x = dict(a=1)\ny = x.get('a', 2)",
    "words in a comprehension": "x = [dict(a='A')]\ny = [one['a'].lower() for one in x]",
    "a module's method": "import sys\nx = ['a']\nsys.path.extend(x)",
}


@pytest.mark.parametrize("text", UNCHANGED.values(), ids=UNCHANGED)
def test_what_changes_nothing_leaves_a_value_alone(text: str) -> None:
    module = read_module(source("config.py", text))
    assert module.trouble(module.names["x"]) is None


@pytest.mark.parametrize("line", ["x.k.append(4)", "x.k[0] = 4", "x.k.l = 4", "y = x.k.pop()", "if 1:\n    x.k = 4"])
def test_a_call_whose_parts_are_changed_is_not_trusted(line: str) -> None:
    module = read_module(source("config.py", f"x = A(k=[1])\n{line}"))
    assert isinstance(module.changed(module.names["x"]), Unread)


@pytest.mark.parametrize("line", ["x.f()", "_ = x.f()", "if 1: x.f()", "for r in y: x.f(r)", "print(x.f())"])
def test_a_method_of_a_call_is_told(line: str) -> None:
    module = read_module(source("config.py", f"x = A(k=[1])\n{line}"))
    assert module.notes == ["line 2: what .f() does to A(…) (line 1) was not followed"]


def test_what_is_changed_through_an_unread_name_is_told() -> None:
    module = read_module(source("config.py", "x = dict(a=dict(b=1))\ny = x.get('a')\ny['b'] = 2"))
    assert module.notes == ["line 3: what is changed through y was not followed"]


def test_a_name_set_inside_an_expression_is_no_longer_known() -> None:
    assert isinstance(names("x = 1\ny = (x := 2)")["x"], Unread)


def test_many_notes_of_a_base_are_few_and_read_in_bounded_time() -> None:
    def read(size: int) -> None:
        base = "c = F()\n" + "c.f()\n" * size
        module = read_module(source("config.py", "with read_base():\n    from .base import c\n", {"base.py": base}))
        assert len(module.notes) == 21
        assert module.notes[-1] == f"… and {size - 20} more that were not followed"

    assert_linear(read, 2_000)


def test_stars_without_end_are_refused() -> None:
    base = "".join([f"a{number} = 1\n" for number in range(20_000)])
    text = "with read_base():\n" + "    from .base import *\n" * 10_000
    with pytest.raises(ConfigError, match=r"config\.py:12: `import \*` brings more than 200000 names"):
        read_module(source("config.py", text, {"base.py": base}))


def test_calls_and_classes_stay_what_they_are() -> None:
    found = names("from a import B\nimport c\nx = [B(1, k=c.D), c.d.E]")["x"]
    call, name = found
    assert isinstance(call, Called)
    assert (call.name, call.args, call.line) == ("B", (1,), 3)
    assert isinstance(call.keywords["k"], Named)
    assert name.last == "E"


def test_nothing_is_executed(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    text = (
        f"import pathlib\nx = pathlib.Path({str(witness)!r}).write_text('x')\n@x\nclass A:\n    y = x()\nassert x(1)\n"
    )
    names(text)
    assert not witness.exists()


def test_a_base_beside_is_followed() -> None:
    text = (
        "with read_base():\n    from .base import meta as m, other\n    from .sub.deep import *\nx = dict(m, c=other)"
    )
    found = names(text, base="meta = dict(a=1)\nother = 2", sub__deep="deep = 3")
    assert found["x"] == {"a": 1, "c": 2}
    assert found["deep"] == 3


def test_a_base_that_reads_itself_ends() -> None:
    text = "with read_base():\n    from .base import a\nx = a"
    again = "a = 1\nwith read_base():\n    from .base import a as b\n"
    assert names(text, base=again)["x"] == 1


@pytest.mark.parametrize("line", ["from ..up import a", "from .gone import a", "from opencompass.x import a"])
def test_a_base_that_is_not_beside_is_told_and_not_used(line: str) -> None:
    module = read_module(source("config.py", f"with read_base():\n    {line}\nx = a"))
    assert isinstance(module.names["x"], Unread)
    assert "line 2" in module.notes[0]


def test_a_file_of_another_folder_is_not_the_one_of_that_name_beside() -> None:
    text = "with read_base():\n    from .base import a\n    from ..base import a as b\nx = b"
    module = read_module(source("config.py", text, {"base.py": "a = 1"}))
    assert isinstance(module.names["x"], Unread)
    assert module.notes == ["line 3: ..base lies in another folder, so a was not read"]


def test_a_file_too_many_is_told_as_such() -> None:
    files = {f"f{number}.py": "a = 1" for number in range(20)}
    text = "with read_base():\n" + "".join([f"    from .f{number} import a\n" for number in range(20)])
    module = read_module(source("config.py", text, files))
    assert module.notes[0] == "line 17: .f15 is one file too many, 16 are read, so a was not read"
    assert len(module.notes) == 5


HOSTILE = {
    "no Python": ("x = (", "config.py:1: no Python"),
    "a null byte": ("x = 1\0", "config.py"),
    "signs without end": ("x = " + "-" * 300_000 + "1", "config.py: cannot be read as Python: it nests too deeply"),
    "brackets without end": ("x = " + "[" * 150_000, "config.py"),
    "a chain of names": ("x = a" + ".b" * 300_000, "config.py: cannot be read as Python: it nests too deeply"),
    "a chain of sums": ("x = 1" + "+1" * 300_000, "config.py: cannot be read as Python: it nests too deeply"),
    "lists in lists": ("x = " + "[" * 80 + "]" * 80, "config.py:1: nests deeper than 60 levels"),
    "a sum of many texts": ("x = ''" + "+'a'" * 200, "config.py:1: nests deeper than 60 levels"),
    "too long": ("x = '" + "a" * 2_000_000 + "'", "config.py: larger than 1024 KiB"),
}


@pytest.mark.parametrize(("text", "says"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        names(text)
    assert str(caught.value).startswith(says)


def test_lists_that_hold_each_other_many_times_are_looked_through_in_bounded_time() -> None:
    text = "x = [1]\n" + "x = [x, x, x, x]\n" * 30
    module = read_module(source("config.py", text))
    assert isinstance(module.trouble(module.names["x"]), Unread)


def test_many_values_are_searched_for_calls_in_bounded_time() -> None:
    """Each entry of a list once made a copy of all that were left: such a file took minutes."""

    def find(size: int) -> None:
        module = read_module(source("config.py", "x = [A(1), " + "[], " * size + "[B(A(2))]]"))
        assert [call.args for _, call in module.find_calls(("A",))] == [(1,), (2,)]

    assert_linear(find, 5_000)


def test_calls_are_found_in_the_order_of_the_file() -> None:
    module = read_module(source("config.py", "x = [A(A(2), k=[A(3)]), dict(a=A(4), b=(A(5),))]\ny = A(6)"))
    found = [(name, call.args[0] if isinstance(call.args[0], int) else 1) for name, call in module.find_calls(("A",))]
    assert found == [("x", 1), ("x", 2), ("x", 3), ("x", 4), ("x", 5), ("y", 6)]


def test_no_latin_text_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"config\.py:2: not UTF-8"):
        read_module(source("config.py", b"a = 1\nb = '\xff'\n"))
