"""``POST /tokenize`` and ``POST /detokenize``, with answers in the format of vLLM."""

from __future__ import annotations

from gateway.calls.endpoints.context import CallContext
from gateway.calls.endpoints.provenance import provenance
from gateway.calls.endpoints.sink import NO_FIELDS
from gateway.calls.endpoints.tokenizing import detokenize, tokenize_prepared, tokenize_text
from gateway.calls.preparation.prepare import check_length, prepare
from gateway.core.call import TokenizeCall


async def respond_tokenize(context: CallContext) -> None:
    """Send the token ids of a prompt, or of messages after they are rendered with the model's template."""
    call, route = context.call, context.route
    assert isinstance(call, TokenizeCall)
    headers = NO_FIELDS
    if call.dialogue is None:
        [prompt] = call.raw_prompts
        assert isinstance(prompt, str)
        check_length(len(prompt), "prompt")
        special = call.add_special_tokens is not False
        tokens = await tokenize_text(route, prompt, add_special_tokens=special, strs=call.token_strs)
    else:
        prepared = await prepare(route, call)
        headers = provenance(route, prepared)
        tokens = await tokenize_prepared(
            route, prepared, add_special_tokens=call.add_special_tokens, strs=call.token_strs
        )
    context.reply(tokens, headers)


async def respond_detokenize(context: CallContext) -> None:
    """Send the text of token ids."""
    [ids] = context.call.raw_prompts
    assert not isinstance(ids, str)
    context.reply({"prompt": await detokenize(context.route, ids)}, NO_FIELDS)
