"""How does one choice grow, from its prompt to its last token?

A ``Generation`` hands out the tokens the model has not seen yet, takes back the scores, and says
what the client gets: text, logprobs, the end. It knows nothing of threads or of its neighbours.

Five ways to end: a token of ``stop_token_ids``; an end token of the model; a stop string in the
text; ``max_tokens``; the context is full. The first three are "stop", the others "length".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gateway.backend.embedded.architecture import ModelShape
from gateway.backend.embedded.llama import Cache
from gateway.backend.embedded.sampling import Sampler, Scores, log_softmax
from gateway.backend.embedded.text import Unfolding, Vocabulary, token_name
from gateway.backend.embedded.weights import Array
from gateway.backend.embedded.worker_thread import Reading, Work
from gateway.core.events import Delta, Event, Finish, TokenLogprob
from gateway.stream.stop_search import StopScanner

CHUNK = 128
"""Prompt tokens a sequence brings to one step. Fixed, so that neighbours do not change its numbers."""
AT_FIRST = 256
"""Answer positions for which memory is taken before they are needed."""


class Generation:
    """One choice of one call."""

    def __init__(self, work: Work, reading: Reading, index: int, vocabulary: Vocabulary, shape: ModelShape) -> None:
        self._work, self._ask, self._reading, self._index = work, work.ask, reading, index
        self._vocabulary, self._shape = vocabulary, shape
        self._room = min(self._ask.max_tokens, shape.context - len(reading.tokens))
        self._pending = list(reading.tokens)
        self._sampler = Sampler(self._ask.sampling, reading.tokens, index % work.n)
        self._unfolding = Unfolding(vocabulary, self._ask.skip_special_tokens)
        self._scanner = StopScanner(work.stops)
        self._prompt_scores: list[TokenLogprob] = []
        self._prompt_ranks: list[Mapping[str, Any] | None] = [None]
        self._read = 0
        self._decoded = 0
        self._released = 0
        self._held: deque[tuple[int, int, TokenLogprob]] = deque()
        """Logprobs whose text still waits: start, end, entry."""
        self.cache = Cache(shape, len(reading.tokens) + min(self._room, AT_FIRST))
        self.generated = 0
        """Tokens chosen so far, the one that ended it included."""

    @property
    def next_tokens(self) -> Sequence[int]:
        """What the model should see in the next step."""
        return self._pending[:CHUNK]

    def wanted(self, states: Array) -> Array:
        """Those of the step's states that need scores: all to score a prompt, the last one to go on, else none."""
        if self._scores_prompt:
            return states
        return states[-1:] if len(self._pending) <= CHUNK and self._room else states[:0]

    def advance(self, logits: Array) -> tuple[Event, ...]:
        """Take the scores of the wanted states; what there is to tell, ending with a ``Finish`` at the end."""
        seen = self.next_tokens
        if self._scores_prompt:
            self._score_prompt(logits)
        self._read += len(seen)
        self._pending = self._pending[CHUNK:]
        if self._pending:
            return ()
        told = () if self.generated else self._opening()
        if not self._room:
            return (*told, Finish(self._index, "length"))
        return (*told, *self._grown(logits[-1]))

    # ------------------------------------------------------------ the prompt

    @property
    def _scores_prompt(self) -> bool:
        echoed = self._ask.echo and self._ask.logprobs is not None
        return not self.generated and (echoed or self._ask.prompt_logprobs is not None)

    def _score_prompt(self, logits: Array) -> None:
        """Row i tells how likely the token after it was; the last one's successor is no prompt token."""
        following = self._reading.tokens[self._read + 1 : self._read + 1 + len(logits)]
        for token, row in zip(following, logits, strict=False):
            scores = log_softmax(row)
            if self._ask.logprobs is not None:
                self._prompt_scores.append(self._entry(token, scores, self._ask.logprobs))
            if self._ask.prompt_logprobs is not None:
                self._prompt_ranks.append(self._ranked(token, scores, self._ask.prompt_logprobs))

    def _opening(self) -> tuple[Event, ...]:
        """What is told of the prompt: its text, its logprobs, both or nothing."""
        extras = {"prompt_logprobs": self._prompt_ranks} if self._ask.prompt_logprobs is not None else {}
        if not self._ask.echo:
            return (Delta(self._index, extras=extras),) if extras else ()
        text, entries = self._echo()
        shown = entries if self._ask.logprobs is not None else None
        return (Delta(self._index, text, shown, extras=extras),)

    def _echo(self) -> tuple[str, tuple[TokenLogprob, ...]]:
        tokens, entries, text = self._reading.tokens, [], ""
        # For ids the decoder is the answer's own, so that a character may begin in the prompt and end in the answer.
        unfolding = self._unfolding if self._reading.text is None else Unfolding(self._vocabulary, False)
        first = TokenLogprob("", None)
        for place in range(self._reading.unseen, len(tokens)):
            if self._ask.logprobs is not None:
                known = self._prompt_scores[place - 1] if place > self._reading.unseen else first
                spelling = self._vocabulary.spelling(tokens[place])
                entries.append(replace(known, token=token_name(spelling), bytes=tuple(spelling), offset=len(text)))
            text += unfolding.feed(tokens[place])
        if self._reading.text is not None:
            text = self._reading.text
        self._decoded = self._released = len(text)
        return text, tuple(entries)

    # ------------------------------------------------------------ the answer

    def _grown(self, row: Array) -> tuple[Event, ...]:
        token = self._sampler.choose(row)
        self.generated += 1
        entry = None
        if self._ask.logprobs is not None:
            entry = replace(self._entry(token, log_softmax(row), self._ask.logprobs), offset=self._decoded)
        if token in self._work.stop_token_ids:
            return self._ended("stop", token, entry)
        if token in self._shape.eos and not self._ask.ignore_eos:
            return self._ended("stop", None, entry)
        text, matched = self._heard(self._unfolding.feed(token), entry)
        if matched is not None:
            return self._told(text, self._cut(), Finish(self._index, "stop", matched))
        if self.generated >= self._room:
            return self._ended("length", None, None, text)
        self._pending = [token]
        return self._told(text, self._whole())

    def _heard(self, text: str, entry: TokenLogprob | None) -> tuple[str, str | None]:
        """New text through the stop scanner: what may go out, and the stop that was found."""
        start = self._decoded
        self._decoded += len(text)
        if entry is not None:
            self._held.append((start, self._decoded, entry))
        out, matched = self._scanner.feed(text)
        self._released += len(out)
        return out, matched

    def _ended(
        self, reason: str, matched: int | None, ending: TokenLogprob | None, text: str = ""
    ) -> tuple[Event, ...]:
        """The end without a stop string: what was held back belongs to the client."""
        more, found = self._heard(self._unfolding.flush(), None)
        if found is not None:
            return self._told(text + more, self._cut(), Finish(self._index, "stop", found))
        rest = self._scanner.flush()
        entries = [entry for _, _, entry in self._held]
        # A token that ends the answer has no text. Scorers (echo) still count one entry per generated token.
        if ending is not None and self._ask.echo:
            entries.append(ending)
        return self._told(text + more + rest, entries, Finish(self._index, reason, matched))

    def _whole(self) -> list[TokenLogprob]:
        """Entries whose text has gone out in full."""
        entries = []
        while self._held and self._held[0][1] <= self._released:
            entries.append(self._held.popleft()[2])
        return entries

    def _cut(self) -> list[TokenLogprob]:
        """Entries that begin before the stop."""
        return [entry for start, _, entry in self._held if start < self._released]

    def _told(self, text: str, entries: list[TokenLogprob], end: Finish | None = None) -> tuple[Event, ...]:
        shown = tuple(entries) if self._ask.logprobs is not None and entries else None
        news: list[Event] = [Delta(self._index, text, shown)] if text or shown else []
        return (*news, end) if end else tuple(news)

    # ------------------------------------------------------------ logprobs

    def _entry(self, token: int, scores: Scores, alternatives: int) -> TokenLogprob:
        """A token with the model's own log probability, before temperature and penalties."""
        spelling = self._vocabulary.spelling(token)
        top = None
        if alternatives:
            chosen = [*_likeliest(scores, alternatives)]
            named = [(item, self._vocabulary.spelling(item)) for item in dict.fromkeys([*chosen, token])]
            top = tuple((token_name(raw), float(scores[item]), tuple(raw)) for item, raw in named)
        return TokenLogprob(token_name(spelling), float(scores[token]), top, tuple(spelling))

    def _ranked(self, token: int, scores: Scores, alternatives: int) -> Mapping[str, Any]:
        """vLLM's shape: token id → logprob, rank (1 is the likeliest), text."""
        return {
            str(item): {
                "logprob": float(scores[item]),
                "rank": int((scores > scores[item]).sum()) + 1,
                "decoded_token": token_name(self._vocabulary.spelling(item)),
            }
            for item in dict.fromkeys([token, *_likeliest(scores, alternatives)])
        }


def _likeliest(scores: Scores, count: int) -> list[int]:
    """The ``count`` best tokens, best first."""
    if not count:
        return []
    best = np.argpartition(-scores, min(count, scores.size - 1))[:count]
    return [int(item) for item in best[np.argsort(-scores[best], kind="stable")]]
