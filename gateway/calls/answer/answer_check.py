"""Validates the answers of a call with structured output, because engines may ignore a constraint without an error."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence, Set

from gateway.core.errors import UpstreamError, UpstreamIgnoredParameter
from gateway.core.events import Delta, Event, Finish
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.checker import SchemaChecker


class AnswerCheck:
    """The text of each choice, which is validated when the choice ends.

    An answer that did not end by itself, for example at the token limit, is not validated, and gets a notice.
    """

    def __init__(
        self, wanted: AnswerFormat, checker: SchemaChecker, notices: list[str], client_stops: Set[str] = frozenset()
    ) -> None:
        """``notices``: gets a notice for each answer that is not validated. ``client_stops``: the request's stops."""
        self._wanted = wanted
        self._checker = checker
        self._notices = notices
        self._client_stops = client_stops
        self._field = "tools" if wanted.call_key else "response_format"
        self._texts: defaultdict[int, list[str]] = defaultdict(list)
        self.failure: UpstreamError | None = None
        """The error that ends the answer. It is raised after the events that ``read`` has returned with it."""

    async def read(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch; if an answer is invalid, only the events before its end."""
        for at, event in enumerate(batch):
            if isinstance(event, Delta):
                self._texts[event.index].append(self._text(event))
            elif isinstance(event, Finish):
                self.failure = await self._check(event)
                if self.failure is not None:
                    return batch[:at]
        return batch

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
            problem = await self._checker.problem(self._wanted, text)
            if problem is None:
                return None
            if not self._client_stops or finish.matched not in (None, *self._client_stops):
                return UpstreamIgnoredParameter(
                    f"the model's server ignored {self._field}, or a stop ended the answer too early: {problem}. Check "
                    "the engine that the target names; if it is vLLM or SGLang, start it without --reasoning-parser, "
                    "which switches the constraint off",
                    param=self._field,
                )
            reason = "client's stop"
        self._notices.append(f"answer_unchecked: choices[{finish.index}]={reason}")
        return None
