"""The modules that ``scripts/compiled.py`` compiles contain nothing that the compiler makes into something else."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS: dict[str, str] = runpy.run_path(str(ROOT / "scripts" / "compiled.py"))["MODULES"]
MODULES = [ROOT / "gateway" / folder / f"{name}.py" for folder, names in FOLDERS.items() for name in names.split()]
WAITS = (ast.Await, ast.AsyncWith, ast.AsyncFor, ast.Yield, ast.YieldFrom)
ENDS_AT_ONCE = {"asyncio.timeout", "asyncio.timeout_at"}
"""Asynchronous context managers that never wait when they are left."""


def waits_in_handlers(tree: ast.AST) -> Iterator[int]:
    """Yield the lines where a coroutine or generator may be suspended while it handles an exception.

    A compiled coroutine does not take the exception along when it is suspended: the next ``raise`` raises what another
    task handles, or None, which ends the process.
    """
    for node in ast.walk(tree):
        if isinstance(node, (ast.Try, ast.TryStar)):
            handlers = [*node.finalbody, *(line for handler in node.handlers for line in handler.body)]
            yield from (one.lineno for line in handlers for one in ast.walk(line) if isinstance(one, WAITS))
        elif isinstance(node, ast.AsyncWith):
            names = [ast.unparse(item.context_expr).partition("(")[0] for item in node.items]
            yield from [node.lineno] * (not ENDS_AT_ONCE.issuperset(names))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_compiled_module_never_waits_while_it_handles_an_exception(path: Path) -> None:
    assert not list(waits_in_handlers(ast.parse(path.read_text())))


@pytest.mark.parametrize(
    "source",
    [
        "async def f():\n try: g()\n except E:\n  await h()\n  raise",
        "async def f():\n try: g()\n finally:\n  await h()",
        "async def f():\n async with asyncio.timeout(1), g(): pass",
        "def f():\n try: g()\n except E:\n  yield 1",
    ],
)
def test_a_wait_in_a_handler_is_found(source: str) -> None:
    assert list(waits_in_handlers(ast.parse(source)))
