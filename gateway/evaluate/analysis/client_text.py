"""The texts of a client's request, as it is recorded (``calls.asked``), and what lists show of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.evaluate.analysis.rows import RunRow
from gateway.wire.json import dump_json
from metatemplate.values.words import printable

SHORT = 60
"""The maximum number of characters of a text in a list."""
NO_TEXTS = frozenset(
    {
        *("role", "type", "tools", "tool_calls", "tool_call_id"),
        *("image_url", "input_audio", "video_url", "file"),
        *("id", "version", "mode", "normalize"),
    }
)
"""The keys of messages, of content parts and of ``gateway`` whose values are no text for the model."""


def client_text(asked: Mapping[str, Any]) -> str:
    """Return the texts of a request in their order, joined by line breaks.

    These are the contents of messages, the prompts, or the values of the variables of a dataset prompt.
    """
    return "\n".join(_texts(asked))


def question_text(asked: Mapping[str, Any]) -> str:
    """Return the texts of a request after the last answer that is followed by a message: without examples in messages.

    An answer at the end stays: the model continues it.
    """
    messages = asked.get("messages") or []
    answers = [at for at, one in enumerate(messages[:-1]) if one.get("role") == "assistant"]
    return client_text({**asked, "messages": messages[answers[-1] + 1 :]} if answers else asked)


def question_of(row: RunRow) -> str:
    """Return the beginning of a row's question, as lists show it; empty if it is unknown."""
    return beginning(plain_question(row.read_asked(redacted=True) or {}))


def plain_question(asked: Mapping[str, Any]) -> str:
    """Return ``question_text`` without system messages, if there are others."""
    messages = [one for one in asked.get("messages") or () if one.get("role") not in ("system", "developer")]
    return question_text({**asked, "messages": messages} if messages else asked)


def expected_of(row: RunRow) -> str:
    """Return the beginning of ``expected_text``."""
    return beginning(expected_text(row))


def expected_text(row: RunRow) -> str:
    """Return the expected answer in the kept column ``answer``: a text, or JSON; empty if it is null or missing."""
    value = row.columns.get("answer")
    return value if isinstance(value, str) else "" if value is None else dump_json(value)


def beginning(text: str) -> str:
    """Return the first ``SHORT`` characters of a text on one line, with ``…`` if it is longer."""
    line = printable(" ".join(text[: 10 * SHORT].split()))
    return line if len(line) <= SHORT and len(text) <= 10 * SHORT else f"{line[: SHORT - 1]}…"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in NO_TEXTS:
                yield from _texts(inner)
