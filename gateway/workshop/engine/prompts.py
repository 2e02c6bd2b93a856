"""The probes of prompts: does the engine read the token ids that the gateway's prompt has?

The ids of the engine are asked for in the strongest way that it has: an endpoint that renders, ``prompt_token_ids`` or
``prompt_logprobs`` of an answer. An engine without these only tells how many tokens a prompt has, and such numbers are
compared only with each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.completions import CompletionsBackend
from gateway.calls.answer.token_data import tokenizes_special
from gateway.calls.preparation.prepare import prepare
from gateway.core.caller import Caller
from gateway.core.errors import GatewayError, RequestError
from gateway.core.exchange import Exchange
from gateway.stream.prompt_logprobs import PROMPT_LOGPROBS, prompt_entries
from gateway.wire.requests import read_chat
from gateway.workshop.comparing.comparison import special_tokens_of
from gateway.workshop.comparing.engine_bos import tokenizer_bos
from gateway.workshop.comparing.rendering_server import LLAMACPP, VLLM, chat_fields
from gateway.workshop.engine.subject import EngineProbe, NotChecked, Params, Subject, expect, require
from gateway.workshop.parity.cases import Case, matrix
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import quoted

CASES = ("one turn", "system, two turns", "odd blanks", "blanks around assistant", "special tokens in user")
"""The conversations of parity that are compared. The engine's way is chosen with the first one."""
SENT_CASES = ("system, two turns", "special tokens in user")
"""The conversations that are sent as a call of a client would send them."""
EngineIds = Sequence[int | None] | int
"""The token ids that an engine reads, with None for an id that it does not name; or only their number."""
ANY_IDS: tuple[int, ...] = (5, 6, 7)
"""Token ids of every vocabulary."""
LINE = "x\n"
"""A text whose tokens do not change if it is repeated."""
ONE_TOKEN = {"max_tokens": 1, "temperature": 0}


async def _rendered(subject: Subject, name: str, *, protected: bool) -> tuple[Case, Exchange, tuple[int, ...]]:
    """Render a conversation as a call does. ``protected``: apply the policy for markers.

    Returns the conversation, its request for one token, and the ids of the gateway's tokenizer, empty without one.
    """
    route, tokens = subject.route, subject.tokens
    if route is None or route.form != "text":
        raise NotChecked("an address has no template, or the template makes messages")
    case = next(one for one in matrix(special_tokens_of(route.template.spec)) if one.name == name)
    body = {"model": route.spec.name, "messages": [*case.messages]}
    call = read_chat(body, request_id="check", caller=Caller(allow_markers=not protected), answered=False)
    exchange = (await prepare(route, call)).exchange
    exchange = replace(exchange, params={**exchange.params, **ONE_TOKEN}, stream=False, stops=())
    if not isinstance(prompt := exchange.prompts[0], str):
        return case, exchange, prompt
    ids = [] if tokens is None else tokens.tokenize(prompt, tokenizes_special(route, exchange))
    return case, exchange, tuple(ids)


# ---------------------------------------------------------------- the ids of the engine


def _checked(ids: Any) -> EngineIds:
    is_list = isinstance(ids, list) and ids and all(type(one) is int and one >= 0 for one in ids)
    require(is_list, "the engine sent no token ids")
    return tuple(ids)


async def _asked(subject: Subject, path: str, fields: Params, key: str = "tokens") -> EngineIds:
    return _checked((await subject.client.ask(path, fields)).get(key))


async def _llamacpp_ids(subject: Subject, text: object) -> EngineIds:
    """Ask llama.cpp for the ids of a string prompt, to which it adds the BOS that the model's file asks for."""
    return await _asked(subject, "/tokenize", {"content": text, "add_special": True, "parse_special": True})


async def _by_template(subject: Subject, request: Params) -> EngineIds:
    return await _llamacpp_ids(subject, (await subject.client.ask(LLAMACPP, request)).get("prompt"))


