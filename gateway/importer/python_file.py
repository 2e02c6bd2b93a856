"""The names and values of a Python file, read from its syntax tree. Nothing is imported or executed.

``python/evaluator.py`` evaluates the file. An importer that needs a value that is not known refuses the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from gateway.core.errors import ConfigError
from gateway.importer.python.evaluator import Evaluator, Progress
from gateway.importer.python.values import CallExpression, Deleted, PythonExpression, Unsupported, parts
from gateway.importer.source import Source

RESOLVED = "mmengine's Config.fromfile(FILE).dump('resolved.json')"
"""The way to write a config with all its values, for messages."""
MAX_PARTS = 300_000
"""Maximum number of texts, numbers, lists and mappings in a value. A list counts each time that it occurs."""


class PythonFile:
    """The names and values of one file, and of the files imported by its ``read_base`` blocks.

    Raises ``ConfigError`` for a file that is not Python, is nested too deeply, or computes too much.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._progress = progress = Progress()
        evaluator = Evaluator(source, progress)
        self.names: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        """Name → line of the statement that gave the name its value."""
        self.calls = evaluator.calls
        """The calls that are whole statements."""
        self.methods = evaluator.methods
        """The method calls on results of calls."""
        if source.loaded is not None:
            self.names |= source.loaded
            self.lines |= dict.fromkeys(self.names, 0)
            return
        try:
            evaluator.run()
        except (RecursionError, MemoryError):
            raise source.refuse(0, "the Python code is nested too deeply; split its expressions") from None
        # code can write other names into locals() and globals(), without a statement that sets them
        self.names |= {name: value for name, value in evaluator.names.items() if isinstance(name, str)}
        self.lines |= {name: evaluator.lines.get(name, 0) for name in self.names}

    @property
    def notes(self) -> list[str]:
        """Notes about statements whose effect is not known. The last note counts those that are left out."""
        left_out = self._progress.left_out
        return [*self._progress.notes, *([f"{left_out} more notes of this kind"] if left_out else [])]

    def unread(self, ending: str) -> list[str]:
        """Return a line for each name with this ending whose value was not read."""
        found = [
            f"{name}: {value}"
            for name, value in self.names.items()
            if name.endswith(ending) and isinstance(value, Unsupported | CallExpression)
            and not isinstance(value, Deleted) and name not in self._progress.not_read
        ]  # fmt: skip
        bases = self._progress.not_read.items()
        return [*found, *[f"{name}: {reason}" for name, reason in bases if name.endswith((ending, "*"))]]

    def find_calls(self, classes: tuple[str, ...]) -> Iterator[tuple[str, CallExpression]]:
        """Yield (name, call) for each call of these classes.

        ``name``: the variable whose value contains the call; empty if no variable contains the call.
        """
        seen: set[int] = set()
        arguments = [("", argument) for method in self.methods for argument in method.args]
        for name, root in [*self.names.items(), *(("", call) for call in self.calls), *arguments]:
            for value in parts(root, seen):
                if isinstance(value, CallExpression) and value.last in classes:
                    yield name, value

    def check_unchanged(self, value: Any, what: str) -> None:
        """Raise ``ConfigError`` if a statement may have changed this value."""
        if (found := self._progress.changed.get(id(value))) is not None:
            raise self._refusal(found[1], what)

    def check_plain(self, value: Any, what: str) -> None:
        """Raise ``ConfigError`` if a value was not read completely, or if a statement may have changed the value."""
        for number, part in enumerate(parts(value, repeated=True)):
            if number > MAX_PARTS:
                raise self._source.refuse(0, f"{what} has more than {MAX_PARTS} parts; import a smaller config")
            self.check_unchanged(part, what)
            if isinstance(part, PythonExpression):
                raise self._refusal(part, what)

    def at(self, place: str) -> str:
        """Return a place such as ``models[0]`` with the line of its name, if the line is known."""
        line = self.lines[place.partition("[")[0]]
        return f"{place}, line {line}" if line else place

    def note(self, text: str) -> None:
        """Add a note about code whose effect is not known."""
        self._progress.note(text)

    def note_replaced(self, name: str) -> None:
        """Add a note if the file sets a name in several statements, because only its last value is read."""
        if self._source.loaded is not None:
            return
        statements = [one for one in ast.parse(self._source.text()).body if isinstance(one, ast.Assign)]
        lines = [one.lineno for one in statements for target in one.targets if ast.unparse(target) == name]
        if len(lines) > 1:
            earlier = ", ".join(map(str, lines[:-1]))
            self.note(
                f"{name} is set again in line {lines[-1]}, so its value in line {earlier} was not imported; to import "
                "it too, copy it to a file of its own, and import that with another --name"
            )

    def _refusal(self, found: PythonExpression, what: str) -> ConfigError:
        if found.key:
            return found.source.refuse(0, f"{what} contains {found}; write a plain value there", found.key)
        executed = "" if isinstance(found, Unsupported) else ", which is not executed"
        way = f"write the plain value there, or import the resolved config ({RESOLVED})"
        return found.source.refuse(found.line, f"{what} contains {found}{executed}; {way}")
