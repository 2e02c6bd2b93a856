"""The names and values of a Python file: read from its syntax tree, or loaded by the Python of another environment.

``python/reader.py`` reads the file. An importer that needs a value that is not known refuses the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.workshop.importer.python.reader import Progress, Reader
from gateway.workshop.importer.python.values import CallExpression, PythonExpression, Unsupported, parts
from gateway.workshop.importer.source import Source

MAX_PARTS = 300_000
"""Maximum number of texts, numbers, lists and mappings in a value. A list counts each time that it occurs."""


class PythonFile:
    """The names and values of one file, and of the files imported by its ``read_base`` blocks.

    Raises ``ConfigError`` for a file that is not Python, has code that is not read, or is nested too deeply.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._progress = Progress()
        self.notes = self._progress.notes
        """Notes about calls whose effect is not known."""
        self._reader = reader = Reader(source, self._progress)
        self.names: dict[str, Any] = reader.names
        self.methods = reader.methods
        """The method calls on results of calls."""
        try:
            if source.loaded is None:
                reader.run()
            else:
                self.names |= source.loaded
        except (RecursionError, MemoryError):
            raise source.refuse(0, "the Python code is nested too deeply; split its expressions") from None

    def line(self, name: str) -> int:
        """Return the line of the statement that gave a name its value; 0 for values that were loaded."""
        return self._reader.lines.get(name, [0])[-1]

    def unread(self, ending: str) -> list[str]:
        """Return a line for each name with this ending whose value was not read."""
        return [
            f"{name}: {value}"
            for name, value in self.names.items()
            if name.endswith(ending) and isinstance(value, Unsupported | CallExpression)
        ]

    def find_calls(self, classes: tuple[str, ...]) -> Iterator[tuple[str, CallExpression]]:
        """Yield (name, call) for each call of these classes.

        ``name``: the variable whose value contains the call; empty if no variable contains the call.
        """
        seen: set[int] = set()
        for name, root in [*self.names.items(), *(("", call) for call in self._reader.calls)]:
            for value in parts(root, seen):
                if isinstance(value, CallExpression) and value.last in classes:
                    yield name, value

    def note_replaced(self, name: str) -> None:
        """Add a note if the file sets a name in several statements, because only its last value is read."""
        *earlier, last = self._reader.lines.get(name, [0])
        if earlier:
            self.notes.append(
                f"{name} is set again in line {last}, so its value in line {', '.join(map(str, earlier))} was not "
                "imported; to import it too, copy it to a file of its own, and import that with another --name"
            )


def at_line(place: str, line: int) -> str:
    """Return a place such as ``models[0]`` with its line, if the line is known."""
    return f"{place}, line {line}" if line else place


def check_plain(value: Any, what: str, source: Source) -> None:
    """Raise ``ConfigError`` if a value was not read completely."""
    for number, part in enumerate(parts(value, repeated=True)):
        if number > MAX_PARTS:
            raise source.refuse(0, f"{what} has more than {MAX_PARTS} parts; import a smaller config")
        if isinstance(part, PythonExpression):
            raise part.refusal(what)
