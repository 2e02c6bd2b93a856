"""Stages: the steps between the events of a model and the answer. Each gets the events that the one before returned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from metatemplate.values.events import Choice, Delta, Event, Finish


class Stage:
    """A stage that returns every event unchanged. A subclass overrides methods."""

    __slots__ = ()

    may_forward: ClassVar[bool] = False
    """True: plain text may be forwarded past the stage, within the limits of ``halts`` and ``is_clear``."""
    may_block: ClassVar[bool] = False
    """True: ``is_heavy`` must be asked before ``process`` and ``flush``. Only the last stage may be such a stage."""
    failure: Exception | None = None
    """The error that ends the answer. It is raised after the events that ``process`` has returned with it."""

    def process(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the events that can be sent now."""
        return batch

    def flush(self, last: Sequence[Event] = ()) -> Sequence[Event]:
        """Process the events ``last``. Return the results and all held text, without new finish events.

        Call when the upstream has ended or failed. A later call returns nothing more.
        """
        return self.process(last)

    def is_heavy(self, _batch: Sequence[Event]) -> bool:
        """Return whether processing the batch and the held text would block the event loop for too long."""
        return False

    def passes(self, _choice: Choice) -> bool:
        """Return whether the stage would not change this whole choice. False: not known."""
        return False

    @property
    def halts(self) -> re.Pattern[str] | None:
        """The expression of text that must not be forwarded. It matches single characters. None: all text may be."""
        return None

    def is_clear(self, _index: int) -> bool:
        """Return whether text of this choice may be forwarded: the stage holds nothing of the choice."""
        return True

    def forwarded(self, index: int, characters: int) -> None:
        """Note the number of characters of a choice that were forwarded past the stage."""


class ChoiceStage(Protocol):
    """A stage for the events of one choice."""

    def add(self, delta: Delta) -> Sequence[Event]: ...
    def end(self, finish: Finish) -> Sequence[Event]: ...
    def flush(self) -> Sequence[Event]: ...


Choices = TypeVar("Choices", bound=ChoiceStage)


class PerChoice(Stage, Generic[Choices]):
    """A stage that processes the events of each choice by themselves."""

    __slots__ = ("_choices",)

    def __init__(self) -> None:
        self._choices: dict[int, Choices] = {}

    def _begin(self, index: int) -> Choices:
        """Return the stage for a new choice."""
        raise NotImplementedError

    def _choice(self, index: int) -> Choices:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = self._begin(index)
        return choice

    def process(self, batch: Sequence[Event]) -> list[Event]:
        """Process a batch. See ``Stage.process``."""
        out: list[Event] = []
        for event in batch:
            if type(event) is Delta:
                out += self._choice(event.index).add(event)
            elif type(event) is Finish:
                out += self._choice(event.index).end(event)
            else:
                out.append(event)
        return out

    def flush(self, last: Sequence[Event] = ()) -> list[Event]:
        """Process the events ``last``, and return the results and all held text. See ``Stage.flush``."""
        out = self.process(last) if last else []
        for index in sorted(self._choices):
            out += self._choices[index].flush()
        return out
