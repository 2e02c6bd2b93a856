"""What does a chat request ask of a prompter? Input, history, instruction text and label (``specs/lazyllm.md`` 14).

The last user message is the input, what stands before it the history; tool results at the end are an input of their
own. System messages, which the reference's text form drops, are set apart to be written into the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core.dialogue import Dialogue, Message, RenderOptions
from gateway.core.errors import InvalidValue, RoleNotSupported, UnsupportedParameter
from gateway.core.prompt import Notice
from gateway.template.lazyllm.history import Printed, json_result, tool_result
from gateway.template.messages import MAX_SHOWN, check_open_turn, content_of, unread_fields
from gateway.template.spec.prompter import PrompterSpec
from gateway.template.tools import calls_of

SYSTEM_ROLES = ("system", "developer")
TURN_ROLES = ("user", "assistant")
TOOL_ROLE = "tool"

SLOWLY = 32 * 1024
"""Characters of tools' results in one request that are read as JSON5 where they are no JSON: some 50 ms of work."""
MAYBE_JSON5 = re.compile(r"""\s*["'\[{0-9+\-./tfnIN]""")

WRITTEN_FIELDS = frozenset({"tool_calls", "tool_call_id"})
"""Fields of a message that a prompter with tools writes, or that only name what it writes."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as the prompter takes it."""

    number: int
    """Its place in the request."""
    item: Mapping[str, Any]
    """Role and content, calls with their arguments read; in the reference's form."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, sorted."""

    history: tuple[Turn, ...]
    input: tuple[Turn, ...]
    """The last user message, or the tool results at the end."""
    system: tuple[Turn, ...] = ()
    label: Turn | None = None
    """The beginning of the answer, which the model continues."""
    notices: tuple[Notice, ...] = ()

    @property
    def text(self) -> str | None:
        """The user's words; None: tool results are the input."""
        turn = self.input[0].item
        return None if turn["role"] == TOOL_ROLE else turn["content"]


def folded_notice(number: int) -> Notice:
    """Says that a system message stands in the instruction."""
    return Notice("system_folded", f"messages[{number}]: written into the instruction")


def read_dialogue(dialogue: Dialogue, spec: PrompterSpec) -> Asked:
    """The dialogue as a prompter of this class takes it.

    Raises RoleNotSupported, MediaNotSupported, UnsupportedParameter and InvalidValue, each with ``param``.
    """
    if dialogue.tools and not spec.tools:
        raise UnsupportedParameter(
            "this model's template writes no tools: it declares no `tools`. Leave `tools` out.", param="tools"
        )
    system: list[Turn] = []
    turns: list[Turn] = []
    notices: list[Notice] = []
    for number, message in enumerate(dialogue.messages):
        turn = Turn(number, _item(message, number, spec))
        (system if message.role in SYSTEM_ROLES else turns).append(turn)
        notices += [
            notice
            for notice in unread_fields(message, number)
            if not (spec.tools and notice.detail.rpartition(".")[2] in WRITTEN_FIELDS)
        ]
    notices += [folded_notice(turn.number) for turn in system]
    label = _label(dialogue, turns)
    at = _input_from(turns)
    history = _printed(turns[:at], notices)
    asked = Asked(history, tuple(turns[at:]), tuple(system), label, tuple(notices))
    _check_form(asked, spec)
    return asked


def _printed(turns: Sequence[Turn], notices: list[Notice]) -> tuple[Turn, ...]:
    """Earlier turns with the tools' results as the prompt shows them, each read once."""
    found: list[Turn] = []
    left = SLOWLY
    for turn in turns:
        if turn.item["role"] == TOOL_ROLE:
            content = turn.item["content"]
            printed = json_result(content)
            if printed is None and MAYBE_JSON5.match(content) is None:
                printed = content
            elif printed is None and len(content) <= left:
                left -= len(content)
                printed = tool_result(content)
            if printed is None:
                printed = content
                notices.append(Notice("tool_result_unread", f"messages[{turn.number}]: too long for what is no JSON"))
            elif printed != content:
                notices.append(
                    Notice("tool_result_printed", f"messages[{turn.number}]: JSON shown as Python prints it")
                )
            turn = Turn(turn.number, {**turn.item, "content": Printed(printed)})
        found.append(turn)
    return tuple(found)


def _label(dialogue: Dialogue, turns: list[Turn]) -> Turn | None:
    """The turn that is to be continued, taken out."""
    if not dialogue.continue_final:
        return None
    # Variables are the prompter's own business; only the turn is looked at.
    check_open_turn(Dialogue(dialogue.messages, RenderOptions(continue_final=True)))
    turn = turns.pop()
    if turn.item.get("tool_calls"):
        raise InvalidValue(
            "a message that calls tools is finished; it cannot be continued", param="continue_final_message"
        )
    return turn


def _input_from(turns: Sequence[Turn]) -> int:
    """Where the input begins."""
    at = len(turns)
    while at and turns[at - 1].item["role"] == TOOL_ROLE:
        at -= 1
    if at < len(turns):
        return at
    if not turns or turns[-1].item["role"] != "user":
        raise InvalidValue(
            "a prompter answers a user message or tool results, and the conversation ends with neither. "
            "End it with a user message, or set continue_final_message: true to go on with the assistant's.",
            param="messages",
        )
    return at - 1


def _check_form(asked: Asked, spec: PrompterSpec) -> None:
    """Alpaca and Empty know one user message."""
    if spec.form == "chat":
        return
    if asked.history or asked.text is None:
        raise InvalidValue(
            f"this model's template takes a single user message: class {spec.form} has no place for earlier turns "
            "or tool results. Send one user message.",
            param="messages",
        )
    if spec.form == "empty" and (asked.system or asked.label):
        what = "system messages" if asked.system else "an answer that is to be continued"
        raise InvalidValue(
            f"this model's template sends the user message as it is: class empty has no place for {what}",
            param="messages" if asked.system else "continue_final_message",
        )


# ---------------------------------------------------------------- single messages


def _item(message: Message, number: int, spec: PrompterSpec) -> Mapping[str, Any]:
    known = (*SYSTEM_ROLES, *TURN_ROLES, *((TOOL_ROLE,) if spec.tools else ()))
    if message.role not in known:
        shown = ascii(message.role[:MAX_SHOWN])[1:-1]
        raise RoleNotSupported(
            f'this model\'s template has no role for "{shown}"; it knows {", ".join(known)}',
            param=f"messages[{number}].role",
        )
    calls = calls_of(message, number) if spec.tools else ()
    if not calls:
        return {"role": message.role, "content": content_of(message, number, None)}
    plain = Message(message.role, message.text, message.parts)
    return {
        "role": message.role,
        "content": content_of(plain, number, None),
        "tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls],
    }
