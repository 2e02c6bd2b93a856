"""What does a prompter make of an input? The reference's Alpaca, Chat and Empty prompters as frozen values.

The exact behaviour, errors included (``specs/lazyllm.md`` 3 to 9); ``template.py`` builds the gateway's own on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gateway.template.lazyllm.assembly import as_anthropic, as_messages, text_runs
from gateway.template.lazyllm.dialects import CURRENT, Dialect
from gateway.template.lazyllm.errors import PrompterError
from gateway.template.lazyllm.families import default_marks
from gateway.template.lazyllm.history import history_messages, history_runs
from gateway.template.lazyllm.instructions import USER_BEGINS, USER_ENDS, alpaca_instruction, chat_instruction
from gateway.template.lazyllm.marks import SpecialMarks
from gateway.template.lazyllm.runs import Run, Runs, cut, joined
from gateway.template.lazyllm.slots import fill
from gateway.template.lazyllm.tools import check_one_source, resolved, with_preamble, with_tool_tokens, write_tools

Form = Literal["alpaca", "chat", "empty"]
Hook = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any]]

FORMATS = ("openai", "anthropic")

CLASSES: Mapping[Form, str] = {
    "alpaca": "lazyllm.components.prompter.alpacaPrompter.AlpacaPrompter",
    "chat": "lazyllm.components.prompter.chatPrompter.ChatPrompter",
    "empty": "lazyllm.components.prompter.builtinPrompt.EmptyPrompter",
}
"""The reference's names, because a message of it says one."""

ABSENT: Any = object()
"""No input given, which only the Empty prompter tells from None."""


def user_part(text: str, parts: str) -> tuple[int, int] | None:
    """Where the user part stands in a filled instruction; None without one. In time that grows with the text alone.

    ``all``: what ``BEGINS(.*)ENDS`` finds in the whole text. ``line``: what ``.*BEGINS(.*)ENDS`` finds in the first
    line that it fits. The text may be a client's, and the expressions would try each of its tags with each other.
    """
    if parts == "all":
        begin, end = text.find(USER_BEGINS) + len(USER_BEGINS), text.rfind(USER_ENDS)
        return (begin, end) if USER_BEGINS in text and begin <= end else None
    at = 0
    for line in text.split("\n"):
        end = line.rfind(USER_ENDS)
        begin = line.rfind(USER_BEGINS, 0, max(end, 0))
        if begin >= 0:
            return at + begin + len(USER_BEGINS), at + end
        at += len(line) + 1
    return None


