"""Sorts a dialogue into the inputs of a prompter: history, current turn, system messages and slot values.

The current turn is the last user message, or the tool results at the end of the dialogue. All earlier messages are the
history. System messages, which LazyLLM's text prompts leave out, are written into the instruction
(``docs/spec/lazyllm.md`` 14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from metatemplate.errors import InvalidInput, UnknownRole, UnsupportedInput
from metatemplate.prompters.assembly import Turn
from metatemplate.prompters.dialects import DIALECTS
from metatemplate.prompters.json5 import printed_result
from metatemplate.templates.chat.messages import check_open_turn, content_of, unread_fields
from metatemplate.templates.spec import PrompterSpec
from metatemplate.templates.tools import calls_of
from metatemplate.values.dialogue import SYSTEM_ROLES, Dialogue, Message, RenderOptions
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Notice, Segment
from metatemplate.values.words import in_ascii

WRITTEN_FIELDS = frozenset({"tool_calls", "tool_call_id"})
"""The fields of a message that get no notice in a prompter with tools."""
PARAM = "gateway.variables"


@dataclass(frozen=True, slots=True)
class PrompterInput:
    """The messages of a request, sorted into history, current turn, system messages and an answer to continue."""

    history: tuple[Turn, ...]
    current: tuple[Turn, ...]
    """The current turn: the last user message, or the tool results at the end of the dialogue."""
    system: tuple[Turn, ...]
    answer: Turn | None
    """The assistant message that the model continues, or that ends a complete conversation."""
    notices: tuple[Notice, ...] = ()

    @property
    def in_environment(self) -> bool:
        """Whether the current turn has tool results."""
        return self.current[0].role == "tool"


def with_default_tools(dialogue: Dialogue, spec: PrompterSpec) -> Dialogue:
    """Return the dialogue. If the request has no tools, the template's default tools are added.

    Raises InvalidInput if the request has tools and this release of LazyLLM accepts only the default tools.
    """
    options = dialogue.options
    if not spec.default_tools or options.tools is spec.default_tools:
        return dialogue
    if not options.tools:
        return replace(dialogue, options=replace(options, tools=spec.default_tools))
    if not DIALECTS[spec.dialect].modern:
        raise InvalidInput(
            f"this model's template has default tools, and dialect {spec.dialect} allows no others; leave tools out",
            param="tools",
        )
    return dialogue


def read_dialogue(dialogue: Dialogue, spec: PrompterSpec) -> PrompterInput:
    """Sort a dialogue into the inputs of a prompter.

    Raises UnknownRole, UnsupportedMedia, UnsupportedInput or InvalidInput. The error's ``param`` names the
    field.
    """
    if spec.history_messages:
        raise UnsupportedInput(
            "this model's template has history_messages, which only API models get; write pairs under history",
            param="model",
        )
    if dialogue.options.tools and not spec.tools:
        if dialogue.options.tools is spec.default_tools:
            raise UnsupportedInput(
                "this model's template has default_tools, but no marks for tool calls, which a model that takes a "
                "string needs: write marks and `tools: {parser: lazyllm}` in the template, or use an API model",
                param="model",
            )
        raise UnsupportedInput(
            "this model's template does not support tools: it has no key `tools`. Leave tools out of the request.",
            param="tools",
        )
    turns: list[Turn] = []
    notices: list[Notice] = []
    for number, message in enumerate(dialogue.messages):
        turns.append(_turn(message, number, spec))
        notices += [
            notice
            for notice in unread_fields(message, number)
            if not (spec.tools and notice.detail.rpartition(".")[2] in WRITTEN_FIELDS)
        ]
    found = sort_turns(dialogue, turns)
    notices += [Notice("system_folded", f"{turn.origin}: written into the instruction") for turn in found.system]
    history = _with_printed_results(found.history, notices)
    check_class(found, spec)
    return replace(found, history=history, notices=tuple(notices))


def sort_turns(dialogue: Dialogue, turns: Sequence[Turn]) -> PrompterInput:
    """Sort all turns of a dialogue into history, current turn, system messages and answer. Raises InvalidInput."""
    system = tuple([turn for turn in turns if turn.role in SYSTEM_ROLES])
    others = [turn for turn in turns if turn.role not in SYSTEM_ROLES]
    answer = _take_answer(dialogue, others)
    at = _current_from([turn.role for turn in others])
    return PrompterInput(tuple(others[:at]), tuple(others[at:]), system, answer)


def _turn(message: Message, number: int, spec: PrompterSpec) -> Turn:
    roles = (*SYSTEM_ROLES, "user", "assistant", *(("tool",) if spec.tools else ()))
    if message.role not in roles:
        raise UnknownRole(
            f'this model\'s template has no role for "{in_ascii(message.role, 32)}"; '
            f"supported roles: {', '.join(roles)}",
            param=f"messages[{number}].role",
        )
    calls = calls_of(message, number) if spec.tools else ()
    if not calls:
        return Turn(number, message.role, content_of(message, number, None))
    without_calls = Message(message.role, message.text, message.parts)
    functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return Turn(number, message.role, content_of(without_calls, number, None), functions)


def _take_answer(dialogue: Dialogue, turns: list[Turn]) -> Turn | None:
    """Remove the answer at the end of ``turns`` and return this answer; None if the model writes the whole answer."""
    options = dialogue.options
    if options.whole and (not turns or dialogue.messages[-1].role != "assistant" or turns[-1].calls):
        raise InvalidInput(
            "a complete conversation must end with an assistant message without tool calls; "
            "add this message, or leave add_generation_prompt out",
            param="add_generation_prompt",
        )
    if options.whole:
        return turns.pop()
    if not options.continue_final:
        return None
    # The check gets no variables, because it refuses variables and a prompter accepts them.
    check_open_turn(Dialogue(dialogue.messages, RenderOptions(continue_final=True)))
    answer = turns.pop()
    if answer.calls:
        raise InvalidInput("the last message has tool_calls and cannot be continued", param="continue_final_message")
    return answer


def _current_from(roles: Sequence[str]) -> int:
    """Return the index of the first message of the current turn.

    ``roles``: the roles of all messages except system messages. Raises InvalidInput if the last message is neither a
    user message nor a tool result.
    """
    at = len(roles)
    while at and roles[at - 1] == "tool":
        at -= 1
    if at < len(roles):
        return at
    if not roles or roles[-1] != "user":
        raise InvalidInput(
            "the last message must be a user message or a tool result. "
            "To continue an assistant message, set continue_final_message: true.",
            param="messages",
        )
    return at - 1


def _with_printed_results(turns: Sequence[Turn], notices: list[Notice]) -> tuple[Turn, ...]:
    """Return the turns with tool results as LazyLLM prints the results. Add a notice for each changed result."""
    found: list[Turn] = []
    for turn in turns:
        if turn.role == "tool" and (printed := printed_result(turn.content)) != turn.content:
            notices.append(Notice("tool_result_printed", f"{turn.origin}: JSON shown as Python prints it"))
            turn = replace(turn, content=printed)
        found.append(turn)
    return tuple(found)


def check_class(found: PrompterInput, spec: PrompterSpec) -> None:
    """Raise InvalidInput if a prompter of class ``alpaca`` or ``empty`` gets more than a single user message."""
    if spec.form == "chat":
        return
    if found.history or found.in_environment:
        raise InvalidInput(
            "this model's template accepts only a single user message; leave out earlier turns and tool results",
            param="messages",
        )
    if spec.form == "empty" and (found.system or found.answer):
        what = "system messages" if found.system else "the assistant message that is to be continued"
        raise InvalidInput(
            f"this model's template accepts only a single user message; leave out {what}",
            param="messages" if found.system else "continue_final_message",
        )


# ---------------------------------------------------------------- the values of the slots


@dataclass(frozen=True, slots=True)
class SlotValues:
    """The value of each slot, and the texts of the current turn."""

    segments: Mapping[str, Segment]
    current: tuple[Segment, ...]
    """The texts of the current turn; empty if the user message fills a slot."""


def slot_values(
    found: PrompterInput, variables: Mapping[str, Any], slots: tuple[str, ...], spec: PrompterSpec
) -> SlotValues:
    """Return the values of the slots. Raises InvalidInput for a variable that is missing, unexpected or not a text."""
    segments: dict[str, Segment] = {}
    for name, value in variables.items():
        if name not in slots:
            raise InvalidInput(f"{_accepted(slots)}; leave out {name[:32]!a}", param=PARAM)
        if not isinstance(value, str):
            raise InvalidInput(f"{PARAM}.{name} must be text", param=f"{PARAM}.{name}")
        segments[name] = Segment(value, "system", f"variables.{name}", False)
    input_slot = spec.input_slot
    if len(slots) == 1 and not variables:
        input_slot = slots[0]
    if not input_slot:
        _check_complete(segments, slots)
        if spec.form == "alpaca":
            # Without input_slot, validation accepts only templates with one slot. A variable fills this slot.
            raise InvalidInput(
                "the user message fills the only slot of this model's template; leave the variable out", param=PARAM
            )
        return SlotValues(segments, tuple([turn.text for turn in found.current]))
    if input_slot in variables:
        raise InvalidInput(
            f"the last user message fills the slot {input_slot}; leave {input_slot} out of {PARAM}",
            param=f"{PARAM}.{input_slot}",
        )
    if found.in_environment:
        raise InvalidInput(
            f"the last message must be a user message, because it fills the slot {input_slot}", param="messages"
        )
    segments[input_slot] = found.current[0].text
    _check_complete(segments, slots)
    return SlotValues(segments, ())


def _check_complete(segments: Mapping[str, Segment], slots: tuple[str, ...]) -> None:
    missing = [name for name in slots if name not in segments]
    if missing:
        raise InvalidInput(f"{_accepted(slots)}; missing: {', '.join(missing)}", param=PARAM)


def _accepted(slots: tuple[str, ...]) -> str:
    if not slots:
        return "this model's template has no slots for variables"
    return f"this model's template accepts the variables {', '.join(slots)}"
