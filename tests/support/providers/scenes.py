"""The scenes that fake providers play, in every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

TEXTS: Mapping[str, tuple[str, ...]] = {
    "chat": ("Hel", "lo ", "there"),
    "json": ('{"answer":', " 4}"),
    "ignores": ("Sure", "! Here ", "it is."),  # not JSON and no call, whatever the request asks for
    "stop": ("one ", "two ", "END", " three"),
}
"""The pieces of each scene's answer. A scene without a row here answers as ``chat``."""

CITIES = ("Paris", "Rome")
"""The arguments of the two tool calls that a request with tools is answered with."""

PROMPT_TOKENS, COMPLETION_TOKENS = 7, 3

REASON = "the value of top_p is out of range"
"""The provider's message for the scene ``error 400``."""

End = Literal["whole", "cut", "break", "hang"]
"""The ends of a reply: complete, without its last chunks, by a broken connection, or never."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the provider received it."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: a JSON body, or the chunks of a stream."""

    body: Mapping[str, Any] | str | Iterable[str]
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    end: End = "whole"


@dataclass(frozen=True, slots=True)
class Scene:
    """What to play, read from the last user message."""

    name: str
    status: int
    """The status of an ``error`` scene; 200 for all others."""
    end: End
    pieces: tuple[str, ...]
    """The answer's text, cut at the stop strings."""
    finish: Literal["stop", "length", "tools"]
    calls: tuple[str, ...]
    """The cities of the tool calls; empty for an answer in text."""


def scene(text: str, *, tools: bool, result: str, stops: Sequence[str], limit: int | None) -> Scene:
    """``text``: of the last user message. ``result``: of the last tool message, empty if there is none.

    Every piece of text counts as one token, so ``limit`` is a number of pieces.
    """
    name, _, rest = text.partition(" ")
    status = int(rest) if name == "error" else 400 if name in ("context", "key") else 200
    end: End = name if name in ("cut", "break", "hang") else "whole"  # type: ignore[assignment]
    if tools and not result and name == "chat":
        return Scene(name, status, end, (), "tools", CITIES)
    pieces = (f"It is {result}",) if result else TEXTS.get(name, TEXTS["chat"])
    for at, piece in enumerate(pieces):
        if piece in stops:
            pieces = pieces[:at]
            break
    if limit is not None and limit < len(pieces):
        return Scene(name, status, end, pieces[:limit], "length", ())
    return Scene(name, status, end, pieces, "stop", ())


def told(chunks: Sequence[str], end: End) -> Sequence[str]:
    """The chunks that go out: all of them, or only the first ones of a stream that does not end as it should."""
    return chunks if end == "whole" else chunks[:2] if end in ("cut", "break") else ()


def sse(value: Mapping[str, Any], event: str = "") -> str:
    """One server-sent event."""
    return (f"event: {event}\n" if event else "") + f"data: {json.dumps(value)}\n\n"
