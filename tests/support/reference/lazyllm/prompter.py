"""LazyLLM's Alpaca, Chat and Empty prompters with their arguments (``docs/spec/lazyllm.md`` 3 to 9).

They stand on the gateway's own instruction templates, exact filling, history and assembly.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from metatemplate.prompters.assembly import assemble
from metatemplate.prompters.dialects import CURRENT, PrompterDialect
from metatemplate.prompters.instruction import alpaca_instruction, chat_instruction, write_tools
from metatemplate.prompters.segments import template_text, text_of
from metatemplate.prompters.tokens import default_tokens
from metatemplate.templates.spec import TOKEN_NAMES, TOOL_TOKENS, SpecialTokens
from metatemplate.values.prompt import Segments
from tests.support.reference.lazyllm.checks import (
    check_concatenated,
    check_input,
    current_segments,
    extra_keys_of,
    history_segments,
    instruction_of,
)
from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.exact_fill import fill, prepared, split_parts
from tests.support.reference.lazyllm.messages import anthropic_messages, history_messages, openai_messages

Form = Literal["alpaca", "chat", "empty"]
Hook = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any]]

FORMATS = ("openai", "anthropic")
UNUSED = frozenset({"separator", "plugin", "interpreter", "stop_words"})
"""Names of the table that no prompter reads."""
ALPACA_CLASS = "lazyllm.components.prompter.alpacaPrompter.AlpacaPrompter"

ABSENT: Any = object()
"""No input given; only the Empty prompter distinguishes this from None."""


@dataclass(frozen=True, slots=True)
class Prompter:
    """A prompter with its instruction and its tokens; calls change nothing."""

    form: Form
    instruction: str
    tokens: SpecialTokens
    tools: Any = None
    """A list, or a callable that gives one."""
    skills: Any = None
    """Text, or a callable that gives it."""
    history: Any = ()
    """Turns before those of a call."""
    enable_system: bool = True
    """False: no system message in the dictionary form. Text is not affected, as in LazyLLM."""
    hook: Hook | None = None
    """``pre_hook``: takes and gives (input, history, tools, label)."""
    dialect: PrompterDialect = CURRENT

    def bound(self, tokens: Mapping[str, Any]) -> Prompter:
        """This prompter with a model's tokens. Raises PrompterError for an unknown name."""
        known = [name for name in TOKEN_NAMES if self.dialect.modern or name not in TOOL_TOKENS]
        for name in tokens:
            if name not in known and name not in UNUSED:
                raise PrompterError(
                    "TypeError",
                    f"LazyLLMPrompterBase._set_model_configs() got an unexpected keyword argument {name!r}",
                )
        return replace(self, tokens=self.tokens.updated({name: tokens[name] for name in known if name in tokens}))

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
        """The prompt as text, or as messages with ``format`` or ``return_dict``. Raises PrompterError."""
        wanted = format or ("openai" if return_dict else None)
        if input is ABSENT and self.form == "empty":
            raise PrompterError(
                "TypeError", "EmptyPrompter.generate_prompt() missing 1 required positional argument: 'input'"
            )
        given = None if input is ABSENT else input
        if self.form == "empty":
            if wanted is None or not self.dialect.modern:
                return given
            body: dict[str, Any] = {"messages": [{"role": "user", "content": given}]}
        elif wanted not in FORMATS:
            return self._text(given, history, tools, label, printed=wanted is not None)
        else:
            body = self._messages(given, history, tools, label)
        return anthropic_messages(body) if wanted == "anthropic" else body

    def get_response(self, output: str, input: str | None = None) -> str:
        """The answer without the prompt that some engines repeat; tokens at its end stay."""
        if input and output.startswith(input):
            return output[len(input) :]
        marker = self._marker()
        if marker is None:
            return output
        if not marker:  # 0.1 splits at an empty ``soa``
            raise PrompterError("ValueError", "empty separator")
        return output.split(marker)[-1]

    def _marker(self) -> str | None:
        """The text before an answer; None for none."""
        modern = self.dialect.modern
        if self.form == "alpaca":
            return "### Response:\n" if modern else "### Response:"
        if self.form == "empty" or (modern and not self.tokens.soa):
            return None
        return self.tokens.soa + ("\n" if modern else "")

    def _text(self, given: Any, history: Any, tools: Any, label: Any, *, printed: bool) -> str:
        """``printed``: with an unknown format LazyLLM puts Python's print of history and tools into the text."""
        both = self.tools and tools
        given, history, tools, label = self._arguments(given, history, tools, label)
        instruction, rest = self._filled(given, tools, preamble=bool(tools) and not printed)
        if printed:
            turns: Segments = (template_text(str(history_messages(self.history, history) or "")),)
            listed = str(tools)
        else:
            turns = tuple(history_segments(self.history, history, self.tokens, self.dialect))
            self._check_one_source(both)
            listed = write_tools(tools, self.dialect)
        self._check_alpaca(text_of(turns), rest)
        system, user = split_parts(instruction, self.dialect.parts)
        skills = resolved(self.skills, given, history)
        current: Segments = ()
        in_environment = False
        if self.form == "chat":
            system += str(skills or "")
            current, in_environment = current_segments(rest, self.dialect)
        if label:
            check_concatenated(label)
        parts = assemble(
            self.form,
            self.tokens,
            self.dialect,
            system=(template_text(system),),
            user=(template_text(user),),
            tools=listed,
            history=turns,
            current=current,
            in_environment=in_environment,
            answer=template_text(label) if label else None,
        )
        return text_of(parts)

    def _messages(self, given: Any, history: Any, tools: Any, label: Any) -> dict[str, Any]:
        both = self.tools and tools
        given, history, tools, label = self._arguments(given, history, tools, label)
        instruction, rest = self._filled(given, tools, preamble=False)
        turns = history_messages(self.history, history)
        self._check_one_source(both)
        self._check_alpaca(turns, rest)
        system, user = split_parts(instruction, self.dialect.parts)
        skills = resolved(self.skills, given, history)
        parts = [self.tokens.system, system, skills] if self.enable_system else []
        return openai_messages(parts, user, rest, turns, tools, modern=self.dialect.modern)

    def _arguments(self, given: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
        """The call's arguments after the hook, with the constructor's tools where the call has none."""
        given = copy.deepcopy(given)
        if self.hook is not None:
            given, history, tools, label = self.hook(given, history, tools, label)
        return given, history, resolved(tools or self.tools, given, history), label

    def _filled(self, given: Any, tools: Any, *, preamble: bool) -> tuple[str, Any]:
        instruction = prepared(self.instruction, self.tokens, self.dialect, tools, preamble=preamble)
        check_input(given, self.dialect)
        return fill(instruction, given, self.dialect)

    def _check_alpaca(self, turns: Any, rest: Any) -> None:
        """Turns that come out empty are none."""
        if self.form == "alpaca" and turns:
            raise PrompterError("AssertionError", f"Chat history is not supported in <class '{ALPACA_CLASS}'>.")
        if self.form == "alpaca" and rest:
            spelling = "extra" if self.dialect.modern else "extro"
            raise PrompterError("AssertionError", f"All keys should in instruction or {spelling}-keys")

    def _check_one_source(self, both: Any) -> None:
        """The 0.1 releases take tools from the constructor or from the call."""
        if both and not self.dialect.modern:
            raise PrompterError("AssertionError")


def resolved(given: Any, query: Any, history: Any) -> Any:
    """Tools or skills; a callable is called with the arguments that its signature names."""
    if not callable(given):
        return given
    known: Mapping[str, Any] = {"query": query, "history": history}
    wanted = inspect.signature(given).parameters
    return given(**{name: value for name, value in known.items() if name in wanted})


# ---------------------------------------------------------------- constructors, with LazyLLM's keywords


def _tokens(dialect: PrompterDialect, built_in_system: bool) -> SpecialTokens:
    """``built_in_system``: False as with the option ``disable_system_prompt``."""
    tokens = default_tokens(dialect)
    return tokens if built_in_system else replace(tokens, system="")


def alpaca(
    instruction: Any = None,
    extra_keys: Any = None,
    show: bool = False,
    tools: Any = None,
    *,
    dialect: PrompterDialect = CURRENT,
    built_in_system: bool = True,
) -> Prompter:
    """``AlpacaPrompter``: one turn, everything in the instruction. Raises PrompterError."""
    keys = extra_keys_of(extra_keys)
    template = alpaca_instruction(instruction_of("alpaca", instruction, dialect), keys, dialect)
    return Prompter("alpaca", template, _tokens(dialect, built_in_system), tools, dialect=dialect)


def chat(
    instruction: Any = None,
    extra_keys: Any = None,
    show: bool = False,
    tools: Any = None,
    skills: Any = None,
    history: Any = None,
    *,
    enable_system: bool = True,
    dialect: PrompterDialect = CURRENT,
    built_in_system: bool = True,
) -> Prompter:
    """``ChatPrompter``: turns around an instruction. Raises PrompterError."""
    keys = extra_keys_of(extra_keys)
    template = chat_instruction(instruction_of("chat", instruction, dialect), keys, dialect)
    tokens = _tokens(dialect, built_in_system)
    return Prompter("chat", template, tokens, tools, skills, history or (), enable_system, dialect=dialect)


def empty(
    show: bool = False,
    tools: Any = None,
    skills: Any = None,
    history: Any = None,
    *,
    enable_system: bool = True,
    dialect: PrompterDialect = CURRENT,
    built_in_system: bool = True,
) -> Prompter:
    """``EmptyPrompter``: the input as it is."""
    tokens = _tokens(dialect, built_in_system)
    return Prompter("empty", "", tokens, tools, skills, history or (), enable_system, dialect=dialect)
