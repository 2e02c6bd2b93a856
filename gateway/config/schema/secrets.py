"""Where do secrets come from? From ``env:NAME`` or ``file:PATH``, never from the text of a file."""

from __future__ import annotations


class Secret:
    """A string that does not show itself: not in ``repr``, not in logs, not in errors."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself; call it only where it goes on the wire."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)
