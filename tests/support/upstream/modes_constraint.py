"""Modes of engines that constrain an answer to JSON, and of one that ignores the constraint.

``constrained-ENGINE`` reads the engine's own field only, and ignores the others like the engine. Options: ``seed``
(another answer), ``size`` (characters of a token, 3), ``cut`` (characters after which the answer ends with ``length``),
``free`` (the answer to a request without the field).
``constrained-chat`` reads the fields of chat, ``continues-call`` completes the call that a prompt has begun, and
``constraint-ignored`` reads nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.instances import valid_instance
from tests.support.upstream.modes import MODES, mode
from tests.support.upstream.reply import Reply

PROSE = "Sure! Here is the JSON."
ANY_OBJECT = {"type": "object", "properties": {"free": {"type": "integer"}}, "required": ["free"]}
"""A schema for an answer that may be any object."""

Answer = Callable[[random.Random], str]
"""Makes an answer that the constraint of a request allows."""


def _instance_of(schema: Any) -> Answer:
    wanted = ANY_OBJECT if schema == {"type": "object"} else schema
    return lambda rng: json.dumps(valid_instance(wanted, rng), ensure_ascii=False)


def _vllm(body: Mapping[str, Any]) -> Answer | None:
    match body.get("structured_outputs"):
        case {"json": schema, **others} if not others:
            return _instance_of(json.loads(schema) if isinstance(schema, str) else schema)
        case {"json_object": True, **others} if not others:
            return _instance_of(ANY_OBJECT)
        case None:
            return None
    raise ValueError("structured_outputs is not one constraint")


def _sglang(body: Mapping[str, Any]) -> Answer | None:
    schema = body.get("json_schema")
    if schema is None:
        return None
    if not isinstance(schema, str):
        raise ValueError("json_schema: Input should be a valid string")
    return _instance_of(json.loads(schema))


def _llamacpp(body: Mapping[str, Any]) -> Answer | None:
    if "json_schema" not in body or "grammar" in body:
        return None
    if not isinstance(body["json_schema"], dict):
        raise ValueError('"json_schema": it must be an object')
    return _instance_of(body["json_schema"])


DIALECTS: Mapping[str, Callable[[Mapping[str, Any]], Answer | None]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
}
"""Engine → how it reads the constraint of a request; None: the request has none. Raises ``ValueError``."""


def _constrained_mode(engine: str) -> None:
    async def respond(reply: Reply) -> None:
        request = reply.request
        try:
            answer = DIALECTS[engine](request.body)
        except ValueError as error:
            await reply.error("400 Bad Request", str(error))
            return
        rng = random.Random(int(request.number("seed", 0)))
        free = request.options.get("free", PROSE)
        texts = [free if answer is None else answer(rng) for _ in range(int(request.body.get("n") or 1))]
        await _send(reply, texts)

    MODES[f"constrained-{engine}"] = respond


for _engine in DIALECTS:
    _constrained_mode(_engine)


@mode("constraint-ignored")
async def constraint_ignored(reply: Reply) -> None:
    """The option ``text``, or prose, with the finish reason ``stop``, whatever the request asks for."""
    await _send(reply, [reply.request.options.get("text", PROSE)] * int(reply.request.body.get("n") or 1))


@mode("constrained-chat")
async def constrained_chat(reply: Reply) -> None:
    """An answer as ``response_format`` and ``tool_choice`` of a chat request require; otherwise the option ``free``."""
    body, rng = reply.request.body, random.Random(0)
    choice, form = body.get("tool_choice"), body.get("response_format") or {}
    if choice in ("required", "any") or isinstance(choice, dict):
        tool = body["tools"][0]["function"]
        arguments = json.dumps(valid_instance(tool.get("parameters") or ANY_OBJECT, rng))
        await _send_call(reply, tool["name"], arguments)
        return
    schema = (form.get("json_schema") or form).get("schema", ANY_OBJECT)
    free = reply.request.options.get("free", PROSE)
    await _send(reply, [_instance_of(schema)(rng) if form.get("type", "text") != "text" else free])


@mode("continues-call")
async def continues_call(reply: Reply) -> None:
    """The rest of the call that the prompt has begun, in the format ``hermes``."""
    named = reply.request.body["prompt"].endswith('"arguments": ')
    await _send(reply, ['{"a": 1}}' if named else 'add", "arguments": {"a": 1}}'])


async def _send_call(reply: Reply, name: str, arguments: str) -> None:
    """Send an answer of a chat that is one tool call. The finish reason is ``stop``, as OpenAI sends it if forced."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    if not reply.request.stream:
        answer = reply.whole([""], usage=reply.usage())
        answer["choices"][0]["message"] |= {"content": None, "tool_calls": [call]}
        await reply.json(answer)
        return
    await reply.stream_head()
    for delta in (
        {"tool_calls": [{"index": 0, **call, "function": {"name": name, "arguments": ""}}]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": sign}}]} for sign in arguments),
    ):
        await reply.event(reply.piece(None) | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    await reply.event(reply.piece(None, 0, "stop"))
    await reply.usage_event()
    await reply.done()
    await reply.end()


async def _send(reply: Reply, whole: list[str]) -> None:
    """Send the texts, one for each choice."""
    size, cut = int(reply.request.number("size", 3)), int(reply.request.number("cut", 0))
    texts = [text[:cut] if cut else text for text in whole]
    ends = ["stop" if text == full else "length" for text, full in zip(texts, whole, strict=True)]
    tokens = [[text[at : at + size] for at in range(0, len(text), size)] for text in texts]
    count = sum(map(len, tokens))
    if not reply.request.stream:
        answer = reply.whole(texts, usage=reply.usage(count))
        for choice, end in zip(answer["choices"], ends, strict=True):
            choice["finish_reason"] = end
        await reply.json(answer)
        return
    await reply.stream_head()
    for index, parts in enumerate(tokens):
        await reply.tokens(parts, index)
        await reply.event(reply.piece(None, index, ends[index]))
    await reply.usage_event(count)
    await reply.done()
    await reply.end()
