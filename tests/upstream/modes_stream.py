"""Modes of the stream itself: how it is cut, framed, ended, and what text it carries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from typing import Any

from tests.upstream.talk import TEXT, TOKENS, Talk

Mode = Callable[[Talk], Awaitable[None]]

MODES: dict[str, Mode] = {}


def mode(name: str) -> Callable[[Mode], Mode]:
    def add(function: Mode) -> Mode:
        MODES[name] = function
        return function

    return add


# ---------------------------------------------------------------- a right answer


@mode("ok")
async def say_ok(talk: Talk) -> None:
    """A well-behaved engine: n, list prompts, echo, logprobs, usage, embeddings."""
    if talk.heard.endpoint == "embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
        await talk.json(
            {"object": "list", "data": [vector], "model": "tiny", "usage": {"prompt_tokens": 3, "total_tokens": 3}}
        )
    elif talk.heard.stream:
        await talk.stream_head()
        await play(talk, TOKENS)
    else:
        await say_whole(talk)


async def play(talk: Talk, texts: Sequence[str | tuple[int, str]], finish: str = "stop", **last: object) -> None:
    """The events of a stream whose head is out: tokens, finish of every choice, usage, done."""
    asked = len(talk.heard.prompts) * int(talk.heard.body.get("n") or 1)
    numbered = [text for text in texts if isinstance(text, tuple)]
    plain = [text for text in texts if isinstance(text, str)]
    numbered += [(index, text) for text in plain for index in range(asked)]
    if talk.heard.endpoint == "chat":
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        await talk.event(talk.envelope([role], chunk=True))
    for index, text in numbered:
        await talk.event(talk.piece(text, index))
    for index in sorted({index for index, _ in numbered} or {0}):
        await talk.event(talk.piece(None, index, finish, **last))
    await talk.usage_event(len(numbered))
    await talk.done()
    await talk.end()


async def say_whole(talk: Talk) -> None:
    body = talk.heard.body
    texts = []
    for prompt in talk.heard.prompts:
        said = (prompt if body.get("echo") and isinstance(prompt, str) else "") + TEXT
        texts += [said] * int(body.get("n") or 1)
    answer = talk.whole(texts, usage=talk.usage(len(TOKENS) * len(texts)), system_fingerprint="fp_rude")
    for choice in answer["choices"]:
        if body.get("logprobs"):
            choice["logprobs"] = _logprobs(talk)
    await talk.json(answer)


def _logprobs(talk: Talk) -> dict[str, object]:
    if talk.heard.endpoint == "chat":
        content = [
            {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []} for token in TOKENS
        ]
        return {"content": content, "refusal": None}
    prompt = talk.heard.prompts[0]
    echoed = [prompt] if talk.heard.body.get("echo") and isinstance(prompt, str) else []
    tokens = [*echoed, *TOKENS]
    offsets = [sum(len(token) for token in tokens[:position]) for position in range(len(tokens))]
    values = [None] * len(echoed) + [-0.5] * len(TOKENS)
    tops = [
        None if value is None else {token: value, "other": -2.0} for token, value in zip(tokens, values, strict=True)
    ]
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


@mode("say")
async def say(talk: Talk) -> None:
    """What the option ``text`` says, ``size`` characters a token; ``then``, once the prompt holds ``when``.

    ``finish``: the reason at its end. Log probabilities come with every token if they are asked for.
    """
    options, body = talk.heard.options, talk.heard.body
    text = options["text"]
    if "when" in options and options["when"] in talk.heard.prompts[0]:
        text = options["then"]
    size, finish = int(talk.heard.number("size", 3)), options.get("finish", "stop")
    tokens = [text[at : at + size] for at in range(0, len(text), size)]
    copies = range(int(body.get("n") or 1))

    def scores(tokens: Sequence[str]) -> dict[str, Any]:
        if not body.get("logprobs"):
            return {}
        return {"logprobs": {"tokens": list(tokens), "token_logprobs": [-0.5] * len(tokens), "top_logprobs": None}}

    if not talk.heard.stream:
        answer = talk.whole([text for _ in copies], finish, usage=talk.usage(len(tokens)))
        for choice in answer["choices"]:
            choice.update(scores(tokens))
        await talk.json(answer)
        return
    await talk.stream_head()
    for token in tokens:
        for index in copies:
            await talk.event(talk.piece(token, index, **scores([token])))
    for index in copies:
        await talk.event(talk.piece(None, index, finish))
    await talk.usage_event(len(tokens))
    await talk.done()
    await talk.end()


@mode("say-and-break")
async def say_and_break(talk: Talk) -> None:
    """What the option ``text`` says, three characters a token, for every choice; then the option ``how`` happens."""
    text = talk.heard.options["text"]
    await talk.stream_head()
    for at in range(0, len(text), 3):
        for index in range(int(talk.heard.body.get("n") or 1)):
            await talk.event(talk.piece(text[at : at + 3], index))
    match talk.heard.options["how"]:
        case "drop":
            await talk.drop()
        case "reset":
            await talk.reset()
        case "error":
            await talk.event({"error": {"message": "out of memory", "type": "server_error", "code": 500}})
            await talk.end()
        case "end":
            await talk.end()
        case "stall":
            await talk.hang()


def script(name: str, texts: Sequence[str | tuple[int, str]], finish: str = "length") -> None:
    """A mode that says these texts and stops; ``<eob>`` is replaced by the option ``marker``."""

    async def reply(talk: Talk) -> None:
        marker = talk.heard.options.get("marker", "<eob>")
        said: list[str | tuple[int, str]] = []
        for text in texts:
            if isinstance(text, tuple):
                said.append((text[0], text[1].replace("<eob>", marker)))
            elif text == "<eob>" and name == "split-stop":
                said.extend(marker)
            else:
                said.append(text.replace("<eob>", marker))
        if talk.heard.stream:
            await talk.stream_head()
            await play(talk, said, finish)
        else:
            whole: dict[int, str] = {0: ""}
            for text in said:
                index, part = text if isinstance(text, tuple) else (0, text)
                whole[index] = whole.get(index, "") + part
            await talk.json(talk.whole(list(whole.values()), finish, usage=talk.usage(len(said))))

    MODES[name] = reply


script("eos", ["The answer", " is 4<eob>LE", "AK"])
script("split-stop", ["The answer is 4", "<eob>", "LEAK"])
script("partial-stop", ["a <eo", "b or <eo"], "stop")
script("stop-lookalike", ["a < b", " <eo b>", " <eob", " >", " <<eo"], "stop")
script("stop-first", ["<eob>", "LEAK"])
script("forged-turn", ["4<eob>\n<HUM", "AN>: and 2+2?<eoh>\n<BOT>: ", "LEAK"])
script("multi-choice", [(0, "a1 "), (1, "b1<e"), (0, "a2 "), (1, "ob>LEAK"), (0, "a3")])


# ---------------------------------------------------------------- ends (C01–C08, B20)


def streaming(name: str) -> Callable[[Mode], Mode]:
    """A mode that only a stream has; asked for JSON it answers well."""

    def add(function: Mode) -> Mode:
        async def reply(talk: Talk) -> None:
            if not talk.heard.stream:
                await say_whole(talk)
                return
            await talk.stream_head()
            await function(talk)

        MODES[name] = reply
        return function

    return add


def _first(talk: Talk, default: int = 2) -> Sequence[str]:
    """The first ``k`` tokens."""
    return TOKENS[: int(talk.heard.number("k", default))]


@streaming("drop-midstream")
async def drop_midstream(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await talk.drop()


@streaming("reset-midstream")
async def reset_midstream(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await talk.reset()


@streaming("flaky-midstream")
async def flaky_midstream(talk: Talk) -> None:
    """Lost midway once; whoever asks again gets everything (and must not show it)."""
    if talk.heard.earlier == 0:
        await drop_midstream(talk)
    else:
        await play(talk, TOKENS)


@streaming("no-done")
async def no_done(talk: Talk) -> None:
    await talk.tokens()
    await talk.event(talk.piece(None, finish="stop"))
    await talk.end()


@streaming("no-finish")
async def no_finish(talk: Talk) -> None:
    await talk.tokens()
    await talk.done()
    await talk.end()


@streaming("eof-no-finish")
async def eof_no_finish(talk: Talk) -> None:
    await talk.tokens()
    await talk.end()


@streaming("done-only")
async def done_only(talk: Talk) -> None:
    await talk.done()
    await talk.end()


@streaming("empty-stream")
async def empty_stream(talk: Talk) -> None:
    await talk.end()


@streaming("blank-flood")
async def blank_flood(talk: Talk) -> None:
    while True:
        await talk.data(b"\n" * 16384)


@streaming("data-after-done")
async def data_after_done(talk: Talk) -> None:
    await talk.tokens()
    await talk.event(talk.piece(None, finish="stop"))
    await talk.done()
    for _ in range(1000):
        await talk.event(talk.piece("LEAK"))
        await asyncio.sleep(0.01)


@streaming("late-close")
async def late_close(talk: Talk) -> None:
    """Everything is said, but the body does not end."""
    await talk.tokens()
    await talk.event(talk.piece(None, finish="stop"))
    await talk.done()
    await talk.hang()


@streaming("error-midstream")
async def error_midstream(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await talk.event({"error": {"message": "CUDA out of memory at 10.11.12.13", "type": "server_error", "code": 500}})
    await talk.done()
    await talk.end()


@streaming("error-event")
async def error_event(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await talk.data(b'event: error\ndata: {"message": "engine died at 10.11.12.13"}\n\n')
    await talk.end()


@streaming("flaky-first-chunk")
async def flaky_first_chunk(talk: Talk) -> None:
    """The first event is an error, ``fail`` times (default: always)."""
    if talk.heard.earlier < talk.heard.number("fail", 1e9):
        await talk.event(
            {"error": {"message": "engine is overloaded", "type": "overloaded_error", "code": "overloaded"}}
        )
        await talk.end()
    else:
        await play(talk, TOKENS)


@streaming("dup-finish")
async def dup_finish(talk: Talk) -> None:
    await talk.tokens()
    for _ in range(3):
        await talk.event({**talk.piece(None, finish="stop"), "usage": talk.usage()})
    await talk.done()
    await talk.end()


@streaming("usage-cumulative")
async def usage_cumulative(talk: Talk) -> None:
    for count, token in enumerate(TOKENS, 1):
        await talk.event({**talk.piece(token), "usage": talk.usage(count)})
    await talk.event({**talk.piece(None, finish="stop"), "usage": talk.usage()})
    await talk.done()
    await talk.end()


@streaming("usage-bad")
async def usage_bad(talk: Talk) -> None:
    await talk.tokens()
    bad = {"prompt_tokens": -3, "completion_tokens": "many"}
    await talk.event({**talk.piece(None, finish="stop"), "usage": bad})
    await talk.done()
    await talk.end()


# ---------------------------------------------------------------- framing (C09–C14)


@streaming("malformed-sse")
async def malformed_sse(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await talk.data(b'data: {"choices": [{"index": 0, "te\n\n')
    await play(talk, TOKENS)


@streaming("unknown-field")
async def unknown_field(talk: Talk) -> None:
    await talk.data(b"mood: sunny\ngarbage without a colon\n\n")
    await play(talk, TOKENS)


@streaming("not-a-chunk")
async def not_a_chunk(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await talk.data(b"data: 42\n\n")
    await play(talk, TOKENS)


def _ok_bytes(talk: Talk) -> list[bytes]:
    """The events of a right answer as JSON, without their frames."""
    pieces = [talk.piece(token) for token in TOKENS] + [talk.piece(None, finish="stop")]
    return [json.dumps(piece, ensure_ascii=False).encode() for piece in pieces] + [b"[DONE]"]


def framed(name: str, frame: Callable[[list[bytes]], list[bytes]]) -> None:
    """A mode that says the right answer with frames of its own; each item is one write."""

    @streaming(name)
    async def reply(talk: Talk) -> None:
        for write in frame(_ok_bytes(talk)):
            await talk.data(write)
            await asyncio.sleep(0)
        await talk.end()


def _joined(events: list[bytes]) -> bytes:
    return b"".join(b"data: %s\n\n" % event for event in events)


framed(
    "comments", lambda events: [b": hello\n\n\n\nretry: 10\nid: 7\n: ping\ndata: %s\n\n" % event for event in events]
)
framed("crlf-sse", lambda events: [b"data: %s\r\n\r\n" % event for event in events])
framed("cr-sse", lambda events: [b"data: %s\r\r" % event for event in events])
framed("no-space", lambda events: [b"data:%s\n\n" % event for event in events])
framed("multi-line-data", lambda events: [b"data: %s\n\n" % event.replace(b', "', b',\ndata: "') for event in events])
framed("bom", lambda events: [b"\xef\xbb\xbf" + _joined(events)])
framed("one-byte-writes", lambda events: [bytes([byte]) for byte in _joined(events)])
framed("one-write", lambda events: [_joined(events)])
framed("no-final-blank-line", lambda events: [_joined(events[:-1])[:-2]])
framed("split-utf8", lambda events: [part for event in events for part in _inside_characters(b"data: %s\n\n" % event)])


def _inside_characters(event: bytes) -> list[bytes]:
    """Cut in the middle of every character of more than one byte."""
    cuts = [at for at, byte in enumerate(event) if byte & 0xC0 == 0x80]
    return [event[start:end] for start, end in zip([0, *cuts], [*cuts, len(event)], strict=True)]


def escaped(name: str, texts: Sequence[bytes]) -> None:
    """A mode whose texts are JSON string bodies, written as they stand here."""

    async def reply(talk: Talk) -> None:
        if talk.heard.stream:
            await talk.stream_head()
            for text in texts:
                event = json.dumps(talk.piece("@@")).encode().replace(b"@@", text)
                await talk.data(b"data: " + event + b"\n\n")
            await talk.event(talk.piece(None, finish="stop"))
            await talk.done()
            await talk.end()
        else:
            await talk.body(json.dumps(talk.whole(["@@"])).encode().replace(b"@@", b"".join(texts)))

    MODES[name] = reply


escaped("split-surrogate", [rb"a\ud83d", rb"\ude00b"])
escaped("lone-surrogate", [rb"a\ud83d", rb"b"])
escaped("nul", [rb"a\u0000", rb"b"])
escaped("invalid-utf8", [b"a", b"\xff\xfe"])


# ---------------------------------------------------------------- time (C19, C22–C25)


@streaming("stop-then-endless")
async def stop_then_endless(talk: Talk) -> None:
    await talk.tokens(["The answer is 4", talk.heard.options.get("marker", "<eob>")])
    await _endless(talk)


@streaming("never-ends")
async def never_ends(talk: Talk) -> None:
    await _endless(talk)


async def _endless(talk: Talk) -> None:
    for token in cycle(["on ", "and "]):
        await talk.event(talk.piece(token))
        await asyncio.sleep(talk.heard.number("ms", 5) / 1000)


@mode("slow-ttfb")
async def slow_ttfb(talk: Talk) -> None:
    await asyncio.sleep(talk.heard.number("ms", 300) / 1000)
    await say_ok(talk)


@streaming("stall-midstream")
async def stall_midstream(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await talk.hang()


@streaming("pause-resume")
async def pause_resume(talk: Talk) -> None:
    await talk.tokens(_first(talk))
    await asyncio.sleep(talk.heard.number("ms", 200) / 1000)
    await talk.tokens(TOKENS[len(_first(talk)) :])
    await talk.event(talk.piece(None, finish="stop"))
    await talk.done()
    await talk.end()


@streaming("keepalive-only")
async def keepalive_only(talk: Talk) -> None:
    while True:
        await talk.data(b": ping\n\n")
        await asyncio.sleep(0.02)


@streaming("empty-deltas")
async def empty_deltas(talk: Talk) -> None:
    while True:
        await talk.event(talk.piece(""))
        await asyncio.sleep(0.02)


@streaming("huge-line")
async def huge_line(talk: Talk) -> None:
    for _ in range(80):
        await talk.data(b"data: " + b"x" * 64 * 1024)


# ---------------------------------------------------------------- shapes (C31)


@streaming("reasoning")
async def reasoning(talk: Talk) -> None:
    await talk.event(
        talk.envelope([{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}], chunk=True)
    )
    await play(talk, TOKENS)


@mode("tool-calls")
async def tool_calls(talk: Talk) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    if not talk.heard.stream:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        await talk.json(talk.envelope([{"index": 0, "message": message, "finish_reason": "tool_calls"}]))
        return
    await talk.stream_head()
    first = {**call, "index": 0, "function": {"name": "add", "arguments": ""}}
    for fragment in (
        first,
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": " 1}"}},
    ):
        await talk.event(
            talk.envelope([{"index": 0, "delta": {"tool_calls": [fragment]}, "finish_reason": None}], chunk=True)
        )
    await talk.event(talk.piece(None, finish="tool_calls"))
    await talk.done()
    await talk.end()


@streaming("odd-index")
async def odd_index(talk: Talk) -> None:
    await talk.event(talk.piece("a", 0))
    await talk.event(talk.piece("LEAK", 5))
    await play(talk, TOKENS)


@mode("flood")
async def flood(talk: Talk) -> None:
    """A stream without end, whatever was asked for, as fast as it can be written."""
    await talk.stream_head()
    piece = "a" * 60_000
    while True:
        await talk.event(talk.piece(piece))


@mode("huge-usage")
async def huge_usage(talk: Talk) -> None:
    """A count that no counter should take."""
    usage = {**talk.usage(), talk.heard.options["name"]: 2**63}
    if not talk.heard.stream:
        await talk.json(talk.whole([TEXT], usage=usage))
        return
    await talk.stream_head()
    await talk.tokens()
    await talk.event(talk.piece(None, finish="stop"))
    await talk.event(talk.envelope([], chunk=True, usage=usage))
    await talk.done()
    await talk.end()


@streaming("null-choices")
async def null_choices(talk: Talk) -> None:
    await talk.event({**talk.envelope([], chunk=True), "choices": None})
    await talk.tokens()
    await talk.event({**talk.envelope([], chunk=True), "choices": None})
    await talk.event(talk.piece(None, finish="stop"))
    await talk.done()
    await talk.end()


@mode("deep")
async def deep(talk: Talk) -> None:
    """JSON that nests, in each place of an answer in which something is read or passed on."""
    where, depth = talk.heard.options["where"], int(talk.heard.number("depth", 100))
    nested = '{"a":' * depth + "1" + "}" * depth
    choice = '"index": 0, "finish_reason": null'
    said = '"content": "a"'
    lone = "\\ud83d" if where == "lone surrogate" else ""
    places = {
        "choices": f'{{"choices": {nested}}}',
        "logprobs": f'{{"choices": [{{{choice}, "delta": {{{said}}}, "logprobs": {nested}}}]}}',
        "delta": f'{{"choices": [{{{choice}, "delta": {{{said}, "x": {nested}}}}}]}}',
        "usage": f'{{"choices": [], "usage": {{"prompt_tokens": 1, "x": {nested}}}}}',
        "error": f'{{"error": {nested}}}',
        "error event": f'{{"error": {nested}}}',
        "extra": f'{{"choices": [{{{choice}, "delta": {{{said}}}, "x": {nested}}}]}}',
        "lone surrogate": f'{{"choices": [{{{choice}, "delta": {{{said}}}, "x": {nested}, "y": "{lone}"}}]}}',
    }
    body = places[where].encode()
    if not talk.heard.stream:
        await talk.body(body.replace(b'"delta"', b'"message"'))
        return
    await talk.stream_head()
    event = b"event: error\n" if where == "error event" else b""
    await talk.data(event + b"data: " + body + b"\n\n")
    await talk.done()
    await talk.end()
