"""Positions of tokens in the text of a choice, needed to cut log probabilities with the text.

There are three cases, the first by far the most common:

exact    the tokens of a delta spell its text
ahead    the engine holds text back (for its own stop strings) but not the tokens, which spell text still to come
odd      the tokens do not spell the text: ``<0xE2>``, U+FFFD, raw vocabulary pieces, hidden special tokens

Where a token has bytes, these are its spelling; so a character made of several tokens begins with the first.
After odd tokens the next matching one is searched a little further on. A token that cannot be placed stands where the
one before it ended, so it is kept. A token of no width goes with the character before it.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence

from gateway.core.events import TokenLogprob

MAX_AHEAD = 1024
"""Characters; tokens that are ahead of the text by more than a stop's length do not belong to it."""
_SEARCH = 256
"""Characters searched for a token after odd ones; bounded, so that the work stays linear."""


class TokenAligner:
    """Places the tokens of one choice; positions count the characters of its whole text."""

    __slots__ = ("_ahead", "_decoder", "_end", "_placed")

    def __init__(self, start: int = 0) -> None:
        """``start``: characters of text before the first token."""
        self._placed: deque[tuple[int, TokenLogprob]] = deque()
        """(position of the first character, token) in the engine's order; not yet taken."""
        self._ahead = ""
        """Text that the tokens spell beyond the text received."""
        self._end = start
        """Characters of text so far."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def idle(self) -> bool:
        """True: no token waits for its text."""
        return not self._placed and not self._ahead

    def passes(self, text: str, tokens: Sequence[TokenLogprob]) -> bool:
        """True: no token waits and these spell exactly this text, which is then counted. False: nothing is done."""
        spelled = self.idle and (not tokens or "".join([token.token for token in tokens]) == text)
        if spelled:
            self._end += len(text)
        return spelled

    def feed(self, text: str, tokens: Sequence[TokenLogprob]) -> None:
        """Place the tokens that came with this text."""
        start = self._end
        self._end += len(text)
        if not tokens and self.idle:
            return
        at = start + len(self._ahead)
        words = [self._ahead]
        for token in tokens:
            word = self._spelling(token)
            inside = bool(word) or bool(self._decoder.getstate()[0])
            self._placed.append((at if inside else at - 1, token))
            at += len(word)
            words.append(word)
        spelled = "".join(words)
        if spelled.startswith(text) and len(spelled) - len(text) <= MAX_AHEAD:
            self._ahead = spelled[len(text) :]
        else:
            self._place_again(text, start)

    def take(self, until: int) -> tuple[TokenLogprob, ...]:
        """Remove and return the tokens that begin before this character."""
        taken = []
        while self._placed and self._placed[0][0] < until:
            taken.append(self._placed.popleft()[1])
        return tuple(taken)

    def rest(self, stop: str | None = None) -> tuple[TokenLogprob, ...]:
        """Remove and return all other tokens, except those of a ``stop`` that the engine cut from the text."""
        left = self.take(self._end) if stop and self._ahead.startswith(stop) else tuple(t for _, t in self._placed)
        self._placed.clear()
        self._ahead = ""
        return left

    def _spelling(self, token: TokenLogprob) -> str:
        if token.bytes is None:
            self._decoder.reset()
            return token.token
        return self._decoder.decode(bytes(token.bytes))

    def _place_again(self, text: str, start: int) -> None:
        """Search ``text`` for each token from ``start`` on, because together they do not spell it."""
        again: deque[TokenLogprob] = deque()
        while self._placed and self._placed[-1][0] >= start:
            again.appendleft(self._placed.pop()[1])
        at = missed = 0
        for token in again:
            word = token.token
            found = text.find(word, at, at + len(word) + min(missed, _SEARCH)) if word else -1
            if found >= 0:
                self._placed.append((start + found, token))
                at, missed = found + len(word), 0
            else:
                self._placed.append((start + at if word and text else start + at - 1, token))
                missed += max(1, len(word))
        self._ahead = ""
        self._decoder.reset()
