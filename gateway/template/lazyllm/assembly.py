"""In which order do the pieces of a prompt stand? As text and as messages (``specs/lazyllm.md`` 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gateway.template.lazyllm.errors import PrompterError
from gateway.template.lazyllm.history import last_content, need
from gateway.template.lazyllm.runs import Run, Runs, without_leading

if TYPE_CHECKING:  # the prompter stands on this file
    from gateway.template.lazyllm.prompter import Prompter

ANSWER = "### Response:\n"
"""What stands before a single-turn form's answer."""


def text_runs(
    prompter: Prompter, system: Runs, user: Runs, rest: Any, turns: Runs, listed: str, skills: Any, label: Any
) -> Runs:
    """The text form's pieces, the label last."""
    tools = Run(listed, "tools", True)
    if prompter.form == "alpaca":
        tail = prompter.dialect.tail
        runs = (
            Run(f"{prompter.marks.system}\n"), *system, Run("\n"), tools, Run(tail), *user,
            Run(ANSWER, "generate"),
        )  # fmt: skip
    else:
        runs = (*_head(prompter, system, tools, skills), *turns, *_turn(prompter, user, rest))
    if label:
        if not isinstance(label, str):
            raise PrompterError("TypeError", f'can only concatenate str (not "{type(label).__name__}") to str')
        runs = (*runs, Run(label, "label", True))
    return without_leading(runs, "\n") if prompter.dialect.modern else runs


def _head(prompter: Prompter, system: Runs, tools: Run, skills: Any) -> Iterator[Run]:
    marks = prompter.marks
    yield Run(marks.sos + marks.system)
    yield from system
    yield Run(str(skills or ""))
    yield tools
    yield Run(f"{marks.eos}\n\n")


def _turn(prompter: Prompter, user: Runs, rest: Any) -> Iterator[Run]:
    """The turn that is asked now, and the beginning of its answer."""
    marks, begin, end = prompter.marks, prompter.marks.soh, prompter.marks.eoh
    said: Runs
    if prompter.dialect.modern and isinstance(rest, (list, dict)):
        said = tuple(_joined_messages(rest))
        if any(message.get("role") == "tool" for message in rest):
            begin, end = marks.soe or begin, marks.eoe or end
    else:
        said = (Run(str(rest), "input", True),)
    yield Run(f"\n{begin}\n", "input")
    yield from user
    yield from said
    yield Run(f"\n{end}", "input")
    yield Run(f"{marks.soa}\n", "generate")


def _joined_messages(messages: Any) -> Iterator[Run]:
    if isinstance(messages, dict) or not all(isinstance(message, dict) for message in messages):
        # A single message is taken for a list of its keys.
        raise PrompterError("AttributeError", "'str' object has no attribute 'get'")
    texts = [message.get("content", "") for message in messages]
    _check_texts(texts)
    for number, text in enumerate(texts):
        if number:
            yield Run("\n", "input")
        yield Run(text, f"input[{number}]", True)


def _check_texts(parts: list[Any]) -> None:
    """What ``str.join`` says of parts that are no text."""
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            raise PrompterError(
                "TypeError", f"sequence item {number}: expected str instance, {type(part).__name__} found"
            )


# ---------------------------------------------------------------- messages


def as_messages(
    prompter: Prompter, system: str, user: str, rest: Any, turns: list[Any], tools: Any, skills: Any
) -> dict[str, Any]:
    """The dict form: OpenAI's body without a model."""
    messages = [*turns, *_last_messages(rest, modern=prompter.dialect.modern)]
    if user:
        content = last_content(messages)
        if not isinstance(content, str):
            raise PrompterError("TypeError", f'can only concatenate str (not "{type(content).__name__}") to str')
        messages[-1] = {**messages[-1], "content": user + content}
    if prompter.enable_system:
        parts = [part for part in (prompter.marks.system, system, skills) if part]
        if system and not prompter.dialect.modern:
            parts = [prompter.marks.system, system]  # the line break comes without a system sentence, too
        _check_texts(parts)
        messages.insert(0, {"role": "system", "content": "\n".join(parts)})
    return {"messages": messages, "tools": tools} if tools else {"messages": messages}


def _last_messages(rest: Any, *, modern: bool) -> list[Any]:
    if isinstance(rest, str):
        return [{"role": "user", "content": rest}]
    if isinstance(rest, dict):
        return [rest]
    if modern and isinstance(rest, list) and all(isinstance(message, dict) for message in rest):
        return list(rest)
    if modern and isinstance(rest, tuple) and len(rest) == 1:
        return [{"role": "user", "content": rest[0]}]
    raise PrompterError("TypeError", "input must be a string or a dict")


def as_anthropic(made: Mapping[str, Any]) -> dict[str, Any]:
    """The system messages taken out; the last one wins, as in the reference."""
    found: dict[str, Any] = {}
    messages: list[Any] = []
    for message in made["messages"]:
        if message.get("role") == "system":
            found["system"] = need(message, "content")
        else:
            messages.append(message)
    return {**found, "messages": messages, **({"tools": made["tools"]} if made.get("tools") else {})}
