"""Validates the answers of a call with structured output, because engines may ignore a constraint without an error."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence, Set

from gateway.core.errors import UpstreamError, UpstreamIgnoredParameter
from gateway.core.events import Delta, Event, Finish
from gateway.core.exchange import AnswerFormat
from gateway.core.words import quoted
from gateway.stream.json_schema.checker import SchemaChecker

BLANKS = " \t\n\r"
"""What JSON allows before a value."""
OPENINGS = '{["-0123456789tfn'
"""The first characters of JSON values."""


class AnswerCheck:
    """The text of each choice, which is validated when the choice ends.

    An answer that begins with prose is invalid at once: a stream can still get an error status, and clients that parse
    each piece get the error instead of text that they cannot parse. An answer that did not end by itself, for example
    at the token limit, is not validated, and gets a notice.
    """

    def __init__(
        self,
        wanted: AnswerFormat,
        checker: SchemaChecker,
        notices: list[str],
        client_stops: Set[str] = frozenset(),
        client: str = "",
    ) -> None:
        """``notices``: gets a notice for each answer that is not validated. ``client_stops``: the request's stops.

        ``client``: the name of the client's key.
        """
        self._wanted = wanted
        self._checker = checker
        self._notices = notices
        self._client_stops = client_stops
        self._client = client
        self._texts: defaultdict[int, list[str]] = defaultdict(list)
        is_object = wanted.schema is None or wanted.schema.get("type") == "object"
        self._openings = "{" if is_object else OPENINGS
        self._begun: set[int] = set()
        """The choices whose first character has been checked."""
        self.failure: UpstreamError | None = None
        """The error that ends the answer. It is raised after the events that ``read`` has returned with it."""

    async def read(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch; if an answer is invalid, only the events before its end."""
        for at, event in enumerate(batch):
            if isinstance(event, Delta):
                text = self._text(event)
                self._texts[event.index].append(text)
                self.failure = self._check_opening(event.index, text)
            elif isinstance(event, Finish):
                self.failure = await self._check(event)
            if self.failure is not None:
                return batch[:at]
        return batch

    def _check_opening(self, index: int, text: str) -> UpstreamError | None:
        """Return the error for a choice whose first character cannot begin the JSON. Each choice is checked once."""
        if index in self._begun or self._wanted.call_key or self._client_stops:
            return None
        first = text.lstrip(BLANKS)[:1]
        if not first:
            return None
        self._begun.add(index)
        return None if first in self._openings else self._ignored(f": the text begins with {quoted(first)}")

    def _text(self, delta: Delta) -> str:
        """Return the text to validate: the content, or the name and the arguments of a tool call."""
        if not self._wanted.call_key:
            return delta.text
        pieces = ""
        for fragment in delta.fields.get("tool_calls", ()):
            function = fragment["function"]
            if "name" in function:
                pieces += f'"name": {json.dumps(function["name"])}, "{self._wanted.call_key}": '
            pieces += function.get("arguments", "")
        return pieces

    async def _check(self, finish: Finish) -> UpstreamError | None:
        text = "".join(self._texts.pop(finish.index, ()))
        reason = finish.reason
        if self._wanted.call_key:
            text = f"{{{text}}}" if text else text
        if reason in ("stop", "tool_calls"):
            problem = await self._checker.problem(self._wanted, text, self._client)
            if problem is None:
                return None
            if not self._client_stops or (finish.matched is not None and finish.matched not in self._client_stops):
                return self._ignored(f", or a stop ended the answer too early: {problem}")
            reason = "client's stop"
        self._notices.append(f"answer_unchecked: choices[{finish.index}]={reason}")
        return None

    def _ignored(self, problem: str) -> UpstreamError:
        param = self._wanted.param
        return UpstreamIgnoredParameter(
            f"the model's server ignored {param}{problem}. Check the engine that the target names; if it is vLLM or "
            "SGLang, start it without --reasoning-parser, which switches the constraint off",
            param=param,
        )
