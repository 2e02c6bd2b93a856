"""Which recorded calls a verb lists, exports or removes: the options, and the condition in SQL."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from gateway.cli.options import FILE_PATH, CommandError, config_option, option, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSelection:
    """The options that all verbs for recorded calls have."""

    model: str | None = option("MODEL")
    """only calls of this model"""
    key: str | None = option("KEY")
    """only calls of the client key with this name"""
    run: str | None = option("RUN")
    """only calls of this run"""
    file: Path | None = option("FILE", type=FILE_PATH)
    """the file of recordings"""
    config: Path = parameter(config_option)

    @property
    def filters(self) -> dict[str, str]:
        """The names of the filters that are given, with their values."""
        given = {"model": self.model, "key": self.key, "run": self.run}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def path(self) -> Path:
        """The file of recordings. Raises ``CommandError`` if it does not exist."""
        from gateway.evaluate.reporting.source import recordings_path

        path = recordings_path(self.config) if self.file is None else self.file
        if not path.exists():
            raise CommandError(f"{path}: no such file")
        return path

    def condition(self, age: str, seconds: float | None) -> tuple[str, list[str | float]]:
        """Return the condition for the calls, and its values. ``age``: compares their start with ``seconds`` ago."""
        values: list[str | float] = [*self.filters.values()]
        conditions = [f"{name} = ?" for name in self.filters]
        if seconds is not None:
            conditions.append(f"time {age} ?")
            values.append(time.time() - seconds)
        return " AND ".join(conditions) or "TRUE", values


def read_as(kind: Literal["duration", "size"]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return the callback of an option whose value is written as in the settings."""

    def read(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
        from gateway.config.schema.kinds import SIZE, duration

        try:
            return None if value is None else {"duration": duration(), "size": SIZE}[kind].read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read
