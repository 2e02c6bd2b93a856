"""Finds the positions of tokens in the text of a choice, so that log probabilities can be cut with the text.

There are three cases; the case "exact" is by far the most common:

exact    the tokens of a delta spell its text
ahead    the engine sends tokens before their text, because it holds text back to search for stop strings
odd      the tokens do not spell the text: ``<0xE2>``, U+FFFD, raw vocabulary pieces, hidden special tokens

If a token has bytes, its text is decoded from the bytes. A character made of several tokens begins at the first token.
After odd tokens, the next token is searched within a short distance. A token that is not found gets the position where
the previous token ended, so it is kept. An empty token gets the position of the previous character.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence

from metatemplate.values.events import TokenLogprob

MAX_AHEAD = 1024
"""Maximum characters that tokens may be ahead of the text. Stops are not longer, so other tokens are odd."""
_SEARCH = 256
"""Maximum distance in characters of the search after odd tokens; the limit keeps the work linear."""


class TokenAligner:
    """Finds the positions of the tokens of one choice, counted in characters from the start of its text."""

    __slots__ = ("_ahead", "_decoder", "_end", "_placed")

    def __init__(self, start: int = 0) -> None:
        """``start``: number of characters before the first token."""
        self._placed: deque[tuple[int, TokenLogprob]] = deque()
        """Tokens not yet returned, in the engine's order, each as (position of the first character, token)."""
        self._ahead = ""
        """Text of tokens that are ahead: the tokens have arrived, but this text has not."""
        self._end = start
        """Number of characters of text so far."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def idle(self) -> bool:
        """True: no token waits for its text."""
        return not self._placed and not self._ahead

    def passes(self, text: str, tokens: Sequence[TokenLogprob]) -> bool:
        """Return whether no token waits and ``tokens`` spell ``text``. If so, ``text`` is counted."""
        spelled = self.idle and (not tokens or "".join([token.token for token in tokens]) == text)
        if spelled:
            self._end += len(text)
        return spelled

    def feed(self, text: str, tokens: Sequence[TokenLogprob]) -> None:
        """Find the positions of the tokens that came with this text."""
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
        """Remove and return the tokens that begin before position ``until``."""
        taken = []
        while self._placed and self._placed[0][0] < until:
            taken.append(self._placed.popleft()[1])
        return tuple(taken)

    def rest(self, stop: str | None = None) -> tuple[TokenLogprob, ...]:
        """Remove and return all remaining tokens, except the tokens of a ``stop`` that the engine cut from the text."""
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
        """Search ``text`` for each token from ``start`` on, because the tokens together do not spell ``text``."""
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
