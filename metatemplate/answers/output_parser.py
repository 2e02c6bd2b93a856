"""Parses an answer's text into content, reasoning and tool calls, and returns them as OpenAI's deltas.

The parser runs after the stop cutter, for templates that declare tools or thinking. For each choice:

- A call is sent when it is complete: ``index``, ``id``, ``type`` and the name in one delta, the arguments in the next.
- If the engine reports ``stop`` after a call, ``finish_reason`` is ``tool_calls``. Every other reason is kept. With
  ``length``, complete calls are sent as calls, and an incomplete call is sent as text.
- With ``one_call`` the answer ends after its first call.
- If the prompt contains the beginning of a required call, that beginning is parsed before the model's text. It is never
  sent as content.
- If the answer can only be found in the whole text, that text is held until it is complete.
- The parser may hold back the text of a delta, but sends its log probabilities, fields and extras at once. Therefore
  the log probabilities cover all that the model wrote, including markers.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence

from metatemplate.answers.get_response import AnswerExtraction
from metatemplate.answers.reasoning import Reasoning
from metatemplate.answers.stages import PerChoice
from metatemplate.answers.tool_calls.format import Format, ParsedCall, Piece, Thought, ToolSchemas, UnparsedCall
from metatemplate.answers.tool_calls.registry import unread_calls
from metatemplate.answers.tool_calls.scanner import Scanner
from metatemplate.values.answer_markers import REASONING_FIELDS, Thinking
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Delta, Event, Finish
from metatemplate.values.frozen import dataclass
from metatemplate.values.words import plain

HEAVY = 16 * 1024
"""Maximum characters parsed in the event loop, which takes up to 30 ms. Longer text is parsed in a thread (0.1 ms)."""


def call_id() -> str:
    """Return a new id for a tool call. The client sends the id back with the result of the tool."""
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class ParserOptions:
    """Options for parsing the answer to one request, such as reasoning markers and the tool-call format."""

    thinking: Thinking | None = None
    calls: Format | None = None
    """The tool-call format. None: no tool may be called, so text that looks like a call is content."""
    tools: ToolSchemas = EMPTY_MAPPING
    """The tools that may be called."""
    keep_special: bool = False
    """True: special tokens must stay in the text, because the markers of calls or reasoning may be special tokens."""
    one_call: bool = False
    opened: str = ""
    """The beginning of the answer, if the prompt already contains it."""
    extraction: AnswerExtraction | None = None
    """Finds the answer in the model's text. The text is held until the end. None: all text is the answer."""
    foreign_stops: frozenset[str] = frozenset()
    """The client's stops. If such a stop ends the answer inside a call, the call is not complete."""


