"""Plain values of a Python file are read, all else is refused with its line, and nothing is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.core.words import MAX_QUOTED, shown
from gateway.importer.python.values import CallExpression, NameReference, Unsupported
from gateway.importer.python_file import PythonFile
from tests.growth import assert_linear
from tests.importer.files import source


def read(text: str, **beside: str) -> PythonFile:
    return PythonFile(source("config.py", text, {f"{name.replace('__', '/')}.py": one for name, one in beside.items()}))


PLAIN = {
    "a text": "x = 'a'",
    "texts side by side": "x = 'a' 'b'\n",
    "a sum of texts": "y = 'b'\nx = 'a' + y + \"c\"",
    "the body of a class": "x = [1]\nclass A:\n    x.append(2)",
    "a name set in globals": "x = 1\nglobals()['x'] = 2\nlocals()[5] = 1",
    "a raw text": r"x = r'a\n'",
    "numbers": "x = [1, -2, 0.5, -0.5, 1e3]",
    "the three words": "x = (None, True, False)",
    "dict(...)": "x = dict(a=1, b=dict(c=2))",
    "a mapping": "x = {'a': 1, 2: 'c', **{'b': 2}}",
    "dict of a mapping": "base = dict(a=1)\nx = dict(base, b=2)",
    "dict of pairs": "x = dict([('a', 1), ['b', 2]], c=3)",
    "dict with **": "base = dict(a=1)\nx = dict(**base, b=2)",
    "a list with *": "a = [1]\nx = [*a, 2]",
    "a list that grows": "x = [1]\ny = x\ny += [2]",
    "a list that grows by a tuple": "x = [1]\ny = x\ny += (2,)",
    "a text that grows": "x = 'a'\ny = x\nx += 'b'",
    "a tuple that another name has too": "x = ('a',)\ny = x\ny += ('b',)",
    "a part of a tuple that another name has too": "x = (1, 2)[1:]\ny = x\ny += (4,)\nz = tuple([1])\nx += z\nz += x",
    "% of a pair": "x = ['%s %s' % one for one in {'a': 1}.items()]",
    "an entry": "a = dict(b=[1, 2])\nx = a['b'][1]",
    "an entry by a sum": "a = {'b_c': 2}\nk = 'b'\nx = a[k + '_c']",
    "slices": "a = [1, 2, 3, 4]\nx = [a[1:], a[:-1], a[::2], a[-1], 'abc'[1:]]",
    "a name twice": "x = 1\nx = 2",
    "two targets": "y = x = 2",
    "several names at once": "(a, (b, c)), x = (1, [2, 3]), 4",
    "an annotation": "x: int = 3",
    "an entry that is set": "x = dict(a=[1])\ny = x\ny['b'] = 2\ny['a'][0] += 1\ndel x['b']",
    "an empty list by its class": "x = list()\nx.append(1)\nx.extend((2, 3))\nx.insert(0, 4)\nz = x.pop()",
    "methods of a mapping": "x = dict(a=1)\nx.update({'b': 2}, c=3)\n"
                            "x.setdefault('d', []).append(x.get('e', 5))\nx.pop('a')",
    "append": "x = [1]\ny = x\ny.append(2)",
    "an f-string": "y = 'b'\nx = f'{{a}} {y} {1} {2.5} {None} {y!r}'",
    "an f-string with a format": "y = 1\nx = f'{y:03} {2.5:.2f} {y:>{3}}'",
    "format": "x = 'a {{b}} {c}{d!r:>5}'.format(c=1, d='e') + '{} {:.1f}'.format(1, 2) + '{1}{0}'.format(1, 2)",
    "%": "x = '%s %d %% %.2f' % ('a', 2, 0.5) + '%s' % 'b' + '%(a)s' % {'a': 1}",
    "a method": "x = 'a_b'.replace('_', ' ').title().split() + [' c '.strip(), ','.join(['d', 'e']), 'f'.upper()]",
    "a question to a text": "x = ['a_b'.startswith('a'), 'a_b'.endswith('c'), 'b' in 'abc', 'abc'.find('c')]",
    "a copy": "y = dict(a=1)\nx = y.copy()\ny.update(b=2)",
    "a deep copy": "from copy import deepcopy\ny = dict(a=[1])\nx = deepcopy(y)\ny['a'].append(2)",
    "a deep copy by the module": "import copy as c\ny = dict(a=[1])\nx = c.deepcopy(y)\ny['a'].append(2)",
    "a loop": "x = []\nfor a, b in [(1, 2), (3, 4)]:\n    x.append(b)",
    "a loop over keys": "y = dict(a=1, b=2)\nx = []\nfor k in list(y.keys()):\n    x.append(y[k])",
    "a loop over items": "y = dict(a=1, b=2)\nx = []\nfor k, v in y.items():\n    x += [k, v]",
    "a loop that ends early": "for y in (1, 2, 3):\n    if y == 1:\n        continue\n    x = y\n    break\n"
                              "else:\n    x = 4",
    "zip and enumerate": "x = [[a, b, n] for n, (a, b) in enumerate(zip('ab', range(1, 5)), 1)]",
    "letters": "x = [chr(ord('A') + i) for i in range(4)]",
    "numbers by functions": "x = [len('abc'), min(2, 1), max([1, 2]), abs(-1), round(2.5), int('3'), float(1), "
                            "sum([1, 2])]",
    "sums of lists": "x = sum(([1], [2, 3]), [])",
    "sorted and reversed": "x = sorted([3, 1, 2]) + list(reversed([1, 2])) + sorted({'b': 1, 'a': 2}, reverse=True)",
    "arithmetic": "x = [7 // 2, 7 % 3, 2 ** 10, 1 / 4, 3 * 'ab', [1] * 2, 5 - 7]",
    "a product": "from itertools import product\nx = [[a, b] for a, b in product('ab', [1, 2])]",
    "a set": "x = ['a' in {'a', 'b'}, 1 in set([2, 3])]",
    "the names of the file": "a_datasets = [1]\nb_datasets = [2]\n"
                             "x = sum((v for k, v in locals().items() if k.endswith('_datasets')), [])",
    "a name by its text": "y = []\nglobals()['y'].append(1)\nx = y",
    "a comprehension": "i = 7\nx = [[i for i in range(2)], i]",
    "a comprehension of a comprehension": "x = [a + b for a in 'ab' for b in 'cd' if a + b != 'bc']",
    "a comprehension with one name twice": "x = [1 for _, _ in [(1, 2)]]",
    "a loop over a list that grows": "x = [1]\nfor n in x:\n    if n != 3:\n        x.append(n + 1)",
    "a comprehension of pairs": "x = {k: f'{k}!' for k in ['a', 'b']}",
    "a condition": "y = 1\nif y == 1:\n    x = 2\nelse:\n    x = 3",
    "conditions": "y = None\nx = [y is None, not y, 1 < 2 <= 2, y or 3, 'a' and 4, 'b' not in dict(a=1), 1 != 2]",
    "a choice": "x = 2 if 'a' in ['b'] else 3",
    "a module that is run": "x = 1\nif __name__ == '__main__':\n    x = unknown()",
    "a function": "def f(a, b=2, *, c):\n    if a:\n        return [a, b, c]\n    return c\n"
                  "x = [f(1, c=3), f(0, b=4, c=5)]",
    "a function that changes its argument": "def f(one):\n    one['a'] = 2\nx = dict(a=1)\nf(x)",
    "a function of a function": "p = 'p'\ndef f(a):\n    x = 'inner'\n    def g(b):\n        return p + a + b\n"
                                "    return [g(c) for c in 'cd']\nx = f('a')",
    "a lambda": "f = lambda a: a + 1\nx = f(2)",
}  # fmt: skip


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
    file.check_plain(found, "x")


UNSUPPORTED = {
    "a comprehension over an unknown value": "x = [i for i in y]",
    "a comprehension with an unknown condition": "x = [i for i in range(3) if y]",
    "an if": "x = 1 if y else 2",
    "an f-string of an unknown value": "x = f'{y}'",
    "an f-string of a list": "x = f'{(1, 2)}'",
    "an f-string with a wide format": "x = f'{1:1000000000}'",
    "format with a wide format": "x = '{:1000000000}'.format(1)",
    "format with an attribute": "x = '{0.__class__}'.format(1)",
    "format with an entry": "x = '{a[b]}'.format(a=dict(b=1))",
    "% with a wide format": "x = '%1000000000d' % 1",
    "a calculation": "x = 2 ** 99999",
    "a large number": "x = 10 ** 14\nx = x * x",
    "a product": "x = 'a' * 1000000000",
    "a product of a list": "x = [1] * 1000000000",
    "nested products": "x = 'a'\n" + "x = x * 1000\n" * 40,
    "a division by zero": "x = 1 / 0",
    "bytes": "x = b'a'",
    "a key that is not a text": "x = {None: {'a': 1}}",
    "a ** of an unknown value": "x = dict(**y)",
    "a method that is not followed": "x = 'a'.encode()",
    "a method of a changed value": "y = dict(a=1)\ny.clear(z)\nx = y.copy()",
    "an entry of a changed value": "y = dict(a=1)\ny.update(z)\nx = y['a']",
    "a ** of a changed value": "y = dict(a=1)\ny.update(z)\nx = dict(**y)",
    "a deep copy of a changed value": "import copy\ny = dict(a=[1])\ny['a'].sort(z)\nx = copy.deepcopy(y)",
    "a sum of changed lists": "y = [1]\ny.sort(z)\nx = sum([y, y], [])",
    "a comparison with an unknown value": "x = 1 if y == 2 else 3",
    "% of a list": "x = 'Q %s' % ['x']",
    "a sum of a list and a tuple": "x = [1] + (2,)",
    "an entry of a tuple that is set": "x = (1, 2)\nx[0] = 2",
    "a number rounded to many places": "x = round(1, -999999999)",
    "a zip of many long lists": "x = zip(*[range(6000)] * 6000)",
    "a product with long entries": "import itertools\nx = itertools.product('abc', repeat=10)",
    "a long number": "x = 0x" + "f" * 100_000,
    "a mapping with unknown entries": "y = [1]\nx = {**z, 'q': y.pop()}",
    "the rest after unknown entries": "y = [1, 2]\nz = {**z, 'q': y.pop()}\nx = y[1]",
    "the rest after unknown arguments": "y = [1, 2]\nz = dict(**z, q=y.pop())\nx = y[1]",
    "set by a function inside an if": "x = 1\ndef f():\n    global x\n    x = 2\nif y:\n    f()",
    "a comparison of lists": "x = (1, 2) == [1, 2]",
    "an entry that is not there": "a = dict(b=1)\nx = a['c']",
    "set inside an if": "x = 1\nif y:\n    x = 2",
    "set inside a loop": "for x in y:\n    pass",
    "set inside an expression": "x = 1\ny = (x := 2)",
    "set inside a comprehension": "x = 1\ny = [(x := i) for i in range(2)]",
    "set inside a try": "x = 1\ntry:\n    x = 2\nexcept ValueError:\n    pass",
    "set inside a loop that may end early": "for n in (1, 2):\n    x = n\n    if y:\n        break",
    "set inside a loop that may go on": "for n in (1, 2):\n    if y:\n        continue\n    x = n",
    "imported inside an if": "x = 1\nif y:\n    from a import x",
    "an error": "x = 1\ntry:\n    pass\nexcept A as x:\n    pass",
    "matched": "x = 1\nmatch y:\n    case [x]: pass",
    "the rest of a match": "x = 1\nmatch y:\n    case [*x]: pass\n    case {**x}: pass",
    "read from a base inside an if": "x = 1\nif y:\n    with read_base():\n        from .a import x",
    "deleted": "x = 1\ndel x",
    "a function": "def x():\n    return 1",
    "a function with an unknown path": "def f():\n    if y:\n        return 1\n    return 2\nx = f()",
    "a function with global": "x = 1\ndef f():\n    global x\n    x = 2\nf()",
    "a generator": "def f():\n    yield 1\nx = list(f())",
    "a generator with a name": "y = (i for i in [1])\nx = [*y, *y]",
    "a decorated function": "@y\ndef f():\n    return 1\nx = f()",
    "a function that calls itself": "def f(a):\n    return f(a)\nx = f(1)",
    "a function of another module": "from there import deepcopy\nx = deepcopy([1])",
    "a sum of a text and a number": "x = 'a' + 1",
    "half of a character": r"x = 'a\ud800'",
    "a text that grows beyond all bounds": "x = 'aaaaaaaa'\n" + "x = x + x\n" * 40,
    "a replacement that grows beyond all bounds": f"y = '{'a' * 1000}'\nx = y.replace('a', y)",
    "a join that grows beyond all bounds": f"y = '{'a' * 1000}'\nx = y.join(y)",
    "a range beyond all bounds": "x = list(range(1000000000))",
    "a join of long texts": "y = ['a' * 100000] * 100000\nx = ''.join(y)",
    "a format that repeats a long text": "y = 'a' * 100000\nx = ('{y}' * 10000).format(y=y)",
    "% that repeats a long text": "y = {'a': 'a' * 100000}\nx = ('%(a)s' * 10000) % y",
    "a product of lists beyond all bounds": "import itertools\nx = itertools.product(range(1000), repeat=1000000)",
    "a list that grows beyond all bounds": "x = [1]\n" + "x = [*x, *x]\n" * 18,
    "a list that extends itself": "x = [1]\n" + "x.extend(x)\n" * 18,
}


@pytest.mark.parametrize("text", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_value_that_is_not_plain_is_refused_with_its_line(text: str) -> None:
    file = read(text)
    with pytest.raises(ConfigError, match=r"^config\.py:[1-9]\d*: x contains .*; write the plain value there, or "):
        file.check_plain(file.names["x"], "x")


CHANGED = {
    "by an unknown method": "x = [1]\ny = x\ny.sort(key=z)",
    "by an unknown key": "x = dict(a=1)\nx[z] = 'c'",
    "by a key of another name": "x = dict(a=1)\ny = x\ny[z] = 2",
    "by a key inside of a key": "x = dict(a=[dict(b=1)])\ny = x['a'][0]\ny[z] = 2",
    "by a loop": "x = dict(a=1)\nfor k in z:\n    x[k] = 2",
    "by a method": "x = dict(a=1)\nx.update(z)",
    "by a method of another name": "x = dict(a=1)\ny = x\ny.popitem()",
    "by an if": "x = []\nif z:\n    x.append(1)",
    "by a method whose result is kept": "x = dict(a=1)\nold = x.popitem()",
    "by a method inside of a call": "x = dict(a=1)\nprint(x.update(z))",
    "by a method inside of a value": "x = dict(a=1)\ny = [dict(b=x.update(z))]",
    "by a method of what it holds": "x = dict(a=[1])\nx['a'].sort(key=z)",
    "by a method of what another value holds too": "z = [1]\nx = dict(a=z)\ny = dict(b=z)\ny['b'].sort(key=k)",
    "by a method of what an unknown key holds": "x = dict(a=[1])\nx[k].insert(0, 2)",
    "by a comprehension": "x = dict(a=1)\ny = [one.update(z) for one in [x]]",
    "by a method on one of two": "x = dict(a=1)\n(x if y else z).update(a=2)",
    "by |=": "x = dict(a=1)\ny = x\ny |= z",
    "by |= inside an if": "x = dict(a=1)\ny = x\nif z:\n    y |= {'a': 2}",
    "by an unknown value": "x = [1]\ny = x\ny += f()",
    "by a function of the file": "def f(one):\n    one[z] = 2\nx = dict(a=1)\nf(x)",
    "by a function of the file with an unknown path": (
        "def f(one):\n    if z:\n        return\n    one['a'] = 2\nx = dict(a=1)\nf(x)"
    ),
    "by a loop with an unknown end": "x = []\nfor n in range(3):\n    if z:\n        break\n    x.append(n)",
    "of a list in a loop over an unknown order": "x = dict(a=1)\nfor one in sorted([x], key=y): one['a'] = 2",
    "of a list in a loop inside an if": "x = dict(a=1)\ny = [[x]]\nif z:\n    for one in y:\n        one[0]['a'] = 2",
    "by a function inside an if": "x = [1]\ndef f():\n    x.append(2)\nif y:\n    f()",
    "by a function in a list inside an if": "x = [1]\ndef f():\n    x.append(2)\ng = [lambda: f()]\nif y:\n    g[0]()",
    "by a function inside a try": "x = [1]\ndef f():\n    x.append(2)\ntry:\n    f()\nexcept A:\n    pass",
    "by a function after an unknown value": "x = [1]\ndef f():\n    x.append(2)\ny and f()",
    "by a function inside a while": "x = [1]\ndef f():\n    x.append(2)\nwhile y:\n    f()",
    "by a function with any number of arguments": "x = [1]\ndef f(*a):\n    x.extend(a)\nf(2)",
    "by a function with any names of arguments": "x = [1]\ndef f(a, **k):\n    a.append(k)\nf(x, b=2)",
    "by a function that calls itself often": (
        "x = [1]\ndef f(n):\n    if n:\n        f(n - 1)\n    else:\n        x.append(2)\nf(30)"
    ),
    "by a function of another module": "from helpers import f\nx = [1]\nf(x)",
    "by a function that gets a copy of a list": "from helpers import f\nx = dict(a=1)\nf([x][:])",
    "by a function of a class": "x = dict(a=1)\ndict.update(x, b=2)",
    "by a function of another module with an entry": "import operator\nx = dict(a=1)\noperator.setitem([x][0], 'b', 2)",
    "by a map": "x = dict(a=1)\nlist(map(lambda d: d.update(a=2), [x]))",
    "by a map whose result is kept": "x = dict(a=1)\n_ = list(map(lambda d: d.update(a=2), [x]))",
    "by a shuffle": "import random\nx = [1, 2]\nrandom.shuffle(x)",
    "by exec": "x = [1]\nexec('x.clear()')",
    "by the body of a class": "x = [1]\nclass A:\n    x.extend(y)",
    "by the constructor of a class": "x = [1]\nclass A:\n    def __init__(self, a):\n        a.append(2)\ny = A(x)",
    "by a constructor without arguments": "x = [1]\nclass A:\n    def __init__(self):\n        x.append(2)\nA()",
    "by a name of locals": "x = dict(a=1)\nlocals()[z].update(a=2)\nx.update(z)",
}  # fmt: skip


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


BOMBS: dict[str, tuple[str, dict[str, str]]] = {
    "loops in loops": (
        "".join([f"{' ' * depth}for a{depth} in range(1000):\n" for depth in range(3)]) + "   x = 1", {},
    ),
    "many star imports of many names": (
        "with read_base():\n" + "    from .base import *\n" * 20_000,
        {"base": "".join([f"n{i} = 1\n" for i in range(20_000)])},
    ),
    "many imports of files that are missing": ("with read_base():\n" + "    from .base import *\n" * 20_000, {}),
    "bases of bases": (
        "with read_base():\n    from .b0 import *\n",
        {f"{a}{n}": f"with read_base():\n    from .b{n + 1} import *\n    from .c{n + 1} import *\n"
         for n in range(40) for a in "bc"},
    ),
    "nested multiplication": ("x = [1] * 100000\nfor a in x:\n    y = [x * 2 for b in x]", {}),
    "long texts": ("x = 'a' * 200000\ny = [x.replace('a', 'b') for a in range(100000)]", {}),
    "functions of functions": (
        "def f0():\n    return 1\n" + "".join([f"def f{n + 1}():\n    return [f{n}(), f{n}()]\n" for n in range(19)])
        + "x = [f19() for a in range(1000)]", {},
    ),
    "copies of copies": (
        "import copy\nx = [1]\nfor a in range(1000):\n    x = [x, copy.deepcopy(x)]\n", {},
    ),
    "long functions in a loop": ("for a in range(100000):\n    def f():\n" + "        y = 1\n" * 3000, {}),
    "unknown values in a loop": (f"for a in range(1000):\n    x = [{'y[z], ' * 10_000}]", {}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "beside"), BOMBS.values(), ids=BOMBS)
def test_a_file_that_computes_too_much_is_refused(text: str, beside: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="the code needs too many steps"):
        read(text, **beside)


def test_a_class_that_gets_a_value_does_not_change_it() -> None:
    file = read("from a import B\nx = ['a']\nprint(x)\nB(x)\ny = f(x)")
    file.check_plain(file.names["x"], "x")


def test_only_the_first_notes_are_kept() -> None:
    base = "c = F()\n" + "c.f()\n" * 100
    file = read("with read_base():\n    from .base import c\n", base=base)
    assert len(file.notes) == 21
    assert file.notes[-1] == "80 more notes of this kind"


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


def test_each_file_has_values_of_its_own_from_a_base() -> None:
    text = "with read_base():\n    from .base import a\n    from .other import a as b\na.append(2)"
    names = read(text, base="a = [1]", other="with read_base():\n    from .base import a\n").names
    assert (names["a"], names["b"]) == ([1, 2], [1])


def test_a_problem_in_a_base_names_the_base_and_its_line() -> None:
    file = read("with read_base():\n    from .base import a\n", base="\na = dict(b=open('c').read())")
    with pytest.raises(ConfigError, match=r"^base\.py:2: a contains open\(…\)|^base\.py:2: a contains an expression"):
        file.check_plain(file.names["a"], "a")


def test_a_base_that_a_base_does_not_find_is_listed_with_both_places() -> None:
    file = read(
        "with read_base():\n    from .sub.base import a", sub__base="\nwith read_base():\n    from .gone import a"
    )
    way = "put gone.py there (a link out of the folder is not read), or correct the name"
    reason = f".gone was not found beside sub/base.py; {way}"
    assert file.unread("a") == [f"a: sub/base.py, line 3: {reason}"]


@pytest.mark.parametrize(("names", "name"), [("a_datasets as b_datasets", "b_datasets"), ("*", "*")])
def test_a_base_inside_an_unknown_statement_is_listed(names: str, name: str) -> None:
    file = read(f"if y:\n    with read_base():\n        from .base import {names}", base="a_datasets = []")
    assert file.unread("_datasets") == [f"{name}: line 3: it is not known whether .base is read"]


def test_a_name_that_is_written_into_globals_has_no_line() -> None:
    file = read("globals()['x'] = 1\nlocals()[5] = 1")
    assert (file.names, file.lines) == ({"x": 1}, {"x": 0})


def test_a_base_that_reads_itself_ends() -> None:
    again = "a = 1\nwith read_base():\n    from .base import a as b\n"
    assert read("with read_base():\n    from .base import a\nx = a", base=again).names["x"] == 1


@pytest.mark.parametrize("line", ["from ..up import a", "from .gone import a", "from opencompass.x import a"])
def test_a_base_that_is_not_beside_is_noted_and_not_used(line: str) -> None:
    file = read(f"with read_base():\n    {line}\nx = a", up="a = 1")
    assert isinstance(file.names["x"], Unsupported)
    assert file.notes[0].startswith("line 2: ")
    way = "correct the name" if " .gone " in line else "name the folder of its package with --root"
    assert file.notes[0].endswith(f" {way}, so a was not read")
    assert len(file.unread("a")) == 1


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


@pytest.mark.parametrize("text", ["x = [1]\n" + "x = [x, x, x, x]\n" * 30, "x = []\nx.append(x)"])
def test_lists_that_hold_each_other_many_times_are_refused_and_shown_in_short(text: str) -> None:
    file = read(text)
    assert len(shown(file.names["x"])) == MAX_QUOTED + 1
    with pytest.raises(ConfigError, match="x has more than 300000 parts; import a smaller config"):
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
