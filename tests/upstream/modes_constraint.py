"""Modes of engines that constrain an answer to JSON, and of one that ignores the constraint.

``constrained-ENGINE`` reads the engine's own field only, and ignores the others like the engine. Options: ``seed``
(another answer), ``size`` (characters of a token, 3), ``cut`` (characters after which the answer ends with ``length``),
``free`` (the answer to a request without the field).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.gbnf import Grammar
from tests.instances import valid_instance
from tests.upstream.modes import MODES, mode
from tests.upstream.reply import Reply

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


def _llamacpp_python(body: Mapping[str, Any]) -> Answer | None:
    grammar = body.get("grammar")
    return None if grammar is None else Grammar(grammar).random_text


DIALECTS: Mapping[str, Callable[[Mapping[str, Any]], Answer | None]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "llamacpp-python": _llamacpp_python,
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
