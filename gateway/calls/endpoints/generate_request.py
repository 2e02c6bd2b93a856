"""``/v1/chat/completions/render`` and ``/v1/completions/render``: the request to the engine as token ids, for routers.

The bodies and the answers are those of the same paths of vLLM: an answer is the ``GenerateRequest`` that vLLM accepts
at ``/inference/v1/generate``. Names: vllm/entrypoints/scale_out/token_in_token_out/protocol.py and
vllm/sampling_params.py of vLLM 0.33.0; 0.18.0, the first version with these answers, has all but ``return_token_ids``.
"""

from __future__ import annotations

from typing import Any

from gateway.backend.openai.request.constraint import constraint_fields
from gateway.backend.openai.request.control_fields import words
from gateway.backend.openai.request.neutral_values import is_neutral
from gateway.backend.openai.request.request_body import stop_token_ids
from gateway.calls.answer.token_data import tokenizes_special
from gateway.calls.endpoints.context import CallContext
from gateway.calls.endpoints.provenance import provenance
from gateway.calls.preparation.prepare import Prepared, prepare
from gateway.calls.route import Route
from gateway.config.snapshot import TargetSpec
from gateway.core.call import Call
from gateway.core.errors import UnsupportedParameter
from gateway.core.exchange import RawPrompt
from gateway.wire.request_fields import HINTS
from metatemplate.tokenizer import token_ids

SAMPLING = words(
    "allowed_token_ids bad_words frequency_penalty ignore_eos include_stop_str_in_output logit_bias logprobs "
    "max_tokens min_p min_tokens presence_penalty prompt_logprobs repetition_penalty seed skip_special_tokens "
    "spaces_between_special_tokens stop_token_ids structured_outputs temperature top_k top_p"
)
"""The parameters that have the same name in the sampling parameters of vLLM."""
RENAMED = {"repeat_penalty": "repetition_penalty"}
"""Name of a parameter in llama.cpp → its name in vLLM."""
BESIDE = words("cache_salt priority return_token_ids")
"""The parameters that are fields of the ``GenerateRequest`` itself."""
WITHOUT_EFFECT = HINTS | {"add_special_tokens", "response_format", "user"}
"""The parameters that are left out: the token ids and ``structured_outputs`` already express their effect, if any."""
VLLM = TargetSpec(label="vllm", speaks="completions", model="", engine="vllm")
"""The target whose field constrains the answer."""
DEFAULT_LIMIT = 16
"""The ``max_tokens`` of a completions request without a limit. ``/inference/v1/generate`` has another default."""


async def respond_chat(context: CallContext) -> None:
    """Send one ``GenerateRequest``."""
    prepared, (body,) = await _rendered(context)
    context.reply(body, provenance(context.route, prepared))


async def respond_completion(context: CallContext) -> None:
    """Send a list with one ``GenerateRequest`` for each prompt."""
    prepared, bodies = await _rendered(context)
    context.reply(bodies, provenance(context.route, prepared))


async def _rendered(context: CallContext) -> tuple[Prepared, list[dict[str, Any]]]:
    """Prepare the call. Raises ``RequestError`` if the model has no token ids, or a field has no form in vLLM."""
    call, route = context.call, context.route
    if route.form == "messages" or route.tokens is None:
        reason = "has no tokenizer in the gateway; set the model's setting tokenizer"
        if route.form == "messages":
            reason = "accepts only messages, which its engine renders; ask the engine for the token ids"
        raise UnsupportedParameter(f"model {route.spec.name} {reason}", param="model")
    if call.turns is not None:
        raise UnsupportedParameter("a request with turns has several prompts; leave turns out", param="gateway.turns")
    prepared = await prepare(route, call)
    params = _parameters(call, prepared)
    return prepared, [await _body(route, prepared, params, number) for number in range(len(prepared.exchange.prompts))]


def _parameters(call: Call, prepared: Prepared) -> dict[str, Any]:
    """Return the fields that all prompts share. Raises ``UnsupportedParameter`` for one that vLLM cannot express."""
    exchange, wanted = prepared.exchange, prepared.exchange.answer_format
    if wanted is not None and wanted.reasoning is not None:
        raise UnsupportedParameter(
            "a model that reasons before an answer in JSON is called twice, which is not one request; leave the format "
            "out",
            param=wanted.param,
        )
    constraint = {} if wanted is None else constraint_fields(wanted, exchange.params, VLLM)
    params: dict[str, Any] = {"max_tokens": DEFAULT_LIMIT, "n": exchange.n}
    fields: dict[str, Any] = {}
    if prepared.token_request is not None and prepared.token_request.echo:
        fields["echo"] = True
    for given, value in {**exchange.params, **constraint, **fields}.items():
        name = RENAMED.get(given, given)
        if name != given and name in exchange.params:
            raise UnsupportedParameter(f"{given} and {name} are one field in vLLM; send one of them", param=given)
        if name in SAMPLING:
            params[name] = value
        elif name in BESIDE:
            fields[name] = value
        elif name not in WITHOUT_EFFECT and not is_neutral(name, value):
            raise UnsupportedParameter(f"{given} has no form in a GenerateRequest of vLLM; leave it out", param=given)
    if exchange.keep_special:
        params.setdefault("skip_special_tokens", False)
    params |= {"stop": list(exchange.stops), "stop_token_ids": stop_token_ids(exchange)}
    options = {**call.stream_options, "include_usage": call.include_usage} if call.stream else None
    return {**fields, "sampling_params": params, "stream": call.stream, "stream_options": options}


async def _body(route: Route, prepared: Prepared, fields: dict[str, Any], number: int) -> dict[str, Any]:
    exchange, names = prepared.exchange, {target.model for target in route.spec.targets}
    prompt: RawPrompt = exchange.prompts[number]
    if isinstance(prompt, str):
        assert route.tokens is not None  # see ``_rendered``
        prompt = tuple(await token_ids(route.tokens, prompt, special=tokenizes_special(route, exchange)))
    return {
        "request_id": exchange.request_id if len(exchange.prompts) == 1 else f"{exchange.request_id}-{number}",
        "model": names.pop() if len(names) == 1 else None,
        "token_ids": prompt,
        "features": None,
        **fields,
    }
