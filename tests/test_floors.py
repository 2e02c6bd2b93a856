"""The layout: imports point downward, as the picture in docs/architecture.md shows, and class names are unique."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PICTURE = re.compile(r"^ *│ *(\d) +[a-z ]+│ *(.*?) *│", re.MULTILINE)
"""A row of the picture: the number of a floor, and its packages."""

FLOORS = {
    int(floor): [step.replace("/", ".").split(" · ") for step in packages.split(" < ")]
    for floor, packages in PICTURE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
}
"""Floor → its steps, from left to right. The packages of one step do not import each other."""

LAZY: dict[str, tuple[str, ...]] = {
    # library: the only places that import it
    "litellm": ("backend/litellm/",),
    "jinja2": ("workshop/parity/transformers_reference.py", "viewer/templating.py"),
    "numpy": ("backend/embedded/llama.py", "backend/embedded/model_folder.py", "backend/embedded/sampling.py"),
    "transformers": ("workshop/parity/transformers_reference.py",),
    "minijinja": ("workshop/parity/engines.py",),
    "ggufdoctor": ("workshop/parity/engines.py",),
    "tokenizers": ("backend/embedded/",),
    "ray": ("evaluate/running/ray_data.py",),
    "starlette": ("edge/asgi.py", "server/application.py"),
    "prometheus_client": ("telemetry/metrics.py", "telemetry/merge.py"),
    "yaml": ("backend/scripted.py", "workshop/importer/yaml_writer.py"),
    "pydantic": ("wire/", "config/"),
    "jsonschema": ("stream/json_schema/check_job.py",),
    "referencing": ("stream/json_schema/check_job.py",),
    "regex": ("wire/redaction.py",),
    "redis": ("storage/redis_server.py",),
    "mmengine": ("workshop/importer/environment/program.py",),
}


TOOLS = {name for step in FLOORS[4] for name in step}
"""The packages that no module which serves a call imports."""

ROW = re.compile(r"(gateway|metatemplate)(\.\w+)+:\w+")
"""``module:attribute``, which is imported while a configuration that names it is built."""

PAGES = "gateway.viewer.viewer:Viewer"
"""The one row that names a tool: the server makes the pages, before it accepts connections (``server/runtime.py``)."""

LONGEST_FUNCTION = 50
"""The maximum number of lines of a function, with its docstring."""


def place(module: str) -> tuple[tuple[int, int], str]:
    """((floor, step), package) of a module; ``gateway`` itself is above all floors."""
    inner = module.removeprefix("gateway").removeprefix(".")
    for floor, steps in FLOORS.items():
        for step, names in enumerate(steps):
            for name in names:
                if inner == name or inner.startswith(f"{name}."):
                    return (floor, step), name
    assert inner in ("", "__main__", "policy"), f"{module} is on no floor"
    return (0 if inner == "policy" else len(FLOORS), 0), inner


@dataclass(frozen=True)
class Source:
    """What the tests need of a file. Its syntax tree is not kept: the collector would visit all the nodes."""

    imports: frozenset[str]
    """Every module that the file imports, also inside functions."""
    plain: frozenset[str]
    """The modules of every ``import module`` and of every row ``module:attribute``."""
    names: tuple[tuple[str, frozenset[str]], ...]
    """(module, its names) of every ``from module import …``."""
    classes: tuple[str, ...]
    constants: frozenset[str]
    """The names that are assigned at the top of the file."""
    long: tuple[str, ...]
    """The functions of more than 50 lines."""
    docstring: str


@cache
def source(path: Path) -> Source:
    """Parse a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    names = tuple(
        (node.module, frozenset(alias.name for alias in node.names))
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
    )
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    plain |= {text.partition(":")[0] for text in texts if ROW.fullmatch(text) and text != PAGES}
    return Source(
        imports=frozenset(plain | {module for module, _ in names}),
        plain=frozenset(plain),
        names=names,
        classes=tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        constants=frozenset(
            name.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for name in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(name, ast.Name)
        ),
        long=tuple(
            node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
        ),
        docstring=ast.get_docstring(tree) or "",
    )


def files(*packages: str) -> list[Path]:
    """The files of these packages; without names: of all packages."""
    return sorted([path for name in packages or ("gateway", "metatemplate") for path in (ROOT / name).rglob("*.py")])


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {module_name(path): path for path in files()}
"""Module → its file."""


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downward(path: Path) -> None:
    at, name = place(module_name(path))
    for imported in imported_modules(path, MODULES):
        target_at, target = place(imported)
        allowed = target_at < at or target == name
        assert allowed, f"{path.relative_to(ROOT)} (floor, step {at}) imports {imported} ({target_at})"


@pytest.mark.parametrize("library", LAZY)
def test_a_library_is_imported_in_one_place(library: str) -> None:
    for path in files("gateway"):
        if any(imported.split(".")[0] == library for imported in source(path).imports):
            inside = str(path.relative_to(ROOT / "gateway"))
            assert inside.startswith(LAZY[library]), f"{inside} imports {library}"


def test_metatemplate_imports_nothing_of_the_gateway() -> None:
    import sys

    allowed = {
        "metatemplate",
        "pydantic",
        "pydantic_core",
        "jinja2",
        "yaml",
        "orjson",
        "tokenizers",
        "typing_extensions",
    }
    for path in files("metatemplate"):
        foreign = {one.split(".")[0] for one in source(path).imports} - allowed - sys.stdlib_module_names
        assert foreign == set(), f"{path.relative_to(ROOT)} imports {foreign}"


def test_core_imports_only_the_standard_library() -> None:
    import sys

    for path in (ROOT / "gateway" / "core").rglob("*.py"):
        for imported in source(path).imports:
            top = imported.split(".")[0]
            assert top in ("gateway", "metatemplate") or top in sys.stdlib_module_names, (
                f"{path.name} imports {imported}"
            )


