"""What a tokenizer makes of a changed marker: disguised forms that it still reads, and a marker in parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from metatemplate.markers.marker_set import JOINER
from metatemplate.tokenizer import Tokenizer

FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
"""Code point of an ASCII character → code point of its full-width form."""
DISGUISES: tuple[Callable[[str], str], ...] = (
    lambda marker: marker[0] + JOINER + marker[1:],
    lambda marker: marker.translate(FULL_WIDTH),
    str.upper,
    str.lower,
    lambda marker: re.sub("([A-Za-z])", "\\1\u0301", marker, count=1),
)
"""The changes after which a tokenizer that normalizes texts may still read a marker. The last adds an accent."""


def disguised(tokenizer: Tokenizer, markers: Sequence[str]) -> str:
    """Return the first changed form of a marker that the tokenizer still reads as this marker, or an empty string.

    Some tokenizers normalize texts: they remove invisible characters, including the character that ``escape`` inserts,
    or replace characters by their plain forms.
    """
    added = tokenizer.added_tokens()
    for marker in markers:
        for change in DISGUISES if marker in added else ():
            form = change(marker)
            if form != marker and marker in tokenizer.names(tokenizer.tokenize(form, False)):
                return form
    return ""


def split_ids(tokenizer: Tokenizer, text: str, breaks: Sequence[int], *, special: bool) -> tuple[int, ...]:
    """Return the token ids of a text that is split at ``breaks`` and tokenized in parts.

    ``special``: whether the special tokens before a text (BOS) are added.
    """
    ids: list[int] = []
    if special:
        encoding = tokenizer.encode(text[:1], True)
        ids += encoding.ids[: (*encoding.special_tokens_mask, 0).index(0)]
    for begin, end in zip((0, *breaks), (*breaks, len(text)), strict=True):
        ids += tokenizer.tokenize(text[begin:end], False)
    return tuple(ids)


def splits_exactly(tokenizer: Tokenizer, markers: Sequence[str]) -> bool:
    """Return whether a marker that is tokenized in parts decodes to the same text and gives no marker token."""
    for marker in markers:
        ids = split_ids(tokenizer, f"a{marker}b", (2,), special=False)
        if tokenizer.detokenize(list(ids)) != f"a{marker}b" or marker in tokenizer.names(ids):
            return False
    return True
