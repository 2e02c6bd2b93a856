"""One choice, from its prompt to its last token.

A ``Generation`` hands out the tokens the model has not seen, receives the scores, and returns events. An answer ends
with ``stop`` at a token of ``stop_token_ids``, an end token of the model or a stop string, and with ``length`` at
``max_tokens`` or the end of the context.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gateway.backend.embedded.llama import KeyValueCache
from gateway.backend.embedded.model_config import ModelShape
from gateway.backend.embedded.request import EngineRequest, PromptTokens
from gateway.backend.embedded.sampling import Sampler, Scores, log_softmax
from gateway.backend.embedded.vocabulary import TokenDecoder, Vocabulary, token_name
from gateway.backend.embedded.weights import Array
from gateway.core.events import Delta, Event, Finish, TokenLogprob
from gateway.stream.stop_search import StopScanner

PROMPT_CHUNK = 128
"""Prompt tokens of one choice in one step. Fixed, so that other choices do not change its numbers."""
RESERVED = 256
"""Answer positions for which memory is reserved at the start."""


class Generation:
    """One choice of one request."""

    def __init__(
        self, request: EngineRequest, prompt: PromptTokens, index: int, vocabulary: Vocabulary, shape: ModelShape
    ) -> None:
        self._request, self._params, self._prompt, self._index = request, request.params, prompt, index
        self._vocabulary, self._shape = vocabulary, shape
        self._limit = min(self._params.max_tokens, shape.context - len(prompt.tokens))
        self._pending = list(prompt.tokens)
        self._sampler = Sampler(self._params.sampling, index % request.n)
        self._decoder = TokenDecoder(vocabulary, self._params.skip_special_tokens)
        self._scanner = StopScanner(request.stops)
        self._prompt_entries: list[TokenLogprob] = []
        self._seen = 0
        """Prompt tokens that the model has seen."""
        self._decoded = 0
        """Characters decoded, and of these those that were sent."""
        self._sent = 0
        self._held: deque[tuple[int, int, TokenLogprob]] = deque()
        """(start, end, entry) of tokens whose text may still be part of a stop string."""
        self.cache = KeyValueCache(shape, len(prompt.tokens) + min(self._limit, RESERVED))
        self.generated = 0
        """Tokens chosen, including one that ended the answer."""

    @property
    def next_tokens(self) -> Sequence[int]:
        """The tokens for the model's next step."""
        return self._pending[:PROMPT_CHUNK]

    def wanted(self, states: Array) -> Array:
        """Those of the step's states that need scores: all to score a prompt, the last to choose a token, or none."""
        if self._scores_prompt:
            return states
        return states[-1:] if len(self._pending) <= PROMPT_CHUNK and self._limit else states[:0]

    def advance(self, logits: Array) -> tuple[Event, ...]:
        """Process the scores of the wanted states; the last event is a ``Finish`` if the answer has ended."""
        seen = self.next_tokens
        if self._scores_prompt:
            self._score_prompt(logits)
        self._seen += len(seen)
        self._pending = self._pending[PROMPT_CHUNK:]
        if self._pending:
            return ()
        echo = self._echo() if self._params.echo and not self.generated else ()
        if not self._limit:
            return (*echo, Finish(self._index, "length"))
        return (*echo, *self._choose(logits[-1]))

    # ------------------------------------------------------------ the prompt

    @property
    def _scores_prompt(self) -> bool:
        return not self.generated and self._params.echo and self._params.logprobs is not None

    def _score_prompt(self, logits: Array) -> None:
        """Row i scores the token after it; the successor of the prompt's last token is not part of the prompt."""
        following = self._prompt.tokens[self._seen + 1 : self._seen + 1 + len(logits)]
        for token, row in zip(following, logits, strict=False):
            self._prompt_entries.append(self._entry(token, log_softmax(row)))

    def _echo(self) -> tuple[Event, ...]:
        tokens, entries, text = self._prompt.tokens, [], ""
        # For ids the decoder is the answer's own, so that a character may begin in the prompt and end in the answer.
        decoder = self._decoder if self._prompt.text is None else TokenDecoder(self._vocabulary, False)
        first = TokenLogprob("", None)
        for place in range(self._prompt.added, len(tokens)):
            if self._params.logprobs is not None:
                known = self._prompt_entries[place - 1] if place > self._prompt.added else first
                raw = self._vocabulary.token_bytes(tokens[place])
                entries.append(replace(known, token=token_name(raw), bytes=tuple(raw), offset=len(text)))
            text += decoder.feed(tokens[place])
        if self._prompt.text is not None:
            text = self._prompt.text
        self._decoded = self._sent = len(text)
        return (Delta(self._index, text, tuple(entries) if self._params.logprobs is not None else None),)

    # ------------------------------------------------------------ the answer

    def _choose(self, row: Array) -> tuple[Event, ...]:
        token = self._sampler.choose(row)
        self.generated += 1
        entry = None
        if self._params.logprobs is not None:
            entry = replace(self._entry(token, log_softmax(row)), offset=self._decoded)
        if token in self._request.stop_token_ids:
            return self._end("stop", token, entry)
        if token in self._shape.eos and not self._params.ignore_eos:
            return self._end("stop", None, entry)
        text, matched = self._scan(self._decoder.feed(token), entry)
        if matched is not None:
            return self._events(text, self._entries_before_stop(), Finish(self._index, "stop", matched))
        if self.generated >= self._limit:
            return self._end("length", None, None, text)
        self._pending = [token]
        return self._events(text, self._sent_entries())

    def _scan(self, text: str, entry: TokenLogprob | None) -> tuple[str, str | None]:
        """New text through the stop scanner: the text that may be sent, and the stop that was found."""
        start = self._decoded
        self._decoded += len(text)
        if entry is not None:
            self._held.append((start, self._decoded, entry))
        out, matched = self._scanner.feed(text)
        self._sent += len(out)
        return out, matched

    def _end(self, reason: str, matched: int | None, ending: TokenLogprob | None, text: str = "") -> tuple[Event, ...]:
        """The end without a stop string: the text that was held is sent."""
        more, found = self._scan(self._decoder.flush(), None)
        if found is not None:
            return self._events(text + more, self._entries_before_stop(), Finish(self._index, "stop", found))
        entries = [entry for _, _, entry in self._held]
        # A token that ends the answer has no text. With echo, clients that score count one entry per generated token.
        if ending is not None and self._params.echo:
            entries.append(ending)
        return self._events(text + more + self._scanner.flush(), entries, Finish(self._index, reason, matched))

    def _sent_entries(self) -> list[TokenLogprob]:
        entries = []
        while self._held and self._held[0][1] <= self._sent:
            entries.append(self._held.popleft()[2])
        return entries

    def _entries_before_stop(self) -> list[TokenLogprob]:
        return [entry for start, _, entry in self._held if start < self._sent]

    def _events(self, text: str, entries: list[TokenLogprob], end: Finish | None = None) -> tuple[Event, ...]:
        logprobs = tuple(entries) if self._params.logprobs is not None and entries else None
        events: list[Event] = [Delta(self._index, text, logprobs)] if text or logprobs else []
        return (*events, end) if end else tuple(events)

    def _entry(self, token: int, scores: Scores) -> TokenLogprob:
        """A token with the model's own log probability, before temperature and penalties."""
        raw, top = self._vocabulary.token_bytes(token), None
        if self._params.logprobs:
            tokens = dict.fromkeys([*_likeliest(scores, self._params.logprobs), token])
            named = [(item, self._vocabulary.token_bytes(item)) for item in tokens]
            top = tuple((token_name(its), float(scores[item]), tuple(its)) for item, its in named)
        return TokenLogprob(token_name(raw), float(scores[token]), top, tuple(raw))


def _likeliest(scores: Scores, count: int) -> list[int]:
    """The ``count`` best tokens, best first."""
    best = np.argpartition(-scores, min(count, scores.size - 1))[:count]
    return [int(item) for item in best[np.argsort(-scores[best], kind="stable")]]
