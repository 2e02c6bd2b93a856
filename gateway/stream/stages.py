"""Stages: the steps between the events of a backend and the events for the client.

The stages of an answer stand in a list, in this order. Each receives the events that the stage before it has returned.
``calls/answer/response.py`` makes the list and runs it. A plain answer without stop strings has no stages.

    TokenData      reads token ids and log probabilities of the prompt (``calls/answer/token_data.py``)
    LogprobCheck   requires log probabilities, if the client requested them
    StopCutter     cuts the text at stop strings (``stops/stop_cutter.py``)
    TokenCounter   keeps the text, if the gateway can count its tokens
    OutputParser   separates content, reasoning and tool calls (``output_parser.py``)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from gateway.core.errors import UpstreamError, UpstreamIgnoredParameter
from gateway.core.events import Choice, Delta, Event, Finish, Usage
from gateway.core.text_splice import TextSplice
from gateway.stream.prompt_logprobs import CHECK_ENGINE

Count = Callable[[str], Awaitable[Usage]]
"""Counts the tokens of a call from its complete answer."""
MAX_COUNTED = 16 * 1024 * 1024
"""Maximum characters of an answer that ``TokenCounter`` keeps. The tokens of a longer answer are not counted."""


class Stage:
    """A stage that returns every event unchanged. A subclass overrides methods."""

    __slots__ = ()

    may_forward: ClassVar[bool] = False
    """True: plain text may be forwarded past the stage, within the limits of ``before_forwarding``."""
    may_block: ClassVar[bool] = False
    """True: ``is_heavy`` must be asked before ``process`` and ``flush``. Only the last stage may be such a stage."""
    failure: UpstreamError | None = None
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

    def before_forwarding(self, splice: TextSplice) -> None:
        """Exclude the text that must not be forwarded."""

    def after_forwarding(self, splice: TextSplice) -> None:
        """Note the text that was forwarded."""


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
        out = self.process(last)
        for _, choice in sorted(self._choices.items()):
            out += choice.flush()
        return out


class LogprobCheck(Stage):
    """Requires that the first text has log probabilities. Fails if the engine ignored the request for them."""

    __slots__ = ("_checked", "failure")

    def __init__(self) -> None:
        self._checked = False
        self.failure = None

    def process(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch; without log probabilities only the events before the first text."""
        if self._checked:
            return batch
        for at, event in enumerate(batch):
            if isinstance(event, Delta) and event.text:
                self._checked = True
                if event.logprobs is None:
                    message = f"the model's server ignored logprobs; {CHECK_ENGINE}"
                    self.failure = UpstreamIgnoredParameter(message, param="logprobs")
                    return batch[:at]
                break
        return batch


class TokenCounter(Stage):
    """Keeps the text of an answer, whose tokens the gateway counts if the upstream sends no token counts."""

    __slots__ = ("_count", "_room", "_texts", "_wanted")

    def __init__(self, count: Count) -> None:
        self._count = count
        self._room = MAX_COUNTED
        self._texts: list[str] = []
        self._wanted = True
        """False if the upstream has sent token counts, or if the answer is longer than ``MAX_COUNTED``."""

    def process(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Keep the text of the batch, and return the batch."""
        for event in batch:
            if isinstance(event, Delta):
                self._room -= len(event.text)
                self._texts.append(event.text)
            if isinstance(event, Usage) or self._room < 0:
                self._wanted = False
        if not self._wanted:
            self._texts.clear()
        return batch

    async def usage(self) -> list[Event]:
        """Return the token counts of the whole answer, as one event. Empty if they are not wanted."""
        return [await self._count("".join(self._texts))] if self._wanted else []
