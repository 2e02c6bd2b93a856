"""``POST /tokenize``, ``POST /detokenize`` and ``GET /tokenizer_info``, with answers in the format of vLLM.

Also ``POST /v1/responses/input_tokens``, with answers in OpenAI's format.
"""

from __future__ import annotations

from gateway.calls.admission.access import authenticate, authorized_route, only_model
from gateway.calls.preparation.prepare import check_length, prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.calls.tokenizing import detokenize, tokenize_prepared, tokenize_text, tokenizer_info
from gateway.core.call import Call, TokenizeCall
from gateway.edge.http_request import HttpRequest
from gateway.edge.provenance import provenance
from gateway.edge.state import GatewayState


async def respond_tokenize(request: HttpRequest, call: Call, route: Route, _timeline: CallTimeline) -> None:
    """Send the token ids of a prompt, or of messages after they are rendered with the model's template."""
    assert isinstance(call, TokenizeCall)
    headers = b""
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
    request.commit()
    body = {"count": len(tokens.ids), "max_model_len": tokens.max_model_len, "tokens": tokens.ids}
    request.reply_json(200, {**body, "token_strs": tokens.strs}, headers)


async def respond_input_tokens(request: HttpRequest, call: Call, route: Route, _timeline: CallTimeline) -> None:
    """Send the number of tokens that the model would read for a request to ``/v1/responses``."""
    prepared = await prepare(route, call)
    tokens = await tokenize_prepared(route, prepared)
    request.commit()
    body = {"object": "response.input_tokens", "input_tokens": len(tokens.ids)}
    request.reply_json(200, body, provenance(route, prepared))


async def respond_detokenize(request: HttpRequest, call: Call, route: Route, _timeline: CallTimeline) -> None:
    """Send the text of token ids."""
    [ids] = call.raw_prompts
    assert not isinstance(ids, str)
    text = await detokenize(route, ids)
    request.commit()
    request.reply_json(200, {"prompt": text})


class TokenizerInfo:
    """The handler of ``/tokenizer_info``."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self.routes = {"/v1/tokenizer_info": ("GET", self.info), "/tokenizer_info": ("GET", self.info)}

    async def info(self, request: HttpRequest) -> None:
        """``GET /tokenizer_info``: the configuration of the model's tokenizer."""
        stack = self._state.stack
        caller = authenticate(stack, request)
        route = authorized_route(stack, caller, request.model or only_model(stack, caller))
        request.reply_json(200, await tokenizer_info(route))
