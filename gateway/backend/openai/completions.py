"""How does a raw completions engine get its prompt? As the exact string, or token ids, it was raised on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, get_args

from gateway.backend.engines import COMPLETIONS_PARAMS, ENGINES
from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.backend import PATHS, Upstream
from gateway.backend.openai.bos import BosRule, bos_rule, without_bos
from gateway.backend.openai.events import COMPLETIONS
from gateway.backend.openai.request_body import common_fields, unverified
from gateway.config.snapshot import TargetSpec
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import UnsupportedParameter
from gateway.core.exchange import Events, Exchange
from gateway.core.prompt import Bos

IDLE: Mapping[str, Callable[[Any], bool]] = {
    # When a field that an engine lacks may go up all the same, because it asks for nothing.
    "best_of": lambda value: value == 1,
    "echo": lambda value: value is False,
    "logit_bias": lambda value: not value,
    "logprobs": lambda value: value is False,  # 0 asks for the chosen tokens' own
    "presence_penalty": lambda value: value == 0,
}


PATH = PATHS["completions"]

KEEPS_SPECIAL = "skip_special_tokens"
"""The field by which vLLM and SGLang are told to leave special tokens in the text."""

Asked = tuple[dict[str, Any], tuple[str, ...]]
"""A request's body, all but the model, and what is to be said of it."""


class CompletionsBackend:
    """``speaks: completions``: an OpenAI-compatible server that takes plain text."""

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        self._upstream = Upstream(target, client, connect_timeout)
        capabilities = self.capabilities = ENGINES[target.engine]
        self._adds_bos = capabilities.adds_bos if target.adds_bos is None else target.adds_bos
        self._known = COMPLETIONS_PARAMS | capabilities.sampling
        self._free = self._known - capabilities.missing - {capabilities.bos_switch, "stop_token_ids"}
        """Parameters that go up without a look at them."""
        self._bos_rules = self._rules_of_any_prompt()

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Ask the engine; ``UnsupportedParameter`` for what plain text cannot say."""
        if exchange.endpoint == "embeddings":
            return self._upstream.embed(exchange)
        body, notices = self.ordinary(exchange) or self.general(exchange)
        if exchange.keep_special and KEEPS_SPECIAL in self._known:
            body.setdefault(KEEPS_SPECIAL, False)  # engines leave special tokens out of the text, and calls with them
        return self._upstream.complete(exchange, PATH, body, COMPLETIONS, notices)

    def ordinary(self, exchange: Exchange) -> Asked | None:
        """What goes up for one string prompt with parameters that need no look; None: ``general`` has to look.

        Exactly what ``general`` would give.
        """
        prompts, params = exchange.prompts, exchange.params
        if len(prompts) != 1 or exchange.prompt_is_list or not params.keys() <= self._free:
            return None
        if exchange.stream_options is not EMPTY_MAPPING and exchange.stream_options:
            return None
        rule, prompt = self._bos_rules.get(exchange.bos), prompts[0]
        if rule is None or type(prompt) is not str:
            return None
        body = {**params, **rule.fields, "prompt": prompt, "stream": exchange.stream}
        if exchange.n > 1:
            body["n"] = exchange.n
        if exchange.stops:
            body["stop"] = list(exchange.stops)
        if exchange.stop_token_ids and self.capabilities.stop_token_ids:
            body["stop_token_ids"] = list(exchange.stop_token_ids)
        if exchange.stream:
            body["stream_options"] = {"include_usage": True}
        return body, rule.notices

    def general(self, exchange: Exchange) -> Asked:
        """What goes up for any prompts and parameters."""
        if not exchange.prompts:
            raise UnsupportedParameter("this model's target takes a prompt, not messages", param="messages")
        self._refuse_what_it_cannot(exchange)
        rule = bos_rule(exchange, self.capabilities.bos_switch, self._adds_bos)
        prompts = [without_bos(prompt, rule) for prompt in exchange.prompts]
        body: dict[str, Any] = {
            **exchange.params,
            **rule.fields,
            "prompt": prompts if exchange.prompt_is_list or len(prompts) > 1 else prompts[0],
        }
        return body | common_fields(exchange, self.capabilities), (*rule.notices, *unverified(exchange, self._known))

    def _rules_of_any_prompt(self) -> dict[Bos, BosRule]:
        """The BOS rules that are the same for every string; a BOS that may have to be stripped has none here."""
        rules: dict[Bos, BosRule] = {}
        for bos in get_args(Bos):
            probe = Exchange("completions", "", ("<s>",), bos=bos, bos_text="<s>")
            rule = bos_rule(probe, self.capabilities.bos_switch, self._adds_bos)
            if not rule.strip:
                rules[bos] = rule
        return rules

    def _refuse_what_it_cannot(self, exchange: Exchange) -> None:
        """Fields that the engine would ignore in silence, and token ids where it takes only strings."""
        for name in sorted(self.capabilities.missing & exchange.params.keys()):
            if not IDLE[name](exchange.params[name]):
                raise UnsupportedParameter(f"this model's engine does not know {name}; leave it out", param=name)
        if not self.capabilities.token_prompts and any(not isinstance(prompt, str) for prompt in exchange.prompts):
            raise UnsupportedParameter("this model's engine takes strings only, not token ids", param="prompt")
