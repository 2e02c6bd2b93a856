"""A row of a harness' own file, and what the readers of these files share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

from gateway.evaluate.analysis.client_text import client_text

PREFIX = re.compile("^(req_|chatcmpl-|cmpl-|resp_)")
"""How the ids of a request and of its response begin; the rest is equal."""
END = 64
"""The number of characters of an answer that are kept."""
RowRequest = tuple[str | bytes | None, ...]
"""The id without ``PREFIX``, the hashes of the client's text and of the answer, and the end of the answer.

None: not known, or no text.
"""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A row of a harness. It does not keep its texts."""

    id: str
    """``HARNESS:TASK/NUMBER``, where the number has no slash."""
    scores: Mapping[str, Any]
    """The scores by name, in the order of the harness, as they are in the file. Empty: the row is not scored."""
    requests: Sequence[RowRequest]
    score: float | None = None
    """The score that counts. None: the row is not scored."""


def one_line(text: str) -> str:
    """Return a text with one space in place of any white space."""
    return " ".join(text.split())


def text_hash(text: str) -> bytes:
    """Return the hash of a text, in which any white space counts as one space. Empty for an empty text."""
    words = one_line(text)
    return blake2b(words.encode(errors="surrogatepass"), digest_size=16).digest() if words else b""


def requests_of(texts: Sequence[str], answers: Sequence[str], ids: Sequence[str] = ()) -> tuple[RowRequest, ...]:
    """Return the requests of a row. ``answers``: of the first requests. ``ids``: of all requests, or none.

    If there is another number of ids than of texts, the requests have only the ids.
    """
    if ids and len(ids) != len(texts):
        texts = answers = [""] * len(ids)
    bare, received = [PREFIX.sub("", one) for one in ids], answers[: len(texts)]
    ends = [one_line(one)[-END:] for one in received]
    return tuple(zip_longest(bare, map(text_hash, texts), map(text_hash, received), ends))


def contents(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the client's text of messages. Parts without ``text``, such as reasoning, are left out."""
    found = [one.get("content") or "" for one in messages]
    return client_text(
        {"messages": [one if isinstance(one, str) else [part.get("text") for part in one] for one in found]}
    )


def dialogue_requests(messages: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> tuple[RowRequest, ...]:
    """Return a request for each generated message, and without one a request for all messages."""
    generated = [at for at, one in enumerate(messages) if one.get("source") == "generate"]
    texts = [contents(messages[:at]) for at in generated] or [contents(messages)]
    return requests_of(texts, [contents(messages[at : at + 1]) for at in generated], ids)