class OutputParser(PerChoice["_ChoiceParser"]):
    """Parses the events of the answer to one request."""

    may_block = True

    def __init__(
        self, options: ParserOptions, notices: list[str] | None = None, new_id: Callable[[], str] = call_id
    ) -> None:
        """``notices``: receives a notice for each call that is not read, and each argument with a wrong type."""
        super().__init__()
        self._options = options
        self._notices = [] if notices is None else notices
        self.new_id = new_id
        self.failures: Counter[str] = Counter()
        """Format → number of texts that looked like a tool call in this format, and are sent as text."""

    def is_heavy(self, batch: Sequence[Event]) -> bool:
        """Return whether the batch and the held text are long. See ``Stage.is_heavy``."""
        size = sum(len(event.text) for event in batch if isinstance(event, Delta))
        # held text often only waits for more text, and then a thread would be wasted
        return size + sum(choice.waiting // 4 for choice in self._choices.values()) > HEAVY

    def _begin(self, index: int) -> _ChoiceParser:
        return _ChoiceParser(index, self._options, self)

    def notice(self, text: str) -> None:
        """Add a notice, once."""
        if text not in self._notices:
            self._notices.append(text)


class _ChoiceParser:
    """The parser's state for one choice."""

    __slots__ = (
        "_content",
        "_has_text",
        "_held",
        "_held_length",
        "_ids",
        "_index",
        "_opened_calls",
        "_options",
        "_parser",
        "_prompt_held",
        "_reasoning",
        "_scanner",
        "_thoughts",
        "ended",
    )

    def __init__(self, index: int, options: ParserOptions, parser: OutputParser) -> None:
        self._index = index
        self._options = options
        self._parser = parser
        self._reasoning = None if options.thinking is None else Reasoning(options.thinking)
        self._scanner = None if options.calls is None else Scanner(options.calls, options.tools)
        self._held: list[str] = []
        """The model's text so far; used only with ``ParserOptions.extraction``."""
        self._held_length = 0
        self._ids: list[str] = []
        """The ids of the tool calls so far."""
        self.ended = False
        self._content: list[str] = []
        """The content so far, in which calls of other formats are searched at the end."""
        self._thoughts: list[str] = []
        """The reasoning so far, in which calls are searched if the answer has nothing else."""
        self._has_text = False
        """True: the model has written text. Until then, a call that the prompt began is not counted as a failure."""
        self._prompt_held = 0
        """Number of held characters that come from the prompt, not from the model."""
        self._opened_calls: list[Event] = [
            event for event in self._text(options.opened) if isinstance(event, Delta) and "tool_calls" in event.fields
        ]
        """Calls that the prompt already contains. They are sent with the first event of the model."""
        if options.opened and self._scanner is not None:
            self._prompt_held = self._scanner.held

    @property
    def waiting(self) -> int:
        """Number of characters that are held and may contain calls."""
        return 0 if self._scanner is None else self._scanner.waiting + self._held_length

    def add(self, delta: Delta) -> list[Event]:
        if self.ended:
            return []
        self._has_text = self._has_text or bool(delta.text)
        text = delta.text
        if self._options.extraction is not None:
            self._held.append(text)
            self._held_length += len(text)
            text = ""
        events, self._opened_calls = [*self._opened_calls, *self._text(text)], []
        if delta.logprobs is None and not delta.fields and not delta.extras:
            return events
        first = events[0] if events else None
        if not isinstance(first, Delta):
            return [Delta(self._index, "", delta.logprobs, delta.fields, delta.extras), *events]
        fields = {**first.fields, **delta.fields} or EMPTY_MAPPING
        return [Delta(self._index, first.text, delta.logprobs, fields, delta.extras), *events[1:]]

    def end(self, finish: Finish) -> list[Event]:
        if self.ended:
            return []
        # At a client's stop the model has not ended its call. Few engines report which stop matched.
        foreign, matched = self._options.foreign_stops, finish.matched
        may_be_foreign = bool(foreign) and (matched is None or matched in foreign)
        events = self.flush(stopped=finish.reason == "stop" and not may_be_foreign)
        if finish.reason == "stop" and self._ids:
            finish = Finish(finish.index, "tool_calls", finish.matched, finish.source, finish.extras)
        return events if events and isinstance(events[-1], Finish) else [*events, finish]

    def flush(self, *, stopped: bool = False) -> list[Event]:
        """Return all held text, and end the choice. ``stopped``: see ``Scanner.end``."""
        if self.ended:
            return []
        events, self._opened_calls = self._opened_calls, []
        if self._options.extraction is not None:
            events += self._text(self._options.extraction.answer("".join(self._held)))
        if self._reasoning is not None:
            events += self._deltas(*self._reasoning.end())
        if self._scanner is not None and not self.ended:
            events += self._pieces(self._scanner.end(stopped=stopped))
        self.ended = True
        self._report_unread_calls()
        return events

    def _report_unread_calls(self) -> None:
        """Add a notice for each format of which a call is in the content, or in the reasoning if there is nothing else.

        A failed call of the template's own format in the content has been counted before.
        """
        calls, searched = self._options.calls, self._content or ([] if self._ids else self._thoughts)
        for name in unread_calls("".join(searched)):
            self._parser.notice(f"tool_call_not_read: choices[{self._index}]={name}")
            if calls is None or name != calls.name or searched is self._thoughts:
                self._parser.failures[name] += 1

    def _text(self, text: str) -> list[Event]:
        return self._deltas(*(("", text) if self._reasoning is None else self._reasoning.feed(text)))

    def _deltas(self, thought: str, text: str) -> list[Event]:
        events: list[Event] = []
        if thought:
            events.append(self._thought(thought))
        if text:
            events += [Delta(self._index, text)] if self._scanner is None else self._pieces(self._scanner.feed(text))
        return events

    def _thought(self, text: str) -> Delta:
        self._thoughts += [text] if self._options.tools else []
        fields = REASONING_FIELDS if self._options.thinking is None else self._options.thinking.fields
        return Delta(self._index, fields=dict.fromkeys(fields, text))

    def _pieces(self, pieces: Sequence[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            if isinstance(piece, Thought):
                events.append(self._thought(piece.text))
                continue
            if isinstance(piece, ParsedCall):
                self._prompt_held = 0
                if piece.mistyped:
                    more = f" and {len(piece.mistyped) - 1} more" if len(piece.mistyped) > 1 else ""
                    self._parser.notice(f"mistyped_argument: {piece.name}.{plain(piece.mistyped[0])}{more}")
                head = {"name": piece.name, "arguments": ""}
                number, is_free = len(self._ids), piece.id not in ("", *self._ids)
                self._ids.append(piece.id if is_free else self._parser.new_id())
                call = {"index": number, "id": self._ids[-1], "type": "function", "function": head}
                rest = {"index": number, "function": {"arguments": piece.arguments}}
                events += [Delta(self._index, fields={"tool_calls": [fragment]}) for fragment in (call, rest)]
                if self._options.one_call:
                    self.ended = True
                    events.append(Finish(self._index, "tool_calls", source="gateway"))
                    break
                continue
            if isinstance(piece, UnparsedCall):
                if self._has_text and self._options.calls is not None:
                    self._parser.failures[self._options.calls.name] += 1
                piece = piece.text
            of_prompt = min(self._prompt_held, len(piece))
            self._prompt_held -= of_prompt
            if piece[of_prompt:]:
                self._content += [piece[of_prompt:]] if self._options.tools else []
                events.append(Delta(self._index, piece[of_prompt:]))
        return events
