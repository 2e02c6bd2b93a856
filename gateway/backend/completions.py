"""How does a raw completions engine get its prompt? As the exact string, or token ids, it was raised on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from gateway.backend.answers import COMPLETIONS
from gateway.backend.bos import BosRule, bos_rule, without_bos
from gateway.backend.engines import COMPLETIONS_PARAMS, ENGINES
from gateway.backend.http import HttpClient
from gateway.backend.request import common_fields, unverified
from gateway.backend.upstream import PATHS, Upstream
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UnsupportedParameter
from gateway.core.exchange import Events, Exchange

IDLE: Mapping[str, Callable[[Any], bool]] = {
    # When a field that an engine lacks may go up all the same, because it asks for nothing.
    "best_of": lambda value: value == 1,
    "echo": lambda value: value is False,
    "logit_bias": lambda value: not value,
    "logprobs": lambda value: value is False,  # 0 asks for the chosen tokens' own
    "presence_penalty": lambda value: value == 0,
}


class CompletionsBackend:
    """``speaks: completions``: an OpenAI-compatible server that takes plain text."""

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        self._upstream = Upstream(target, client, connect_timeout)
        self._dialect = ENGINES[target.engine]
        self._adds_bos = self._dialect.adds_bos if target.adds_bos is None else target.adds_bos

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Ask the engine; ``UnsupportedParameter`` for what plain text cannot say."""
        if exchange.endpoint == "embeddings":
            return self._upstream.embed(exchange)
        if not exchange.prompts:
            raise UnsupportedParameter("this model's target takes a prompt, not messages", param="messages")
        self._refuse_what_it_cannot(exchange)
        bos = bos_rule(exchange, self._dialect.bos_switch, self._adds_bos)
        notices = (*bos.notices, *unverified(exchange, COMPLETIONS_PARAMS | self._dialect.sampling))
        return self._upstream.complete(exchange, PATHS["completions"], self._body(exchange, bos), COMPLETIONS, notices)

    def _refuse_what_it_cannot(self, exchange: Exchange) -> None:
        """Fields that the engine would ignore in silence, and token ids where it takes only strings."""
        for name in sorted(self._dialect.missing & exchange.params.keys()):
            if not IDLE[name](exchange.params[name]):
                raise UnsupportedParameter(f"this model's engine does not know {name}; leave it out", param=name)
        if not self._dialect.token_prompts and any(not isinstance(prompt, str) for prompt in exchange.prompts):
            raise UnsupportedParameter("this model's engine takes strings only, not token ids", param="prompt")

    def _body(self, exchange: Exchange, bos: BosRule) -> dict[str, Any]:
        prompts = [without_bos(prompt, bos) for prompt in exchange.prompts]
        body: dict[str, Any] = {
            **exchange.params,
            **bos.fields,
            "prompt": prompts if exchange.prompt_is_list or len(prompts) > 1 else prompts[0],
        }
        return body | common_fields(exchange, self._dialect)
