"""The bodies of ``/tokenize`` and ``/detokenize``, in vLLM's form."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema, create_model

from gateway.core.call import Call, TokenizeCall
from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.wire.message_content import read_prompts
from gateway.wire.request_fields import FORBIDDEN, TOKEN_ID, ChatRequest, Closed
from gateway.wire.requests import read_chat
from gateway.wire.validation import first_problem
from metatemplate.values.words import plain

OPTIONS = ("add_special_tokens", "return_token_strs")
CHAT_FIELDS = frozenset(
    {
        "add_generation_prompt",
        "chat_template_kwargs",
        "continue_final_message",
        "gateway",
        "messages",
        "model",
        "tools",
    }
)
"""The accepted chat fields of a ``/tokenize`` request. Other chat fields would have no effect."""


class _Body(Closed):
    model: Annotated[str, Field(min_length=1)]


class _Options(_Body):
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeText(_Options):
    """``POST /tokenize`` with a text."""

    prompt: str


class _Messages(_Options):
    model_config = ConfigDict(defer_build=True)


TokenizeMessages = create_model(
    "TokenizeMessages",
    __base__=_Messages,
    __doc__="``POST /tokenize`` with messages, which have the fields of a chat request.",
    **{name: (info.annotation, info) for name, info in ChatRequest.model_fields.items() if name in CHAT_FIELDS},
)  # type: ignore[call-overload]


TokenizeRequest = TokenizeText | TokenizeMessages


class DetokenizeRequest(_Body):
    """``POST /detokenize``."""

    tokens: Annotated[Any, WithJsonSchema({"type": "array", "items": TOKEN_ID})]


def read_tokenize(body: dict[str, Any], *, request_id: str, caller: Caller = ANONYMOUS) -> Call:
    """Read a ``/tokenize`` body, which has ``prompt`` or ``messages``."""
    if body.get("messages") is None:
        _checked(TokenizeText, body)
        prompts = (body["prompt"],)
        return _tokenize_call(Call("completions", body["model"], request_id, caller, raw_prompts=prompts), body)
    if unknown := {name for name, value in body.items() if value is not None} - {*CHAT_FIELDS, *OPTIONS} - FORBIDDEN:
        raise UnsupportedParameter(
            f"/tokenize does not accept {plain(min(unknown))} with messages; leave it out", param=plain(min(unknown))
        )
    chat = {name: value for name, value in body.items() if name not in OPTIONS}
    options = {name: body[name] for name in OPTIONS if name in body}
    _checked(_Options, {"model": body["model"], **options})
    call = read_chat(chat, request_id=request_id, caller=caller, answered=False)
    if call.turns is not None:
        raise UnsupportedParameter("a request with turns has several prompts; leave turns out", param="gateway.turns")
    return _tokenize_call(call, body)


def read_detokenize(body: dict[str, Any], *, request_id: str, caller: Caller = ANONYMOUS) -> Call:
    """Read a ``/detokenize`` body. The prompt of the ``Call`` is the list of token ids."""
    _checked(DetokenizeRequest, body)
    ids: tuple[Any, ...] = ((),)
    if body["tokens"] != []:
        ids, is_list = read_prompts(body["tokens"], "tokens")
        if is_list or isinstance(ids[0], str):
            raise InvalidValue.at("tokens", " must be a list of token ids")
    return Call("completions", body["model"], request_id, caller, raw_prompts=ids)


def _checked(schema: type[_Body], body: dict[str, Any]) -> None:
    try:
        schema.model_validate(body)
    except ValidationError as error:
        raise first_problem(error, schema) from None


def _tokenize_call(call: Call, body: dict[str, Any]) -> TokenizeCall:
    return TokenizeCall(
        **{field.name: getattr(call, field.name) for field in fields(call)},
        add_special_tokens=body.get("add_special_tokens"),
        token_strs=bool(body.get("return_token_strs")),
    )