async def _by_answer(subject: Subject, request: Params) -> EngineIds:
    params = {**ONE_TOKEN, **{name: request[name] for name in request if name == "chat_template_kwargs"}}
    return await _read(subject, Exchange("chat", "check", messages=tuple(request["messages"]), params=params))


WAYS: Mapping[str, Callable[[Subject, Params], Awaitable[EngineIds]]] = {
    VLLM: lambda subject, request: _asked(subject, VLLM, request, "token_ids"),
    LLAMACPP: _by_template,
    "/tokenize": lambda subject, request: _asked(subject, "/tokenize", request),
    "its chat answers": _by_answer,
}
"""Way to learn the ids of a chat prompt, the strongest first. ``request``: the fields of a chat request."""


async def _chat_ids(subject: Subject, request: Params) -> EngineIds:
    """Return the ids that the chat endpoint reads, in the way that answered the first conversation."""
    for way in () if subject.way else WAYS:
        with suppress(GatewayError, NotChecked):
            found = await WAYS[way](subject, request)
            subject.way = way
            return found
    require(subject.way, f"none of these tells what the chat endpoint reads: {', '.join(WAYS)}")
    return await WAYS[subject.way](subject, request)


async def _read(subject: Subject, exchange: Exchange) -> EngineIds:
    """Return the ids that an endpoint reads. An engine that refuses the fields for this is asked without."""
    if subject.way == LLAMACPP and exchange.prompts and isinstance(exchange.prompts[0], str):
        return await _llamacpp_ids(subject, exchange.prompts[0])
    try:
        completion = await subject.client.complete(replace(exchange, params={**exchange.params, **subject.asked}))
    except RequestError:
        if not subject.asked:
            raise
        subject.asked = {}
        return await _read(subject, exchange)
    choice, begun, usage = completion.choices[0], completion.begun, completion.usage
    fields = {**(begun.fields if begun is not None else {}), **choice.extras}
    if ids := fields.get("prompt_token_ids"):
        return _checked(ids)
    if fields.get(PROMPT_LOGPROBS):
        return [int(next(iter(entry))) if entry else None for entry in prompt_entries(completion, choice, None)]
    return usage.prompt if usage is not None else _checked(None)


# ---------------------------------------------------------------- the probes


def expect_same(subject: Subject, ours: EngineIds, theirs: EngineIds, what: str) -> None:
    """Raise ``EngineDiffers`` if the ids differ, with the first different token and the BOS on both sides."""
    if isinstance(ours, int) or isinstance(theirs, int):
        one, other = [ids if isinstance(ids, int) else len(ids) for ids in (ours, theirs)]
        expect(one == other, f"{what} has {one} tokens for us, and {other} for the engine")
        return
    filled = [*ours[: theirs.count(None)], *theirs[theirs.count(None) :]]  # the first token has no log probability
    at, advice = first_difference(ours, filled), "if this token is a BOS, correct adds_bos or bos of the template; "
    tokens = [_token(subject, [id_ for id_ in ids[at : at + 1] if id_ is not None]) for ids in (ours, filled)]
    first = f"token {at} is {tokens[0]} for us, {tokens[1]} for the engine; {_bos(subject, ours, filled)[1]}"
    added = [one for one in filled[at : at + 1] if one is not None and one not in ours]
    is_special = added and subject.tokens and not subject.tokens.detokenize(added, skip_special_tokens=True)
    expect([*ours] == filled, f"{what}: {first}", advice if is_special else "")


def _token(subject: Subject, ids: list[int]) -> str:
    text = subject.tokens.detokenize(ids) if subject.tokens is not None else ""
    return f"{ids[0]} {quoted(text)}" if ids else "the end"


