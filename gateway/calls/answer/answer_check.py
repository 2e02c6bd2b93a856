"""Checks the answers of a call with structured output or a forced tool call.

Engines and providers may ignore these fields without an error.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from gateway.core.errors import ToolChoiceNotFollowed, UpstreamError, UpstreamIgnoredParameter
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.checker import SchemaChecker, UncheckableSchema
from metatemplate.values.events import Delta, Event, Finish
from metatemplate.values.frozen import dataclass
from metatemplate.values.words import quoted

BLANKS = " \t\n\r"
"""What JSON allows before a value."""
OPENINGS = '{["-0123456789tfn'
"""The first characters of JSON values."""
ENDED = ("stop", "tool_calls", "function_call")
"""The finish reasons of an answer that the model has ended itself."""
IGNORED = "the model's server ignored"


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """What the answers of a call must be: JSON in a form, or a tool call, or both."""

    form: AnswerFormat | None = None
    """The JSON that an answer must be. None: an answer may be any text."""
    forced_tool: str | None = None
    """The tool that an answer must call; empty: any tool. None: ``tool_choice`` forces no call."""
    may_call: bool = False
    """True: an answer may be a tool call, and text may precede the call. A call is not checked against ``form``."""
    fault: str = IGNORED
    """The beginning of the error for an answer that is not in the form; the client's field follows."""
    remedy: str = ""
    """What to do about an answer that breaks the rule."""
    lenient: bool = False
    """True: an answer that cannot be checked passes with a notice. False: it is an error."""


class _Choice:
    """What one choice has so far."""

    __slots__ = ("called", "first", "names", "refused", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        """The text to validate: the content, or the name and the arguments of tool calls."""
        self.first = ""
        """The first character of the content after its blanks."""
        self.called = False
        self.names: set[str] = set()
        """The names of the tools that are called."""
        self.refused = False


class AnswerCheck:
    """The text and the calls of each choice, which are checked when the choice ends.

    An answer that begins with prose is invalid at once: a stream can still get an error status, and clients that parse
    each piece get the error instead of text that they cannot parse. A refusal, and an answer that did not end by
    itself, for example at the token limit, are not checked, and get a notice.
    """

    def __init__(
        self,
        rule: AnswerRule,
        checker: SchemaChecker,
        notices: list[str],
        client_stops: Set[str] = frozenset(),
        client: str = "",
        *,
        reports_stops: bool = False,
    ) -> None:
        """``notices``: gets a notice for each answer that is not checked. ``client_stops``: the request's stops.

        ``client``: the name of the client's key. ``reports_stops``: whether each target reports the stop string that
        ended an answer, so that an answer without one was not cut.
        """
        self._rule = rule
        self._checker = checker
        self._notices = notices
        self._client_stops = client_stops
        self._client = client
        self._reports_stops = reports_stops
        self._choices: defaultdict[int, _Choice] = defaultdict(_Choice)
        form = rule.form
        self._call_key = "" if form is None else form.call_key
        self._keeps_content = form is not None and not form.call_key
        self._checks_opening = self._keeps_content and not rule.may_call
        is_object = form is None or form.schema is None or form.schema.get("type") == "object"
        self._openings = "{" if is_object else OPENINGS
        self.failure: UpstreamError | None = None
        """The error that ends the answer. It is raised after the events that ``read`` has returned with it."""

    async def read(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch; if an answer is invalid, only the events before its end."""
        for at, event in enumerate(batch):
            if isinstance(event, Delta):
                self.failure = self._add(self._choices[event.index], event)
            elif isinstance(event, Finish):
                self.failure = await self._check(event)
            if self.failure is not None:
                return batch[:at]
        return batch

    def _add(self, choice: _Choice, delta: Delta) -> UpstreamError | None:
        """Add a delta to its choice. Returns the error for a first character that cannot begin the JSON."""
        if delta.fields:
            choice.refused = choice.refused or bool(delta.fields.get("refusal"))
            self._add_calls(choice, delta.fields)
        if self._keeps_content:
            choice.texts.append(delta.text)
        if choice.first:
            return None
        choice.first = first = delta.text.lstrip(BLANKS)[:1]
        if not first or not self._checks_opening or first in self._openings:
            return None
        return self._ignored(f": the text begins with {quoted(first)}")

    def _add_calls(self, choice: _Choice, fields: Mapping[str, object]) -> None:
        """Add the fragments of calls. Fields of a provider may have any form."""
        calls = fields.get("tool_calls")
        functions = [one.get("function") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
        if fields.get("function_call"):  # the old form of a call
            functions.append(fields["function_call"])
        choice.called = choice.called or bool(functions)
        for function in functions:
            name, arguments = (
                (function.get("name"), function.get("arguments")) if isinstance(function, dict) else ("", "")
            )
            if isinstance(name, str):
                choice.names.add(name)
            if self._call_key:
                if isinstance(name, str):
                    choice.texts.append(f'"name": {json.dumps(name)}, "{self._call_key}": ')
                choice.texts.append(arguments if isinstance(arguments, str) else "")

    async def _check(self, finish: Finish) -> UpstreamError | None:
        choice = self._choices.pop(finish.index, None) or _Choice()
        reason = "refusal" if choice.refused else finish.reason
        if reason in ENDED:
            try:
                error = await self._error(choice)
            except UncheckableSchema:
                if not self._rule.lenient:
                    raise
                error, reason = None, "the check takes too long"
            else:
                if error is None:
                    return None
                if finish.matched in self._client_stops:
                    reason = "client's stop"
                elif self._may_be_cut(choice, finish):
                    reason = "may have been cut by a stop of the client"
                else:
                    return error
        self._notices.append(f"answer_unchecked: choices[{finish.index}]={reason}")
        return None

    def _may_be_cut(self, choice: _Choice, finish: Finish) -> bool:
        """Return whether a stop of the client may have ended an invalid answer although none was reported.

        Where a chat target must call a tool, text that begins with a letter cannot be a cut call.
        """
        if not self._client_stops or self._reports_stops or finish.matched is not None:
            return False
        return not (self._rule.lenient and self._rule.forced_tool is not None and choice.first.isalpha())

    async def _error(self, choice: _Choice) -> UpstreamError | None:
        """Return the error of an answer that the model has ended; None for a valid answer."""
        tool, form = self._rule.forced_tool, self._rule.form
        if tool is not None and not (tool in choice.names if tool else choice.called):
            call = "a call of the tool that it names" if tool else "a tool call"
            return ToolChoiceNotFollowed(
                f"tool_choice requires {call}, and the answer has none. {self._rule.remedy}", param="tool_choice"
            )
        if form is None or (choice.called and not form.call_key):
            return None
        text = "".join(choice.texts)
        problem = await self._checker.problem(form, f"{{{text}}}" if form.call_key else text, self._client)
        return None if problem is None else self._ignored(f", or a stop ended the answer too early: {problem}")

    def _ignored(self, problem: str) -> UpstreamError:
        form = self._rule.form
        assert form is not None
        message = f"{self._rule.fault} {form.param}{problem}. {self._rule.remedy}"
        return UpstreamIgnoredParameter(message, param=form.param)
