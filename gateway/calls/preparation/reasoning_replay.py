"""Puts back the reasoning that a client has left out of an earlier turn with tool calls (``reasoning: replay``).

Most SDKs send the calls and the results of a turn back, and drop its reasoning. So the reasoning of each answer with
tool calls is kept in the store of the cache, and a request gets it back before it is rendered: everything behind that
sees the request of a client that kept it.

The key of a reasoning is the name of the client's key, all messages before the turn, and the turn's first call. The id
of the call alone would not do, because some engines begin with the same ids in every conversation. No reasoning is in
the key: a client may keep that of some turns.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import product
from typing import Any

import orjson

from gateway.config.snapshot import PolicySpec, Snapshot
from gateway.core.call import Call
from gateway.core.errors import ConfigError, ContextLengthExceeded, Problem, UpstreamError
from gateway.storage.cache_store import CacheStore, StoredAnswer, StoreFailed
from gateway.stream.completion_builder import CompletionBuilder
from gateway.wire.json import dump_json
from metatemplate.chat_templates.call_content import tool_call_messages, tool_options
from metatemplate.errors import MetaTemplateError
from metatemplate.templates.base import Template
from metatemplate.values.answer_markers import REASONING_FIELDS as FIELDS
from metatemplate.values.dialogue import Dialogue, Message, PlainMessages, RenderOptions
from metatemplate.values.events import Choice, Delta, Event, Finish
from metatemplate.values.prompt import Notice

REASONING = (*FIELDS, "thinking", "reasoning_details", "thinking_blocks")
"""The fields of a message with reasoning. A message with one of them is not changed. Those of ``FIELDS`` are kept and
put back."""
MAX_TURNS = 256
"""The maximum number of turns of a request that are looked up: the last ones."""
MAX_CHARACTERS = 2_000_000
"""The maximum number of characters that are put back into one request. A request with more is refused."""
MAX_PARSED = 64 * 1024
"""The maximum number of characters of arguments that are parsed, which takes up to 5 ms. Longer ones are compared as
text."""
PROBE, PROBE_REASONING = "7031948265", "5928374610"
"""The texts of the turn with which a template is tested."""
KEPT_TTLS = 2
"""A server keeps a reasoning for this number of its ``ttl``, so that an expired one is not taken for a missing one."""
WHOLE_NUMBER = re.compile(r"\.0(?=[,\]}])")
"""The decimals of a whole number in JSON, which some SDKs write and others do not."""
PUT_BACK, NOT_FOUND, EXPIRED = "reasoning_put_back", "reasoning_not_found", "reasoning_expired"
TurnReasoning = tuple[str, Mapping[str, str]]
"""The rule of the notice, empty for a turn without reasoning; and the fields to put back."""


class ReasoningReplay:
    """Keeps and puts back the reasoning of one model's turns."""

    def __init__(
        self,
        policy: PolicySpec,
        template: Template,
        snapshot: Snapshot,
        store: CacheStore,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``now``: returns the seconds since the epoch.

        Raises ``ConfigError`` if the template cannot write reasoning, or if the workers do not share the store.
        """
        self._store, self._ttl, self._now = store, policy.cache.ttl, now
        reason = ""
        if not _writes_reasoning(template):
            reason = "the model's template does not write the reasoning of earlier turns; use another policy"
        elif snapshot.server.workers > 1 and not (snapshot.cache.path or snapshot.cache.shared):
            reason = "the workers have no common store; write `cache: {path: answers.sqlite}` in gateway.yaml"
        if reason:
            message = f"reasoning: replay is not possible for this model: {reason}"
            raise ConfigError((Problem(f"policies/{policy.name}.yaml", 0, "policy", message),))

    async def put_back(self, call: Call) -> Call:
        """Return the call with the reasoning that its messages lack, and with a notice for each kind of result."""
        dialogue = call.dialogue
        if dialogue is None or type(dialogue.messages) is PlainMessages:
            return call
        if not (keys := await asyncio.to_thread(_keys_of_turns, call.caller.key, dialogue.messages)):
            return call
        messages, turns = list(dialogue.messages), dict[str, list[int]]()
        found = await asyncio.gather(*map(self._find, keys.values()))
        for number, (rule, fields) in zip(keys, found, strict=True):
            messages[number] = replace(messages[number], raw={**messages[number].raw, **fields})
            turns.setdefault(rule, []).append(number)
        if sum([max(map(len, fields.values()), default=0) for _, fields in found]) > MAX_CHARACTERS:
            raise ContextLengthExceeded(
                f"the earlier reasoning has more than {MAX_CHARACTERS} characters; send fewer messages",
                param="messages",
            )
        notices = [
            Notice(rule, f"{len(numbers)}, first in messages[{numbers[0]}]") for rule, numbers in turns.items() if rule
        ]
        dialogue = replace(dialogue, messages=tuple(messages))
        return replace(call, dialogue=dialogue, notices=(*call.notices, *notices))

    async def keep(self, call: Call, answer: Iterable[Event]) -> None:
        """Store the reasoning of each choice with tool calls. ``answer``: the events that the client has received."""
        builder, choices = CompletionBuilder(), tuple[Choice, ...]()
        with suppress(UpstreamError):  # an answer that is too large, or not complete
            for event in answer:
                if isinstance(event, Finish) or (isinstance(event, Delta) and event.fields):
                    builder.add(event)
            choices = builder.result().choices
        turns = [(calls[0], one.fields) for one in choices if (calls := _calls(one.fields))]
        if turns and call.dialogue is not None:
            digest = await asyncio.to_thread(_digest, call.caller.key, call.dialogue.messages)
            for first_call, fields in turns:
                await self._keep(_key(digest, first_call), _texts(fields))

    async def _find(self, key: bytes) -> TurnReasoning:
        try:
            found = await self._store.get(key)
        except StoreFailed:
            return NOT_FOUND, {}
        delta = found.events[0] if found is not None and found.events else None
        if found is None or not isinstance(delta, Delta):
            return NOT_FOUND, {}
        if abs(self._now() - found.created) > self._ttl:
            return EXPIRED, {}
        texts = _texts(delta.fields)
        return PUT_BACK if texts else "", texts

    async def _keep(self, key: bytes, fields: Mapping[str, str]) -> None:
        """Store the reasoning of a turn. Nothing is found for a key under which two turns have different reasoning."""
        mine, times = StoredAnswer(self._now(), (Delta(0, fields=fields),)), (self._ttl, KEPT_TTLS * self._ttl)
        await self._store.put(key, mine, *times)
        with suppress(StoreFailed):
            found = await self._store.get(key)
            if found is not None and tuple(found.events) != mine.events:
                await self._store.put(key, StoredAnswer(mine.created, ()), *times, replace=True)


def _writes_reasoning(template: Template) -> bool:
    """Return whether a template writes the reasoning of a turn with a tool call, if the request's variables allow it.

    The turn is rendered, because many templates name the field and do not write it. True for a chat target, which
    renders by itself.
    """
    question, turn, result = tool_call_messages(PROBE, None)
    dialogue = Dialogue((question, replace(turn, raw={**turn.raw, **dict.fromkeys(FIELDS, PROBE_REASONING)}), result))
    jinja = template.spec.jinja
    switches = () if jinja is None else jinja.request_kwargs
    for options, variables in product((RenderOptions(), tool_options(PROBE)), ({}, dict.fromkeys(switches, True))):
        options = replace(options, template_kwargs=variables)
        with suppress(MetaTemplateError):  # the template has no tool calls, or refuses the values of the variables
            if PROBE_REASONING in template.render(replace(dialogue, options=options)).text:
                return True
    return template.spec.kind == "chat"


def _calls(fields: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool calls of an answer. A chat target may send anything in their place."""
    calls = fields.get("tool_calls")
    return calls if isinstance(calls, list) and all(isinstance(call, dict) for call in calls) else []


def _texts(fields: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the fields that are kept and put back."""
    return {name: text for name in FIELDS if isinstance(text := fields.get(name), str) and text}


def _keys_of_turns(client: str, messages: Sequence[Message]) -> Mapping[int, bytes]:
    """Return the keys of the last turns that have tool calls and no reasoning, by the index of their message."""
    digest, keys = _digest(client), dict[int, bytes]()
    for number, message in enumerate(messages):
        calls = message.raw.get("tool_calls") if message.role == "assistant" else None
        if calls and not any(map(message.raw.get, REASONING)):
            keys[number] = _key(digest, calls[0])
        _add(digest, _visible(message))
    return dict([*keys.items()][-MAX_TURNS:])


def _digest(client: str, messages: Iterable[Message] = ()) -> Any:
    """Return the hash of a client's conversation. ``client``: the name of its key."""
    digest = sha256()
    for value in (["reasoning", client], *map(_visible, messages)):
        _add(digest, value)
    return digest


def _add(digest: Any, value: list[Any]) -> None:
    digest.update(dump_json(value).encode("ascii"))


def _key(digest: Any, first_call: Mapping[str, Any]) -> bytes:
    """Return the key of the turn after the messages of ``digest``, which is not changed."""
    digest = digest.copy()
    _add(digest, _visible_call(first_call))
    key: bytes = digest.digest()
    return key


def _visible(message: Message) -> list[Any]:
    """Return what a message is without its reasoning, in a form that does not depend on the SDK that sends it."""
    raw, calls = message.raw, message.raw.get("tool_calls") or ()
    media = [part for part in raw.get("content") or () if part.get("type") != "text"] if message.parts else []
    return [message.role, message.text, media, raw.get("name"), raw.get("tool_call_id"), [*map(_visible_call, calls)]]


def _visible_call(call: Mapping[str, Any]) -> list[Any]:
    """Return the id and the content of a call. SDKs parse the arguments, and write them in a form of their own."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    with suppress(ValueError, TypeError):  # no JSON, or too deep
        if not isinstance(arguments, str) or len(arguments) <= MAX_PARSED:
            value = orjson.loads(arguments) if isinstance(arguments, str) else arguments
            arguments = WHOLE_NUMBER.sub("", orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode())
    return [call.get("id"), function.get("name"), arguments, call.get("custom")]