def _bos(subject: Subject, *prompts: Sequence[int | None]) -> tuple[int, str]:
    """Return the number of BOS tokens at the start of the first prompt, and the evidence with that of each prompt."""
    tokens = subject.tokens
    text = tokenizer_bos(tokens) or (subject.route.template.spec.bos_text if subject.route else "")
    bos = tokens.tokenize(text, False) if tokens is not None and text else []
    counts = [next((at for at, one in enumerate(ids) if [one] != bos), len(ids)) for ids in prompts]
    return counts[0], f"BOS at the start: {' and '.join(map(str, counts)) if bos else 'not known'}"


async def _chat(subject: Subject) -> str:
    jinja, compared = subject.route and subject.route.template.spec.jinja, list[EngineIds]()
    for name in CASES:
        with suppress(RequestError):  # the template, or the engine's, refuses the conversation
            case, exchange, ids = await _rendered(subject, name, protected=False)
            theirs = await _chat_ids(subject, chat_fields(case.dialogue, jinja.kwargs if jinja else {}))
            ours: EngineIds = ids
            if isinstance(theirs, int) or not ids:
                as_ids = ids and subject.takes_ids
                ours = await _read(subject, replace(exchange, prompts=(ids,)) if as_ids else exchange)
            expect_same(subject, ours, theirs, f"the conversation {quoted(name)}")
            compared.append(theirs)
    require(2 * len(compared) >= len(CASES), f"{len(compared)} of {len(CASES)} conversations are not refused")
    found = "number of tokens" if isinstance(compared[0], int) else "token ids"
    return f"{len(compared)} of {len(CASES)} conversations are not refused, and have the same {found}, by {subject.way}"


async def _string(subject: Subject) -> str:
    for name in SENT_CASES:
        _, exchange, ids = await _rendered(subject, name, protected=True)
        as_text = isinstance(exchange.prompts[0], str) and subject.tokens is not None
        require(as_text, "the prompt is sent as token ids, or gateway.yaml has no tokenizer of the model")
        theirs = await _read(subject, exchange)
        if isinstance(theirs, int):
            return await _bos_by_counts(subject, exchange, ids)
        expect_same(subject, ids, theirs, f"our string of {quoted(name)}")
    return f"the same token ids; {_bos(subject, ids)[1]}"


async def _bos_by_counts(subject: Subject, exchange: Exchange, ids: Sequence[int]) -> str:
    """Compare the number of BOS tokens, from the numbers of tokens of a line and of the same line twice."""
    counts = [await _read(subject, replace(exchange, prompts=(LINE * times,))) for times in (1, 2)]
    once, twice = [one if isinstance(one, int) else len(one) for one in counts]
    body, _ = CompletionsBackend(subject.client.target, HttpClient()).request_body(exchange)
    added, bos, (expected, evidence) = 2 * once - twice, exchange.bos_text, _bos(subject, ids)
    found = added + bool(bos and body["prompt"].startswith(bos))
    expect(found == expected, f"our string should have {expected} BOS, and has {found}: the engine adds {added}")
    return f"{evidence}; the engine adds {added}, by the numbers of tokens of two strings"


async def _token_ids(subject: Subject) -> str:
    accepted = subject.capabilities.token_prompts and not subject.chat
    require(accepted, "the engine takes strings only, or has no completions endpoint")
    exchange, ids = Exchange("completions", "check", params=ONE_TOKEN), ANY_IDS
    if subject.tokens is not None:
        _, exchange, ids = await _rendered(subject, SENT_CASES[0], protected=True)
    found = await _read(subject, replace(exchange, prompts=(ids,)))
    subject.takes_ids = True
    expect_same(subject, ids, found, "a prompt of token ids")
    return f"a prompt of {len(ids)} ids is read unchanged"


TEMPLATE = "the engine's chat template is not ours: use our prompt, or compare them with gateway parity --reference URL"
PROBES = (
    EngineProbe("token prompt", 2, "the engine changes token ids: send strings to it", _token_ids),
    EngineProbe("chat prompt", 14, TEMPLATE, _chat),
    EngineProbe(
        "string prompt", 5, "correct adds_bos or engine: of the target, tokenizer, or bos of the template", _string
    ),
)
