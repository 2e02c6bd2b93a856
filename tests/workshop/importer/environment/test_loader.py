"""A config is loaded by the Python of another environment, and whatever it does ends within the limits."""

from __future__ import annotations

import ast
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.workshop.importer.dataset import read_dataset
from gateway.workshop.importer.environment.loader import PROGRAM, ConfigNotLoaded, load_config, run_program
from gateway.workshop.importer.kinds import kind_of
from gateway.workshop.importer.opencompass import read_opencompass
from gateway.workshop.importer.python.values import PythonExpression
from gateway.workshop.importer.source import Source
from tests.support.serving import write_files
from tests.workshop.importer.environment.stand_in import stand_in, wrapper

REAL = Path(__file__).parents[4] / ".venv-mmengine"


@pytest.fixture(params=["mmengine", "a stand-in"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The Python of an environment with mmengine, or with a package that stands in for it."""
    if request.param == "mmengine":
        if not (REAL / ".ready").exists():
            pytest.skip("mmengine is not installed; run tests/workshop/importer/environment/install")
        return REAL / "bin/python"
    return stand_in(tmp_path)


def config(folder: Path, text: str) -> Source:
    path = folder / "config.py"
    path.write_text(text, encoding="utf-8")
    return Source("config.py", text.encode(), lambda name: None, str(path))


def loaded(python: Path, folder: Path, text: str, seconds: float = 60.0) -> Source:
    source = config(folder, text)
    names = load_config(python, source, seconds=seconds)
    return Source(source.name, source.data, source.read_file, source.path, loaded=names)


VALUES: dict[str, tuple[str, Any]] = {
    "texts": (r"x = ['a', '\u4f60\u597d', '', 'a\n\"\'\\']", ["a", "你好", "", "a\n\"'\\"]),
    "numbers": ("x = [1, -2, 0.5, 1e300, True, None]", [1, -2, 0.5, 1e300, True, None]),
    "mappings": ("x = {'keys': ['a'], 'b': {0: 'zero', 'name': 'n'}}", {"keys": ["a"], "b": {0: "zero", "name": "n"}}),
    "tuples": ("x = (1, [2, (3,)])", [1, [2, [3]]]),
    "computed values": ("x = [f'{n}' for n in range(3)]\nfor n in 'ab': x.append(n)", ["0", "1", "2", "a", "b"]),
}


@pytest.mark.parametrize(("text", "value"), VALUES.values(), ids=VALUES)
def test_the_values_of_a_config_are_those_of_python(python: Path, tmp_path: Path, text: str, value: Any) -> None:
    found = loaded(python, tmp_path, text).loaded
    assert found is not None
    assert found["x"] == value


OBJECTS = {
    "a class": ("x = dict(type=__import__('decimal').Decimal)", "x.type", "decimal.Decimal"),
    "a function": ("x = [dict(f=len)]", "x[0].f", "builtins.len"),
    "a set": ("x = {1}", "x", "an object of the class builtins.set"),
    "bytes": ("x = dict(a=b'a')", "x.a", "an object of the class builtins.bytes"),
    "an array": ("x = [0, __import__('array').array('i')]", "x[1]", "an object of the class array.array"),
    "a large number": ("x = 10 ** 5000", "x", "an object of the class builtins.int"),
    "half of a character": (r"x = dict(a='\ud800')", "x.a", "an incomplete character"),
    "a key that is half of a character": (r"x = {'\ud800': 1}", "x", "a key with an incomplete character"),
    "a key that is a tuple": ("x = {(1, 2): 3}", "x", "an object of the class dict with keys that are not texts"),
}


@pytest.mark.parametrize(("text", "key", "described"), OBJECTS.values(), ids=OBJECTS)
def test_any_other_object_is_described_with_its_key(
    python: Path, tmp_path: Path, text: str, key: str, described: str
) -> None:
    found: Any = loaded(python, tmp_path, text).loaded
    for part in key.replace("[", ".").replace("]", "").split("."):
        found = found[int(part) if part.isdigit() else part]
    assert isinstance(found, PythonExpression)
    assert (found.key, found.line, repr(found)) == (key, 0, described)


HOSTILE = {
    "a loop without end": ("while True: pass", 3.0, "it took longer than 3 s and was stopped"),
    "a sleep": ("__import__('time').sleep(1000)", 3.0, "it took longer than 3 s and was stopped"),
    "a child that stays": (
        "if __import__('os').fork() >= 0: __import__('time').sleep(1000)",
        3.0,
        "3 s and was",
    ),
    "memory without end": ("x = []\nwhile True: x.append(bytes(2 ** 26))", 60.0, "it needs too much memory"),
    "one large value": ("x = 'a' * 2 ** 40", 60.0, "it needs too much memory"),
    "a value in itself": ("x = []\nx.append(x)", 60.0, "or contain themselves"),
    "deep code": ("x = " + "(" * 1000 + ")" * 1000, 60.0, "too many nested parentheses"),
    "sys.exit": ("__import__('sys').exit(3)", 60.0, "SystemExit: 3"),
    "os._exit": ("__import__('os')._exit(0)", 60.0, "it ended with exit code 0 without the values"),
    "a crash": (
        "os = __import__('os')\nos.kill(os.getpid(), 11)",
        60.0,
        "it was ended by signal 11 without the values",
    ),
    "an error": ("x = 1\ny = z", 60.0, "NameError: name 'z' is not defined"),
    "an error with a long text": ("raise ValueError('a' * 10_000)", 60.0, "ValueError: aaa"),
}


@pytest.mark.parametrize(("text", "seconds", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_config_ends_with_the_reason(
    python: Path, tmp_path: Path, text: str, seconds: float, reason: str
) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        loaded(python, tmp_path, text, seconds)
    assert str(caught.value).startswith(f"config.py: {python} did not load the config: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 900
    assert time.monotonic() - began < 60


def test_a_child_of_a_config_is_ended_too(python: Path, tmp_path: Path) -> None:
    text = (
        "child = __import__('os').fork()\nif child == 0:\n    __import__('time').sleep(1000)\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child))"
    )
    loaded(python, tmp_path, text)
    child = int((tmp_path / "child").read_text())
    for _ in range(300):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    os.kill(child, 0)
    pytest.fail("the child still runs")


def test_what_a_config_prints_is_thrown_away(python: Path, tmp_path: Path) -> None:
    text = "for n in range(200): print('a' * 10 ** 7)\n__import__('os').write(1, b'{}')\nx = 'b'"
    assert loaded(python, tmp_path, text).loaded is not None


PYTHONS = {
    "a file that is missing": ("", "it cannot be started (No such file or directory)"),
    "a program that is not Python": ("exit 0", "it ended with exit code 0 without the values; it must be a Python"),
    "a program that writes something else": ("echo hello", "without the values; it must be a Python 3.8 or later"),
    "a Python without mmengine": (
        f"exec '{sys.executable}' -I \"$@\"",
        "it cannot import mmengine (No module named 'mmengine'); install that with its pip install mmengine",
    ),
}


@pytest.mark.parametrize(("line", "reason"), PYTHONS.values(), ids=PYTHONS)
def test_a_python_that_cannot_load_configs_is_named(tmp_path: Path, line: str, reason: str) -> None:
    python = wrapper(tmp_path, line) if line else tmp_path / "gone"
    with pytest.raises(ConfigError) as caught:
        load_config(python, config(tmp_path, "x = 1"))
    assert str(caught.value).startswith(f"config.py: {python} did not load the config: ")
    assert reason in str(caught.value)


def test_several_configs_are_loaded_by_one_process(python: Path, tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1", "b.py": "x = y", "c.py": "x = 2"})
    rows = run_program(python, [tmp_path / "a.py", tmp_path / "b.py", tmp_path / "c.py"], 60.0)
    assert ["names" in row for row in rows] == [True, False, True]
    with pytest.raises(ConfigNotLoaded, match="took longer than"):
        run_program(python, [tmp_path / "a.py"], 0.001)


def test_the_program_is_valid_in_python_3_8() -> None:
    ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 8))


DATASETS = """
hints = {'one': open(HINT).read(), 'two': 'Hint'}
sums_datasets = []
for name in hints:
    sums_datasets.append(dict(abbr=f'sums-{name}', type=dict, reader_cfg=dict(input_columns=['q'], output_column='a'),
        infer_cfg=dict(prompt_template=dict(type='x.PromptTemplate', template={0: hints[name] + ' {q}', 1: '{q}'}),
                       inferencer=dict(type=len))))
"""


def test_the_datasets_of_a_loaded_config_become_prompts(python: Path, tmp_path: Path) -> None:
    (tmp_path / "hint.txt").write_text("A hint:")
    source = loaded(python, tmp_path, DATASETS.replace("HINT", repr(str(tmp_path / "hint.txt"))))
    assert kind_of(source) == "dataset"
    one, two = read_dataset(source)
    assert (one.name, two.name, one.not_read) == ("sums-one", "sums-two", ())
    assert one.keys["prompt_template"]["template"] == {"0": "A hint: {q}", "1": "{q}"}
    assert one.origin == "the dataset config config.py, sums_datasets[0]"
    assert "type = builtins.dict: clients read the rows, and send the columns of a row as variables" in one.notes


def test_a_dataset_of_two_lists_is_imported_once(python: Path, tmp_path: Path) -> None:
    entry = "dict(abbr={}, infer_cfg=dict(prompt_template=dict(template='{{q}}')))"
    text = f"a_datasets = [{entry.format(repr('a'))}]\nb_datasets = [{entry.format(repr('b'))}]\n"
    source = loaded(python, tmp_path, f"{text}all_datasets = [one for one in a_datasets + b_datasets]")
    assert [draft.name for draft in read_dataset(source)] == ["a", "b"]


def test_the_models_of_a_loaded_config_become_templates(python: Path, tmp_path: Path) -> None:
    role = "dict(role='HUMAN', begin='H%d:' % n), dict(role='BOT', begin='B:', generate=True)"
    source = loaded(
        python, tmp_path, f"models = [dict(abbr=f'm{{n}}', meta_template=dict(round=[{role}])) for n in (1, 2)]"
    )
    assert kind_of(source) == "opencompass"
    one, two = read_opencompass(source)
    assert (one.name, two.keys["round"][0]["begin"]) == ("m1", "H2:")
    assert two.origin == "the OpenCompass config config.py, models[1]"


NOT_PLAIN = {
    "a template": (
        "q_infer_cfg = dict(prompt_template=dict(template=len))",
        "config.py q_infer_cfg.prompt_template.template: template contains builtins.len; write a plain value there",
    ),
    "a role of a template": (
        "q_datasets = [dict(infer_cfg=dict(prompt_template=dict(template=dict(round=[dict(role='A', prompt={1})]))))]",
        "config.py q_datasets[0].infer_cfg.prompt_template.template.round[0].prompt: template contains an object of "
        "the class builtins.set; write a plain value there",
    ),
}


@pytest.mark.parametrize(("text", "problem"), NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_a_prompt_with_another_object_is_refused_with_its_key(
    python: Path, tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_dataset(loaded(python, tmp_path, text))
    assert str(caught.value) == problem


def test_names_of_packages_are_kept_without_an_import(tmp_path: Path) -> None:
    """Only mmengine has them: the packages need not be installed."""
    if not (REAL / ".ready").exists():
        pytest.skip("mmengine is not installed; run tests/workshop/importer/environment/install")
    text = (
        "from nowhere.templates import PromptTemplate, TEXT\nimport nowhere.other as o\n"
        "x = [PromptTemplate, o.A.b, dict(template=TEXT)]\nnowhere_datasets = []"
    )
    found = loaded(REAL / "bin/python", tmp_path, text).loaded
    assert found is not None
    assert list(map(repr, found["x"][:2])) == ["nowhere.templates.PromptTemplate", "nowhere.other.A.b"]
    assert found["x"][2]["template"].key == "x[2].template"
    assert found.keys() == {"x", "nowhere_datasets"}