@dataclass(frozen=True, slots=True)
class Prompter:
    """A prompter with its instruction and its marks; calls change nothing."""

    form: Form
    instruction: str
    """The template, slots and splitter tags included; unused by ``empty``."""
    marks: SpecialMarks
    tools: Any = None
    """A list, or a callable that gives one."""
    skills: Any = None
    """Text, or a callable that gives it."""
    history: Any = ()
    """Turns before those of a call."""
    enable_system: bool = True
    """False: no system message in dict mode. Text is not affected, as in the reference."""
    hook: Hook | None = None
    """``pre_hook``: gets and gives (input, history, tools, label)."""
    dialect: Dialect = CURRENT

    def bound(self, marks: Mapping[str, Any]) -> Prompter:
        """This prompter with a model's marks. Raises PrompterError for an unknown name."""
        return replace(self, marks=self.marks.bound(marks, self.dialect))

    def generate_prompt(
        self,
        input: Any = ABSENT,
        history: Any = None,
        tools: Any = None,
        label: Any = None,
        *,
        show: bool = False,
        return_dict: bool = False,
        format: str | None = None,
    ) -> Any:
        """The prompt as text, or as messages with ``format`` or ``return_dict``; names as in the reference.

        ``show`` asks the reference to log and changes nothing. Raises PrompterError.
        """
        wanted = format or ("openai" if return_dict else None)
        if input is ABSENT and self.form == "empty":
            raise PrompterError(
                "TypeError", "EmptyPrompter.generate_prompt() missing 1 required positional argument: 'input'"
            )
        input = None if input is ABSENT else input
        if self.form == "empty":
            return self._passed(input, wanted)
        if wanted not in FORMATS:
            return joined(self.runs(input, history, tools, label, printed=wanted is not None))
        made = self._messages(input, history, tools, label)
        return as_anthropic(made) if wanted == "anthropic" else made

    def runs(
        self, input: Any, history: Any = None, tools: Any = None, label: Any = None, *, printed: bool = False
    ) -> Runs:
        """The text, in pieces that know where they came from; not for ``empty``. Raises PrompterError.

        ``printed``: what the reference does with a format that it does not know. History and tools are made
        ready for messages, and Python's print of them lands in the text (``specs/lazyllm.md`` 8.4).
        """
        both = self.tools and tools
        given, history, tools, label = self._taken(input, history, tools, label)
        instruction, rest = fill(self.prepared(tools, as_text=not printed), given, self.dialect)
        if printed:
            messages = history_messages(self.history, history)
            turns: Runs = (Run(str(messages or ""), "history", True),)
            listed = str(tools)
        else:
            turns = history_runs(self.history, history, self.marks, self.dialect)
            check_one_source(both, self.dialect)
            listed = write_tools(tools, self.dialect)
        self._check(joined(turns), rest)
        system, user = self.split(instruction)
        skills = resolved(self.skills, given, history)
        return text_runs(self, system, user, rest, turns, listed, skills, label)

    def get_response(self, output: str, input: str | None = None) -> str:
        """The model's answer without the prompt that some engines repeat; markers at its end stay."""
        if input and output.startswith(input):
            return output[len(input) :]
        marker = self._marker()
        if marker is None:
            return output
        if not marker:  # 0.1 splits at an empty ``soa``
            raise PrompterError("ValueError", "empty separator")
        return output.split(marker)[-1]

    # ------------------------------------------------------------ steps

    def _taken(self, given: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
        """What the call brings, the constructor's tools where it brings none."""
        given = copy.deepcopy(given)
        if self.hook is not None:
            given, history, tools, label = self.hook(given, history, tools, label)
        return given, history, resolved(tools or self.tools, given, history), label

    def prepared(self, tools: Any, *, as_text: bool) -> Runs:
        """The instruction, ready for its slots. Raises PrompterError for tools that have no name."""
        instruction = (Run(self.instruction),)
        if not self.dialect.modern:
            return instruction
        return with_tool_tokens(with_preamble(instruction, wanted=as_text and bool(tools)), self.marks, tools)

    def _check(self, turns: Any, rest: Any) -> None:
        """Turns that come out empty are none."""
        if self.form == "alpaca":
            if turns:
                raise PrompterError(
                    "AssertionError", f"Chat history is not supported in <class '{CLASSES[self.form]}'>."
                )
            if rest:
                raise PrompterError("AssertionError", f"All keys should in instruction or {self.dialect.keyword}-keys")

    def split(self, instruction: Runs) -> tuple[Runs, Runs]:
        """System and user part. What the caller gave takes part, tags and all."""
        text = joined(instruction)
        if self.dialect.parts == "none" or USER_BEGINS not in text or USER_ENDS not in text:
            return instruction, ()
        found = user_part(text, self.dialect.parts)
        if found is None:  # the tags stand the wrong way round, or on different lines in 0.1.2
            raise PrompterError("IndexError", "list index out of range")
        if self.dialect.parts == "all":
            until = text.index(USER_BEGINS)
        else:
            until = text.index(f"{USER_BEGINS}{text[slice(*found)]}{USER_ENDS}")
        return cut(instruction, 0, until), cut(instruction, *found)

    def _messages(self, given: Any, history: Any, tools: Any, label: Any) -> dict[str, Any]:
        both = self.tools and tools
        given, history, tools, label = self._taken(given, history, tools, label)
        instruction, rest = fill(self.prepared(tools, as_text=False), given, self.dialect)
        turns = history_messages(self.history, history)
        check_one_source(both, self.dialect)
        self._check(turns, rest)
        system, user = self.split(instruction)
        skills = resolved(self.skills, given, history)
        return as_messages(self, joined(system), joined(user), rest, turns, tools, skills)

    def _passed(self, given: Any, wanted: str | None) -> Any:
        if wanted is None or not self.dialect.modern:
            return given
        made = {"messages": [{"role": "user", "content": given}]}
        return as_anthropic(made) if wanted == "anthropic" else made

    def _marker(self) -> str | None:
        """What stands before an answer; None: nothing."""
        if self.form == "alpaca":
            return self.dialect.answer_after
        if self.form == "empty":
            return None
        return self.marks.soa + self.dialect.chat_tail if self.marks.soa or not self.dialect.modern else None


# ---------------------------------------------------------------- constructors, with the reference's keywords


def alpaca(
    instruction: Any = None, extra_keys: Any = None, show: bool = False, tools: Any = None, *,
    dialect: Dialect = CURRENT, built_in_system: bool = True,
) -> Prompter:  # fmt: skip
    """``AlpacaPrompter``: one turn, everything in the instruction. Raises PrompterError."""
    marks = default_marks(dialect, built_in_system=built_in_system)
    return Prompter("alpaca", alpaca_instruction(instruction, extra_keys, dialect), marks, tools, dialect=dialect)


def chat(
    instruction: Any = None, extra_keys: Any = None, show: bool = False, tools: Any = None, skills: Any = None,
    history: Any = None, *, enable_system: bool = True, dialect: Dialect = CURRENT, built_in_system: bool = True,
) -> Prompter:  # fmt: skip
    """``ChatPrompter``: turns around an instruction. Raises PrompterError."""
    marks = default_marks(dialect, built_in_system=built_in_system)
    template = chat_instruction(instruction, extra_keys, dialect)
    return Prompter("chat", template, marks, tools, skills, history or (), enable_system, dialect=dialect)


def empty(
    show: bool = False, tools: Any = None, skills: Any = None, history: Any = None, *,
    enable_system: bool = True, dialect: Dialect = CURRENT, built_in_system: bool = True,
) -> Prompter:  # fmt: skip
    """``EmptyPrompter``: the input as it is."""
    marks = default_marks(dialect, built_in_system=built_in_system)
    return Prompter("empty", "", marks, tools, skills, history or (), enable_system, dialect=dialect)
