"""What may a name of a Python file stand for? Plain values, names, calls, and what was not read; each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import ConfigError
from gateway.importer.source import Source

MOST_ITEMS = 20_000
"""Of a list that is put together, and of what is looked through for one value."""
MOST_NOTES = 20
"""Of what was not followed, told one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """Something that is no plain value."""

    what: str
    line: int

    def __str__(self) -> str:
        return f"{self.what} (line {self.line})"


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A name that no statement of the file gives a value, such as an imported class."""

    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} (line {self.line})"

    @property
    def last(self) -> str:
        """The part behind the last dot."""
        return self.name.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Called:
    """A call that stays a call, such as a constructor's."""

    name: str
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    line: int

    def __str__(self) -> str:
        return f"{self.name}(…) (line {self.line})"

    @property
    def last(self) -> str:
        """The name behind the last dot."""
        return self.name.rsplit(".", 1)[-1]


@dataclass(slots=True)
class Module:
    """What a file binds, in the order of the file."""

    names: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """Where each name got its value."""
    calls: list[Called] = field(default_factory=list)
    """Calls that stand as statements."""
    noted: dict[str, None] = field(default_factory=dict)
    """What was not followed, and why; the first of it, each once."""
    untold: int = 0
    """What more there was."""
    spoilt: dict[int, tuple[Any, Unread]] = field(default_factory=dict)
    """Values that something else may have changed, by identity; kept, so that no other value gets theirs."""

    @property
    def notes(self) -> list[str]:
        """What was not followed, for a person to read."""
        more = [f"… and {self.untold} more that were not followed"] if self.untold else []
        return [*self.noted, *more]

    def note(self, text: str) -> None:
        """One more thing that was not followed."""
        if len(self.noted) < MOST_NOTES:
            self.noted[text] = None
        elif text not in self.noted:
            self.untold += 1

    def find_calls(self, names: tuple[str, ...]) -> Iterator[tuple[str, Called]]:
        """Every call of one of these names, with the name it is bound to; calls inside of calls and lists too."""
        roots = [*self.names.items(), *(("", call) for call in self.calls)]
        seen: set[int] = set()
        for name, value in roots:
            waiting = [value]  # a stack, the first on top: in a file of lists a queue would be copied for each
            while waiting:
                one = waiting.pop()
                if id(one) in seen or isinstance(one, str | int | float | None):
                    continue
                seen.add(id(one))
                if isinstance(one, Called):
                    if one.last in names:
                        yield name, one
                    waiting += reversed([*one.args, *one.keywords.values()])
                elif isinstance(one, dict):
                    waiting += reversed(one.values())
                elif isinstance(one, list | tuple):
                    waiting += reversed(one)

    def changed(self, value: Any) -> Unread | None:
        """What may have changed this very value, whatever it holds; None: nothing has."""
        spoilt = self.spoilt.get(id(value))
        return None if spoilt is None else spoilt[1]

    def trouble(self, value: Any) -> Unread | Named | Called | None:
        """The first thing inside a value that is not plain; None: all of it is."""
        waiting = [value]
        for _ in range(MOST_ITEMS):
            if not waiting:
                return None
            one = waiting.pop()
            if isinstance(one, Unread | Named | Called):
                return one
            if (changed := self.changed(one)) is not None:
                return changed
            if isinstance(one, dict):
                waiting.extend([*one.keys(), *one.values()])
            elif isinstance(one, list | tuple | set):
                waiting.extend(one)
        return Unread(f"a value of more than {MOST_ITEMS} parts", 0)


def refuse_changed(module: Module, value: Any, what: str, source: Source) -> ConfigError | None:
    """The error for a value that a statement may have changed; None: it is as it was written."""
    found = module.changed(value)
    return None if found is None else source.refuse(found.line, f"{what} holds {found}: write the plain value there")


def refuse_trouble(module: Module, value: Any, what: str, source: Source) -> ConfigError | None:
    """The error for a value that is not plain; None: it is."""
    found = module.trouble(value)
    if found is None:
        return None
    line = found.line
    told = f"{found}" if isinstance(found, Unread) else f"{found}, which is not executed"
    return source.refuse(line, f"{what} holds {told}: write the plain value there")
