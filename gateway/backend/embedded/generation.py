"""One choice, from its prompt to its last token.

A ``Generation`` provides the tokens that the model must process next, receives the scores, and returns events. An
answer ends with ``stop`` at a token of ``stop_token_ids``, an end token of the model or a stop string. An answer ends
with ``length`` at ``max_tokens`` or at the end of the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.backend.embedded.llama import KeyValueCache
from gateway.backend.embedded.model_folder import Array, ModelConfig
from gateway.backend.embedded.request import EngineRequest
from gateway.backend.embedded.sampling import Sampler, Scores, likeliest, log_softmax
from gateway.backend.embedded.vocabulary import TokenDecoder, Vocabulary, token_name
from metatemplate.answers.stops.stop_cutter import ChoiceCutter
from metatemplate.answers.stops.stop_search import stop_set
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Delta, Event, Finish, TokenLogprob

PROMPT_CHUNK = 128
"""Prompt tokens of one choice in one step. The number is constant, so that scores do not depend on other choices."""


class Generation:
    """One choice of one request."""

    def __init__(self, request: EngineRequest, index: int, config: ModelConfig, vocabulary: Vocabulary) -> None:
        exchange = request.exchange
        self._params, self._index, self._vocabulary = request.params, index, vocabulary
        self._prompt = request.prompts[index // exchange.n]
        self._limit = min(request.params.max_tokens, config.max_position_embeddings - len(self._prompt.tokens))
        self._stop_token_ids = exchange.stop_token_ids
        self._eos_token_ids = frozenset() if request.params.ignore_eos else config.eos_token_ids
        self._pending = self._prompt.tokens
        """Tokens that the model has not processed."""
        self._prompt_entries: list[TokenLogprob] = []
        """Log probabilities of the prompt's tokens, beginning with the second token, for an echo."""
        self._prompt_scores: list[dict[str, Any]] = []
        """Log probabilities of the prompt's tokens, beginning with the second token, as vLLM's ``prompt_logprobs``."""
        self._scored = 0
        """The number of prompt tokens with a log probability."""
        self._sampler = Sampler(request.params, index % exchange.n)
        self._decoder = TokenDecoder(vocabulary, request.params.skip_special_tokens)
        self._cutter = ChoiceCutter(index, stop_set(exchange.stops))
        self._decoded = 0
        """The number of characters decoded, including an echo."""
        self.due = 0.0
        """The time of the event loop, in seconds, before which the engine does not compute the next step."""
        self.cache = KeyValueCache(config)
        self.generated = 0
        """The number of tokens chosen, including a token that ended the answer."""

    @property
    def next_tokens(self) -> tuple[int, ...]:
        """The tokens for the model's next step."""
        return self._pending[:PROMPT_CHUNK]

    def wanted(self, states: Array) -> Array:
        """Return the states to score: all states when scoring a prompt, the last state when sampling, else none."""
        if self._scores_prompt:
            return states
        return states[-1:] if len(self._pending) <= PROMPT_CHUNK and self._limit else states[:0]

    def advance(self, logits: Array) -> list[Event]:
        """Process the scores and return events. The last event is a ``Finish`` if the answer has ended.

        ``logits``: the scores of the states that ``wanted`` returned.
        """
        if self._scores_prompt:
            # Row i scores the token after token i. The token after the prompt's last token is not part of the prompt.
            following = self._prompt.tokens[self._scored + 1 :]
            for token, row in zip(following, logits, strict=False):
                scores = log_softmax(row)
                self._scored += 1
                if self._params.echo and self._params.logprobs is not None:
                    self._prompt_entries.append(self._entry(token, scores))
                if self._params.prompt_logprobs is not None:
                    self._prompt_scores.append(self._score(token, scores, self._params.prompt_logprobs))
        self._pending = self._pending[PROMPT_CHUNK:]
        if self._pending:
            return []
        events: list[Event] = [] if self.generated else self._begin()
        return events + (self._choose(logits[-1]) if self._limit else [Finish(self._index, "length")])

    @property
    def _scores_prompt(self) -> bool:
        params = self._params
        scores_echo = params.echo and params.logprobs is not None
        return not self.generated and (scores_echo or params.prompt_logprobs is not None)

    def _begin(self) -> list[Event]:
        """Return the requested data about the prompt: the echo, log probabilities and token ids."""
        extras: dict[str, Any] = {}
        if self._params.prompt_logprobs is not None:
            extras["prompt_logprobs"] = [None, *self._prompt_scores]
        if self._params.return_token_ids:
            extras["prompt_token_ids"] = list(self._prompt.tokens)
        delta = self._echo() if self._params.echo else Delta(self._index)
        if extras:
            return [replace(delta, extras=extras)]
        return [delta] if self._params.echo else []

    def _echo(self) -> Delta:
        """Return the text of the prompt, without the tokens that the tokenizer added."""
        prompt, text, offsets = self._prompt, "", []
        # Prompt ids use the answer's decoder, because a character may begin in the prompt and end in the answer.
        decoder = self._decoder if prompt.text is None else TokenDecoder(self._vocabulary, False)
        shown = prompt.tokens[prompt.added :]
        for token in shown:
            offsets.append(len(text))
            text += decoder.feed(token)
        text = text if prompt.text is None else prompt.text
        self._decoded = len(text)
        if self._params.logprobs is None:
            return Delta(self._index, text)
        entries = [*(self._entry(token) for token in shown[:1]), *self._prompt_entries[prompt.added :]]
        placed = [replace(entry, offset=offset) for entry, offset in zip(entries, offsets, strict=True)]
        return Delta(self._index, text, tuple(placed))

    def _choose(self, row: Array) -> list[Event]:
        token = self._sampler.choose(row)
        self.generated += 1
        entries: tuple[TokenLogprob, ...] | None = None
        if self._params.logprobs is not None:
            entries = (replace(self._entry(token, log_softmax(row)), offset=self._decoded),)
        extras = {"token_ids": [token]} if self._params.return_token_ids else EMPTY_MAPPING
        if token in self._stop_token_ids or token in self._eos_token_ids:
            # A token that ends the answer has no text. With echo, clients that score texts count an entry for it.
            return self._end("stop", token, entries if self._params.echo else None, extras)
        self._pending = (token,)
        events = self._add(self._decoder.feed(token), entries, extras)
        if self.generated < self._limit or self._cutter.ended:
            return events
        return events + self._end("length")

    def _end(
        self,
        reason: str,
        matched: int | None = None,
        entries: tuple[TokenLogprob, ...] | None = None,
        extras: Mapping[str, Any] = EMPTY_MAPPING,
    ) -> list[Event]:
        """Return the last events of an answer that ends without a stop string, with the text held back so far."""
        events = self._add(self._decoder.flush(), entries, extras)
        return [*events, *self._cutter.end(Finish(self._index, reason, matched))]

    def _add(self, text: str, entries: tuple[TokenLogprob, ...] | None, extras: Mapping[str, Any]) -> list[Event]:
        """Return the events of further text. The text is cut at a stop string."""
        self._decoded += len(text)
        events = self._cutter.add(Delta(self._index, text, entries, extras=extras)) if text or entries or extras else []
        return [replace(event, source="engine") if isinstance(event, Finish) else event for event in events]

    def _entry(self, token: int, scores: Scores | None = None) -> TokenLogprob:
        """Return a token with the log probability before temperature and penalties."""
        raw, top, count = self._vocabulary.token_bytes(token), None, self._params.logprobs
        if scores is None:
            return TokenLogprob(token_name(raw), None, None, tuple(raw))
        if count:
            best = dict.fromkeys([*likeliest(scores, count), token])
            named = [(item, self._vocabulary.token_bytes(item)) for item in best]
            top = tuple((token_name(its), float(scores[item]), tuple(its)) for item, its in named)
        return TokenLogprob(token_name(raw), float(scores[token]), top, tuple(raw))

    def _score(self, token: int, scores: Scores, count: int) -> dict[str, Any]:
        """Return one entry of vLLM's ``prompt_logprobs``, for the token itself and the ``count`` likeliest tokens."""
        named = [token, *(likeliest(scores, count) if count else ())]
        return {
            str(one): {
                "logprob": float(scores[one]),
                "rank": 1 + int((scores > scores[one]).sum()),
                "decoded_token": token_name(self._vocabulary.token_bytes(one)),
            }
            for one in dict.fromkeys(named)
        }
