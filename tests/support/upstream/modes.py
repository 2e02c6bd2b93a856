"""The table of modes: the name of a mode → the function that replies in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.support.upstream.reply import Reply

Mode = Callable[[Reply], Awaitable[None]]

MODES: dict[str, Mode] = {}
"""Filled by the other ``modes_…`` modules when they are imported."""


def mode(name: str) -> Callable[[Mode], Mode]:
    """Register the decorated function under ``name``."""

    def add(function: Mode) -> Mode:
        MODES[name] = function
        return function

    return add
