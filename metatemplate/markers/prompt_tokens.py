"""Encodes a prompt as token ids, so that control tokens come from text of the template only.

A control token is a special token, or another added token that is a marker, such as ``<think>``. Other added tokens,
such as a run of blanks, are vocabulary: a client may write them.

A copy of the tokenizer reads a secret alias in place of each control token. The control tokens in text of the template
are replaced by their aliases, and the whole prompt is encoded in one call. So the text of a client contains no control
token for the copy, text merges across the borders of the segments, and white space beside a control token is read as
the tokenizer reads it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import groupby, pairwise

from metatemplate.errors import ForgedMarker
from metatemplate.markers.marker_rule import refusal
from metatemplate.markers.marker_set import TOKEN_LIKE, any_of
from metatemplate.tokenizer import Tokenizer, is_short
from metatemplate.values.prompt import MIXED, DeferredSegments, Prompt, Segment


class PromptTokenizer:
    """A tokenizer that knows which text of a prompt comes from the template. May be used in several threads."""

    def __init__(self, tokenizer: Tokenizer, markers: Collection[str] = ()) -> None:
        """``markers``: further texts that are control tokens if the tokenizer has them as added tokens. Blocks."""
        self.tokenizer = tokenizer
        added = tokenizer.added_tokens()
        self.control = tuple([one for one in added if one and (added[one] or TOKEN_LIKE.search(one) or one in markers)])
        """The control tokens of the tokenizer."""
        secret, ids = secrets.token_hex(16), tokenizer.added_ids()
        self._aliases = {token: f"<{secret}{number}>" for number, token in enumerate(self.control)}
        self._break = f"<{secret}>"
        self._renamed = tokenizer.renamed(self._aliases, self._break)
        tokens, copied = {alias: token for token, alias in self._aliases.items()}, self._renamed.added_ids()
        self._alias_ids = {copied[alias] for alias in tokens}
        self._real: dict[int, tuple[int, ...]] = {
            number: (ids[tokens.get(text, text)],) for text, number in copied.items() if text != self._break
        }
        """Id of an added token of the copy → id of this token for the tokenizer. A break has no id."""
        self._real[copied[self._break]] = ()
        self._control_ids = {ids[one] for one in self.control}.difference([tokenizer.unknown_id()])
        self._search = re.compile(any_of(self.control))

    def encode(self, segments: Sequence[Segment], breaks: Sequence[int] = (), *, special: bool) -> tuple[int, ...]:
        """Return the token ids of a prompt.

        ``breaks``: offsets in the prompt, in increasing order, at which a new token begins in text of the client; a
        control token needs no break. ``special``: whether the tokenizer adds its special tokens (BOS). Raises
        ``ForgedMarker`` for a control token whose origin is not known, and for one that the vocabulary makes of the
        client's text.
        """
        parts, aliases, at = list[str](), 0, 0
        if breaks:
            whole = "".join([one.text for one in segments])
            breaks = [one for one in breaks if not self._search.match(whole, one - 1)]
        for scaffold, run in groupby([one for one in segments if one.text], key=lambda one: one.scaffold):
            pieces = list(run)
            text = "".join([one.text for one in pieces])
            if scaffold:
                written, number = self._search.subn(lambda found: self._aliases[found[0]], text)
                aliases += number
            else:
                if any(one.origin == MIXED and self._search.search(one.text) for one in pieces):
                    raise refusal("messages")
                cuts = [cut - at for cut in breaks[bisect_left(breaks, at) : bisect_left(breaks, at + len(text))]]
                written = self._break.join([text[begin:end] for begin, end in pairwise((0, *cuts, len(text)))])
            parts.append(written)
            at += len(text)
        encoding = self._renamed.encode("".join(parts), special)
        ids = list[int]()
        for one, is_around in zip(encoding.ids, encoding.special_tokens_mask, strict=True):
            if is_around:  # such as the BOS, which the tokenizer adds to every text
                ids.append(one)
            elif one in self._real:
                ids += self._real[one]
                aliases -= one in self._alias_ids
            elif one in self._control_ids:
                raise _made_by_tokenizer()
            else:
                ids.append(one)
        if aliases:
            raise _made_by_tokenizer()
        return tuple(ids)

    async def ids(self, prompt: Prompt, *, special: bool) -> tuple[int, ...]:
        """Return the token ids of a rendered prompt without blocking the event loop. See ``encode``."""

        def encoded() -> tuple[int, ...]:
            return self.encode(prompt.segments or (), prompt.breaks, special=special)

        if is_short(prompt.text) and not isinstance(prompt.source, DeferredSegments):
            return encoded()
        return await asyncio.to_thread(encoded)

    def splits_exactly(self, markers: Sequence[str]) -> bool:
        """Return whether each marker decodes to the same text if a new token begins after its first character."""
        for marker in markers:
            ids = self.encode([Segment(f"a{marker}b", "", "", False)], (2,), special=False)
            if self.tokenizer.detokenize(list(ids)) != f"a{marker}b":
                return False
        return True


def _made_by_tokenizer() -> ForgedMarker:
    return refusal("messages", "characters from which this model's tokenizer makes a special token that separates")
