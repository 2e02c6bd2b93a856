"""Token ids of prompts and conversations, from the model's tokenizer or from its engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.calls.answer.token_data import tokenizes_special
from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.core.errors import InvalidValue, UnsupportedParameter
from metatemplate.tokenizer import MIN_THREADED, Tokenizer, token_ids
from metatemplate.values.json_values import changed

if TYPE_CHECKING:
    from gateway.backend.openai.tokenizer_client import TokenizerClient

INFO = frozenset(
    {
        "add_bos_token",
        "add_eos_token",
        "added_tokens_decoder",
        "additional_special_tokens",
        "chat_template",
        "clean_up_tokenization_spaces",
        "extra_special_tokens",
        "model_max_length",
        "padding_side",
        "tokenizer_class",
        "truncation_side",
    }
)
"""The entries that clients may read, besides every ``…_token``. Other entries may contain paths or host names."""
DEFAULT_CLASS = "PreTrainedTokenizerFast"
"""The ``tokenizer_class`` if ``tokenizer_config.json`` has none. In transformers it reads a ``tokenizer.json``."""


TokensBody = dict[str, Any]
"""The tokens of one prompt, in vLLM's form: ``count``, ``max_model_len``, ``tokens`` and ``token_strs``.

``max_model_len`` is null if the context length is unknown, and ``token_strs`` if the names of the tokens in the
vocabulary are not requested.
"""


async def tokenize_text(route: Route, text: str, *, add_special_tokens: bool, strs: bool) -> TokensBody:
    """Tokenize a text with the gateway's tokenizer of the model, or else with the engine.

    Raises ``GatewayError`` if no tokenizer is available, or if the engine's tokenizer fails.
    """
    if route.tokens is not None:
        ids = await token_ids(route.tokens, text, special=add_special_tokens)
        return _body(ids, route.context_length, route.tokens.names(ids) if strs else None)
    fields: dict[str, Any] = {"prompt": text, "add_special_tokens": add_special_tokens}
    return await _from_engine(route, fields, strs)


async def tokenize_prepared(
    route: Route, prepared: Prepared, *, add_special_tokens: bool | None = None, strs: bool = False
) -> TokensBody:
    """Tokenize a rendered conversation. By default, the result has exactly the tokens that the model reads.

    Messages are tokenized by the engine that renders them. Raises ``GatewayError`` as ``tokenize_text`` does.
    """
    exchange = prepared.exchange
    if exchange.prompts:
        prompt = exchange.prompts[0]
        if not isinstance(prompt, str):  # a rendered conversation, whose markers the policy sends as token ids
            assert route.tokens is not None
            return _body(prompt, route.context_length, route.tokens.names(prompt) if strs else None)
        special = tokenizes_special(route, exchange) if add_special_tokens is None else add_special_tokens
        return await tokenize_text(route, prompt, add_special_tokens=special, strs=strs)
    names = ("add_generation_prompt", "chat_template_kwargs", "continue_final_message", "tools")
    fields = {name: exchange.params[name] for name in names if name in exchange.params}
    if add_special_tokens is not None:
        fields["add_special_tokens"] = add_special_tokens
    return await _from_engine(route, {"messages": list(exchange.messages), **fields}, strs)


async def detokenize(route: Route, ids: Sequence[int]) -> str:
    """Return the text of token ids, including special tokens. Raises ``InvalidValue`` for an unknown token id."""
    tokens = route.tokens
    if tokens is None:
        return await _engine(route).detokenize(list(ids))
    return await asyncio.to_thread(_text, tokens, ids) if len(ids) > MIN_THREADED else _text(tokens, ids)


async def tokenizer_info(route: Route) -> dict[str, Any]:
    """Return the content of ``tokenizer_config.json`` in the form of vLLM's ``/tokenizer_info``.

    The content comes from the file, or else from the engine. It has ``chat_template`` only if the model's template is a
    chat template or is rendered by the engine. ``bos_token`` and ``eos_token`` are null if unknown.
    """
    spec = route.template.spec
    info = await (_engine(route).info() if route.tokens is None else asyncio.to_thread(_config, route.tokens))
    info = {name: value for name, value in info.items() if name in INFO or name.endswith("_token")}
    if spec.kind != "chat":
        info.pop("chat_template", None)
    if spec.jinja is not None:
        info = {**info, **spec.jinja.special_tokens, "chat_template": spec.jinja.sources[0][1]}
    if not info.get("eos_token") and spec.eos_token_id is not None and route.tokens is not None:
        info["eos_token"] = route.tokens.names([spec.eos_token_id])[0]
    return {"bos_token": None, "eos_token": None, "pad_token": None, **info}


def _config(tokens: Tokenizer) -> dict[str, Any]:
    try:
        config = json.loads((tokens.folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    plain = changed(config, _token_text) if isinstance(config, dict) else {}
    return {**plain, "tokenizer_class": plain.get("tokenizer_class") or DEFAULT_CLASS}


def _token_text(value: Any, key: object) -> Any:
    """Replace the description of a token (``{"content": "</s>", "lstrip": false}``) by its text."""
    return value["content"] if isinstance(value, dict) and isinstance(value.get("content"), str) else value


def _text(tokens: Tokenizer, ids: Sequence[int]) -> str:
    names = tokens.names(ids)
    if None in names:
        raise InvalidValue(f"the model's tokenizer has no token {ids[names.index(None)]}", param="tokens")
    return tokens.detokenize(list(ids))


async def _from_engine(route: Route, fields: Mapping[str, Any], strs: bool) -> TokensBody:
    answer = await _engine(route).tokenize({**fields, "return_token_strs": True} if strs else fields)
    length = answer.get("max_model_len")
    length = length if type(length) is int and length > 0 else route.context_length
    return _body(answer["tokens"], length, answer.get("token_strs") if strs else None)


def _body(ids: Sequence[int], length: int | None, strs: Sequence[str | None] | None) -> TokensBody:
    return {"count": len(ids), "max_model_len": length, "tokens": ids, "token_strs": strs}


def _engine(route: Route) -> TokenizerClient:
    """Return the client for the engine's tokenizer. Raises ``UnsupportedParameter`` if the engine offers none."""
    if route.tokenizer_client is None:
        raise UnsupportedParameter(
            f"the gateway has no tokenizer of model {route.spec.name}; set the model's setting tokenizer, or set "
            "engine: vllm or sglang for its first target",
            param="model",
        )
    return route.tokenizer_client
