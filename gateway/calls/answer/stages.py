"""Stages that only a gateway needs: checks of what an upstream has sent, and the count of tokens.

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

from gateway.core.errors import UpstreamIgnoredParameter
from gateway.stream.prompt_logprobs import CHECK_ENGINE
from metatemplate.answers.stages import Stage
from metatemplate.values.events import Delta, Event, Usage

Count = Callable[[str], Awaitable[Usage]]
"""Counts the tokens of a call from its complete answer."""
MAX_COUNTED = 16 * 1024 * 1024
"""Maximum characters of an answer that ``TokenCounter`` keeps. The tokens of a longer answer are not counted."""


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
