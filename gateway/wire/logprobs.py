"""Reads and writes log probabilities in OpenAI's two formats: arrays for completions, objects for chat.

Numbers are never changed. A value that a format cannot contain is left out, such as ``text_offset`` in chat. For chat,
missing ``bytes`` are computed from the token's text. Any other format raises ``UpstreamInvalidResponse``, because a
guessed log probability would be a wrong score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.errors import UpstreamInvalidResponse
from metatemplate.values.events import TokenLogprob

_Top = tuple[tuple[str, float, tuple[int, ...] | None], ...]


# ---------------------------------------------------------------- completions: parallel arrays


def from_completions(shape: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
    """Read ``{tokens, token_logprobs, top_logprobs, text_offset}``. An absent or null array is read as many nulls."""
    tokens = _array(shape, "tokens") or []
    logprobs = _column(shape, "token_logprobs", len(tokens))
    tops = _column(shape, "top_logprobs", len(tokens))
    offsets = _column(shape, "text_offset", len(tokens))
    return tuple(
        TokenLogprob(_text(token), _number(logprob), _top_of_mapping(top), offset=_offset(offset))
        for token, logprob, top, offset in zip(tokens, logprobs, tops, offsets, strict=True)
    )


def to_completions(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Return the arrays. ``top_logprobs`` is null without alternatives. ``text_offset`` is absent without offsets.

    If the only token is the first token of an echoed prompt, ``top_logprobs`` is ``[null]``.
    """
    shape: dict[str, Any] = {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": None,
    }
    alone = len(tokens) == 1 and tokens[0].logprob is None
    if alone or any(token.top is not None for token in tokens):
        shape["top_logprobs"] = [None if token.top is None else _mapping_of_top(token.top) for token in tokens]
    if all(token.offset is not None for token in tokens):
        shape["text_offset"] = [token.offset for token in tokens]
    return shape


def _array(shape: Mapping[str, Any], key: str) -> list[Any] | None:
    value = shape.get(key)
    if value is None or isinstance(value, list):
        return value
    raise UpstreamInvalidResponse(f"the model's server sent logprobs.{key} that is not an array")


def _column(shape: Mapping[str, Any], key: str, length: int) -> list[Any]:
    values = _array(shape, key)
    if values is None:
        return [None] * length
    if len(values) != length:
        raise UpstreamInvalidResponse(
            f"the model's server sent logprobs.{key} with {len(values)} entries for {length} tokens"
        )
    return values


def _top_of_mapping(top: object) -> _Top | None:
    return None if top is None else tuple((token, _checked(one), None) for token, one in _object(top).items())


def _object(top: object) -> dict[str, Any]:
    if not isinstance(top, dict):
        raise UpstreamInvalidResponse("the model's server sent a top_logprobs entry that is not an object")
    return top


def _mapping_of_top(top: _Top) -> dict[str, float]:
    mapping: dict[str, float] = {}
    for token, logprob, _ in top:
        mapping.setdefault(token, logprob)  # two byte tokens may have the same text; the more likely one comes first
    return mapping


# ---------------------------------------------------------------- chat: a list of objects


def from_chat(shape: Mapping[str, Any]) -> tuple[TokenLogprob, ...] | None:
    """Read ``{content: [{token, logprob, bytes, top_logprobs}]}``; None if ``content`` is null or absent."""
    entries = _array(shape, "content")
    return None if entries is None else tuple(_from_entry(entry) for entry in entries)


def to_chat(tokens: Sequence[TokenLogprob], most: int | None = None) -> dict[str, Any]:
    """Return the objects. ``top_logprobs`` is a list. ``logprob`` is null only for an echoed prompt's first token.

    ``most``: maximum alternatives that are written for each token; None: all alternatives are written.
    """
    return {
        "content": [
            {
                **_entry(token.token, token.logprob, token.bytes),
                "top_logprobs": [_entry(*alternative) for alternative in (token.top or ())[:most]],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def _from_entry(entry: object) -> TokenLogprob:
    if not isinstance(entry, dict):
        raise UpstreamInvalidResponse("the model's server sent a logprobs entry that is not an object")
    tops = _array(entry, "top_logprobs")
    return TokenLogprob(
        _text(entry.get("token")),
        _number(entry.get("logprob")),
        None if tops is None else tuple(_alternative(top) for top in tops),
        _bytes(entry.get("bytes")),
    )


def _alternative(top: object) -> tuple[str, float, tuple[int, ...] | None]:
    entry = _object(top)
    return _text(entry.get("token")), _checked(entry.get("logprob")), _bytes(entry.get("bytes"))


def _entry(token: str, logprob: float | None, raw: tuple[int, ...] | None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": _utf8(token) if raw is None else list(raw)}


def _utf8(token: str) -> list[int] | None:
    """Return the UTF-8 bytes of a token; None if the token contains only part of a character, shown as U+FFFD."""
    if "\ufffd" in token:
        return None
    try:
        return list(token.encode())
    except UnicodeEncodeError:
        return None


# ---------------------------------------------------------------- single values


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise UpstreamInvalidResponse("the model's server sent a logprobs token that is not a string")


def _number(value: Any) -> float | None:
    """Return the number unchanged, as int or float; None for null."""
    return None if value is None else _checked(value)


def _checked(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise UpstreamInvalidResponse("the model's server sent a log probability that is not a number")


def _offset(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise UpstreamInvalidResponse("the model's server sent a text_offset that is not an integer")


def _bytes(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if isinstance(value, list) and all(type(byte) is int and 0 <= byte < 256 for byte in value):
        return tuple(value)
    raise UpstreamInvalidResponse("the model's server sent logprobs bytes that are not a list of bytes")