def test_the_run_without_fast_paths_tests_each_package_that_has_one() -> None:
    [listed] = re.findall(r"^REACHES_FAST_PATHS := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    switched = [path for path in files() if any("fast_paths" in names for _, names in source(path).names)]
    packages = {path.relative_to(ROOT).as_posix().removeprefix("gateway/").split("/")[0] for path in switched}
    assert packages
    assert packages <= set(listed.split())


def test_the_modules_have_no_import_cycle() -> None:
    """Imports inside functions and under ``TYPE_CHECKING`` are included."""
    graph = {name: imported_modules(path, MODULES) - {name} for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " → ".join(error.args[1]))


def imported_modules(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules that a file imports, without ``gateway`` itself, which imports nothing before it is used.

    ``from package import module`` means the module.
    """
    read = source(path)
    found = set(read.plain)
    for module, names in read.names:
        found |= ({f"{module}.{name}" for name in names} & modules.keys()) or {module}
    return (found & modules.keys()) - {"gateway"}


def reached(entry: str, modules: Mapping[str, Path]) -> set[str]:
    """The modules that are imported with ``entry``. Imports inside functions are included."""
    found, waiting = set[str](), [entry]
    while waiting:
        name = waiting.pop()
        found.add(name)
        packages = {name.rsplit(".", depth)[0] for depth in range(1, name.count("."))}
        waiting += (imported_modules(modules[name], modules) | packages) - found
    return found


@pytest.mark.parametrize("entry", ["gateway.server.lifecycle", "gateway.asgi"])
def test_what_serves_a_call_imports_no_tool(entry: str) -> None:
    """The pages (``PAGES``) are left out."""
    found = reached(entry, MODULES)
    assert len(found) > 100
    assert {name for name in found if place(name)[1] in TOOLS} == set()


@pytest.mark.parametrize(
    "wrong", ["    from gateway import {}", "    import gateway.{}", "    row = 'gateway.{}:Name'"]
)
@pytest.mark.parametrize("tool", ["evaluate", "workshop", "viewer", "cli"])
def test_a_tool_that_a_backend_imports_in_a_function_is_found(tool: str, wrong: str, tmp_path: Path) -> None:
    assert tool in TOOLS
    backend = tmp_path / "backend.py"
    backend.write_text("def open():\n" + wrong.format(tool), encoding="utf-8")
    assert f"gateway.{tool}" in reached("gateway.backend.wrong", {**MODULES, "gateway.backend.wrong": backend})


def test_a_docstring_that_lists_a_folder_lists_all_of_it() -> None:
    for path in files():
        if path.name != "__init__.py":
            continue
        entries = {one.stem for one in path.parent.glob("*.py")} - {"__init__"}
        entries |= {one.parent.name for one in path.parent.glob("*/__init__.py")}
        listed = entries & set(re.findall(r"\w+", source(path).docstring))
        assert not listed or listed == entries, f"{path.relative_to(ROOT)} does not list {sorted(entries - listed)}"


def test_no_two_classes_or_type_aliases_share_a_name() -> None:
    aliases = [name for path in files() for name in source(path).constants if re.match("[A-Z][a-z]", name)]
    classes = [name for path in files() for name in source(path).classes]
    assert sorted(name for name, count in Counter(classes + aliases).items() if count > 1) == []


def test_no_two_constants_that_other_modules_import_share_a_name() -> None:
    imported = {(module, name) for path in files() for module, names in source(path).names for name in names}
    shared = [name for module, name in imported if module in MODULES and name in source(MODULES[module]).constants]
    assert sorted(name for name, count in Counter(shared).items() if count > 1) == []


def test_no_function_has_more_than_fifty_lines() -> None:
    long = {str(path.relative_to(ROOT)): source(path).long for path in files() if source(path).long}
    assert long == {}


def test_the_picture_shows_each_package_once_on_five_floors() -> None:
    shown = sorted(name for steps in FLOORS.values() for step in steps for name in step)
    folders = {module_name(path) for path in (ROOT / "gateway").glob("*/__init__.py")} - {"gateway.policy"}
    rules = {module_name(path) for path in (ROOT / "gateway" / "policy").glob("*/__init__.py")}
    programs = {module_name(path) for path in (ROOT / "gateway").glob("[!_]*.py")}
    assert shown == sorted({"metatemplate"} | {name.removeprefix("gateway.") for name in folders | rules | programs})
    assert set(FLOORS) == {0, 1, 2, 3, 4}


def test_the_code_names_no_model() -> None:
    # "alpaca" is a model family, and also LazyLLM's name for a prompt format; "qwen3" is also an architecture.
    no_families = {"api", "api-system", "base", "sft-demo", "alpaca", "qwen3"}
    families = {path.stem for path in (ROOT / "meta_templates").glob("*.yaml")} - no_families
    words = re.compile(r"\b(" + "|".join(re.escape(name) for name in sorted(families)) + r")\b", re.IGNORECASE)
    for path in files():
        code = path.read_text(encoding="utf-8")
        assert not words.search(code), f"{path.relative_to(ROOT)} names {words.search(code)}"


def test_the_formatter_is_off_for_at_most_forty_tables() -> None:
    folders = [ROOT / name for name in ("gateway", "metatemplate", "tests", "bench", "scripts")]
    sources = [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and "__" not in path.parent.name
    ]
    texts = [path.read_bytes() for path in sources if path.suffix in ("", ".py")]
    assert sum(len(re.findall(rb"# fmt: (?:skip|off)\b", text)) for text in texts) <= 40
