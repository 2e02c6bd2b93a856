"""Backend for OpenAI-compatible servers that accept a rendered prompt: the exact string, or token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.backend.engines import COMPLETIONS_PARAMS
from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.answer.events import COMPLETIONS_FORMAT
from gateway.backend.openai.base import OpenAIBackend
from gateway.backend.openai.request.bos import bos_rule, without_bos
from gateway.backend.openai.request.constraint import constraint_fields
from gateway.backend.openai.request.neutral_values import is_neutral
from gateway.backend.openai.request.request_body import add_common_fields, check_fields
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UnsupportedParameter
from gateway.core.exchange import Exchange, RawPrompt
from metatemplate.values.dialogue import EMPTY_MAPPING

SKIP_SPECIAL = "skip_special_tokens"
"""The field of vLLM and SGLang that decides whether special tokens are removed from the text."""


class CompletionsBackend(OpenAIBackend):
    """Backend of a target with ``speaks: completions``."""

    path = "/completions"
    format = COMPLETIONS_FORMAT

    def __init__(self, target: TargetSpec, client: HttpClient, connect_timeout: float = 2.0) -> None:
        """For the parameters see ``OpenAIBackend``."""
        super().__init__(target, client, connect_timeout)
        self._adds_bos = self.capabilities.adds_bos if target.adds_bos is None else target.adds_bos
        self._known = COMPLETIONS_PARAMS | self.capabilities.sampling

    def request_body(self, exchange: Exchange) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the body and notices. Raises ``UnsupportedParameter`` for messages and ignored fields."""
        prompts: Sequence[RawPrompt] = exchange.prompts
        capabilities = self.capabilities
        if not prompts:
            raise UnsupportedParameter("this model's target accepts a prompt, not messages", param="messages")
        if not capabilities.missing.isdisjoint(exchange.params):
            for name in sorted(capabilities.missing.intersection(exchange.params)):
                if not is_neutral(name, exchange.params[name]):
                    raise UnsupportedParameter(f"this model's engine does not accept {name}; leave it out", param=name)
        if not capabilities.token_prompts and any(not isinstance(prompt, str) for prompt in prompts):
            raise UnsupportedParameter("this model's engine accepts strings, not token ids", param="prompt")
        constraint: Mapping[str, Any] = EMPTY_MAPPING
        if exchange.answer_format is not None:
            constraint = constraint_fields(exchange.answer_format, exchange.params, self._target)
            params = {name: value for name, value in exchange.params.items() if name != "response_format"}
            exchange = replace(exchange, params=params)
        exchange, notices = check_fields(exchange, self._known)
        rule = bos_rule(exchange, capabilities.bos_switch, self._adds_bos)
        prompts = without_bos(rule, prompts)
        prompt = prompts if exchange.prompt_is_list or len(prompts) > 1 else prompts[0]
        body = {"model": self.model, **exchange.params, **constraint, **rule.fields, "prompt": prompt}
        add_common_fields(body, exchange, capabilities)
        if exchange.keep_special and SKIP_SPECIAL in self._known:
            body.setdefault(SKIP_SPECIAL, False)  # tool calls may be written in special tokens
        return body, rule.notices + notices
