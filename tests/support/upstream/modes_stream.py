"""Modes for streams: their framing, ends, timing and text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.support.upstream.modes import MODES, Mode, mode
from tests.support.upstream.reply import TEXT, TOKENS, Reply

# ---------------------------------------------------------------- a correct answer


@mode("ok")
async def send_ok(reply: Reply) -> None:
    """A correct engine: n, list prompts, echo, logprobs, usage, embeddings."""
    if reply.request.endpoint == "embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
        await reply.json(
            {"object": "list", "data": [vector], "model": "tiny", "usage": {"prompt_tokens": 3, "total_tokens": 3}}
        )
    elif reply.request.stream:
        await reply.stream_head()
        await send_stream(reply, TOKENS)
    else:
        await send_whole(reply)


async def send_stream(
    reply: Reply, texts: Sequence[str | tuple[int, str]], finish: str = "stop", **last: object
) -> None:
    """Send the events of a stream after its head: tokens, finish of every choice, usage, done."""
    choices = len(reply.request.prompts) * int(reply.request.body.get("n") or 1)
    numbered = [text for text in texts if isinstance(text, tuple)]
    plain = [text for text in texts if isinstance(text, str)]
    numbered += [(index, text) for text in plain for index in range(choices)]
    if reply.request.endpoint == "chat":
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        await reply.event(reply.envelope([role], chunk=True))
    for index, text in numbered:
        await reply.event(reply.piece(text, index))
    for index in sorted({index for index, _ in numbered} or {0}):
        await reply.event(reply.piece(None, index, finish, **last))
    await reply.usage_event(len(numbered))
    await reply.done()
    await reply.end()


async def send_whole(reply: Reply) -> None:
    body = reply.request.body
    texts = []
    for prompt in reply.request.prompts:
        answer = (prompt if body.get("echo") and isinstance(prompt, str) else "") + TEXT
        texts += [answer] * int(body.get("n") or 1)
    whole = reply.whole(texts, usage=reply.usage(len(TOKENS) * len(texts)), system_fingerprint="fp_upstream")
    for choice in whole["choices"]:
        if body.get("logprobs"):
            choice["logprobs"] = _logprobs(reply)
    await reply.json(whole)


def _logprobs(reply: Reply) -> dict[str, object]:
    if reply.request.endpoint == "chat":
        content = [
            {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []} for token in TOKENS
        ]
        return {"content": content, "refusal": None}
    prompt = reply.request.prompts[0]
    echoed = [prompt] if reply.request.body.get("echo") and isinstance(prompt, str) else []
    tokens = [*echoed, *TOKENS]
    offsets = [sum(len(token) for token in tokens[:position]) for position in range(len(tokens))]
    values = [None] * len(echoed) + [-0.5] * len(TOKENS)
    tops = [
        None if value is None else {token: value, "other": -2.0} for token, value in zip(tokens, values, strict=True)
    ]
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


@mode("held")
async def held(reply: Reply) -> None:
    """A correct answer whose tokens from the ``k``-th on (default: all) are sent when the file ``until`` exists."""
    first = TOKENS[: int(reply.request.number("k", 0))]
    if reply.request.stream:
        await reply.stream_head()
        await reply.tokens(first)
    exists = Path(reply.request.options["until"]).exists
    while not exists():  # noqa: ASYNC110 - another thread or process makes the file
        await asyncio.sleep(0.003)
    if reply.request.stream:
        await send_stream(reply, TOKENS[len(first) :])
    else:
        await send_whole(reply)


@mode("text")
async def send_text(reply: Reply) -> None:
    """The option ``text`` in tokens of ``size`` characters; the option ``then`` instead if the prompt holds ``when``.

    ``finish``: the finish reason. Every token has log probabilities if they are requested.
    """
    options, body = reply.request.options, reply.request.body
    text = options["text"]
    if "when" in options and options["when"] in reply.request.prompts[0]:
        text = options["then"]
    size, finish = int(reply.request.number("size", 3)), options.get("finish", "stop")
    tokens = [text[at : at + size] for at in range(0, len(text), size)]
    copies = range(int(body.get("n") or 1))

    def scores(tokens: Sequence[str]) -> dict[str, Any]:
        if not body.get("logprobs"):
            return {}
        return {"logprobs": {"tokens": list(tokens), "token_logprobs": [-0.5] * len(tokens), "top_logprobs": None}}

    if not reply.request.stream:
        answer = reply.whole([text for _ in copies], finish, usage=reply.usage(len(tokens)))
        for choice in answer["choices"]:
            choice.update(scores(tokens))
        await reply.json(answer)
        return
    await reply.stream_head()
    for token in tokens:
        for index in copies:
            await reply.event(reply.piece(token, index, **scores([token])))
    for index in copies:
        await reply.event(reply.piece(None, index, finish))
    await reply.usage_event(len(tokens))
    await reply.done()
    await reply.end()


@mode("text-then-fault")
async def send_text_then_fault(reply: Reply) -> None:
    """The option ``text`` in tokens of three characters, for every choice; then the fault named by ``how``."""
    text = reply.request.options["text"]
    await reply.stream_head()
    for at in range(0, len(text), 3):
        for index in range(int(reply.request.body.get("n") or 1)):
            await reply.event(reply.piece(text[at : at + 3], index))
    match reply.request.options["how"]:
        case "drop":
            await reply.drop()
        case "reset":
            await reply.reset()
        case "error":
            await reply.event({"error": {"message": "out of memory", "type": "server_error", "code": 500}})
            await reply.end()
        case "end":
            await reply.end()
        case "stall":
            await reply.hang()


def script(name: str, texts: Sequence[str | tuple[int, str]], finish: str = "length") -> None:
    """Add a mode that answers with these texts; ``<eob>`` is replaced by the option ``marker``."""

    async def respond(reply: Reply) -> None:
        marker = reply.request.options.get("marker", "<eob>")
        parts: list[str | tuple[int, str]] = []
        for text in texts:
            if isinstance(text, tuple):
                parts.append((text[0], text[1].replace("<eob>", marker)))
            elif text == "<eob>" and name == "split-stop":
                parts.extend(marker)
            else:
                parts.append(text.replace("<eob>", marker))
        if reply.request.stream:
            await reply.stream_head()
            await send_stream(reply, parts, finish)
        else:
            whole: dict[int, str] = {0: ""}
            for text in parts:
                index, part = text if isinstance(text, tuple) else (0, text)
                whole[index] = whole.get(index, "") + part
            await reply.json(reply.whole(list(whole.values()), finish, usage=reply.usage(len(parts))))

    MODES[name] = respond


script("eos", ["The answer", " is 4<eob>LE", "AK"])
script("split-stop", ["The answer is 4", "<eob>", "LEAK"])
script("partial-stop", ["a <eo", "b or <eo"], "stop")
script("stop-lookalike", ["a < b", " <eo b>", " <eob", " >", " <<eo"], "stop")
script("stop-first", ["<eob>", "LEAK"])
script("forged-turn", ["4<eob>\n<HUM", "AN>: and 2+2?<eoh>\n<BOT>: ", "LEAK"])
script("multi-choice", [(0, "a1 "), (1, "b1<e"), (0, "a2 "), (1, "ob>LEAK"), (0, "a3")])


# ---------------------------------------------------------------- ends (C01–C08, B20)


def streaming(name: str) -> Callable[[Mode], Mode]:
    """Add a mode for streams; a request without ``stream`` gets a correct answer."""

    def add(function: Mode) -> Mode:
        async def respond(reply: Reply) -> None:
            if not reply.request.stream:
                await send_whole(reply)
                return
            await reply.stream_head()
            await function(reply)

        MODES[name] = respond
        return function

    return add


def _first(reply: Reply, default: int = 2) -> Sequence[str]:
    """The first ``k`` tokens."""
    return TOKENS[: int(reply.request.number("k", default))]


@streaming("drop-midstream")
async def drop_midstream(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await reply.drop()


@streaming("reset-midstream")
async def reset_midstream(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await reply.reset()


@streaming("flaky-midstream")
async def flaky_midstream(reply: Reply) -> None:
    """The first request's connection drops; a repeated request is answered in full."""
    if reply.request.earlier == 0:
        await drop_midstream(reply)
    else:
        await send_stream(reply, TOKENS)


@streaming("no-done")
async def no_done(reply: Reply) -> None:
    await reply.tokens()
    await reply.event(reply.piece(None, finish="stop"))
    await reply.end()


@streaming("no-finish")
async def no_finish(reply: Reply) -> None:
    await reply.tokens()
    await reply.done()
    await reply.end()


@streaming("eof-no-finish")
async def eof_no_finish(reply: Reply) -> None:
    await reply.tokens()
    await reply.end()


@streaming("done-only")
async def done_only(reply: Reply) -> None:
    await reply.done()
    await reply.end()


@streaming("empty-stream")
async def empty_stream(reply: Reply) -> None:
    await reply.end()


@streaming("blank-flood")
async def blank_flood(reply: Reply) -> None:
    while True:
        await reply.data(b"\n" * 16384)


@streaming("data-after-done")
async def data_after_done(reply: Reply) -> None:
    await reply.tokens()
    await reply.event(reply.piece(None, finish="stop"))
    await reply.done()
    for _ in range(1000):
        await reply.event(reply.piece("LEAK"))
        await asyncio.sleep(0.01)


@streaming("late-close")
async def late_close(reply: Reply) -> None:
    """All events are sent, but the body does not end."""
    await reply.tokens()
    await reply.event(reply.piece(None, finish="stop"))
    await reply.done()
    await reply.hang()


@streaming("error-midstream")
async def error_midstream(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await reply.event({"error": {"message": "CUDA out of memory at 10.11.12.13", "type": "server_error", "code": 500}})
    await reply.done()
    await reply.end()


@streaming("error-event")
async def error_event(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await reply.data(b'event: error\ndata: {"message": "engine died at 10.11.12.13"}\n\n')
    await reply.end()


@streaming("flaky-first-chunk")
async def flaky_first_chunk(reply: Reply) -> None:
    """The first event is an error, ``fail`` times (default: always)."""
    if reply.request.earlier < reply.request.number("fail", 1e9):
        await reply.event(
            {"error": {"message": "engine is overloaded", "type": "overloaded_error", "code": "overloaded"}}
        )
        await reply.end()
    else:
        await send_stream(reply, TOKENS)


@streaming("dup-finish")
async def dup_finish(reply: Reply) -> None:
    await reply.tokens()
    for _ in range(3):
        await reply.event({**reply.piece(None, finish="stop"), "usage": reply.usage()})
    await reply.done()
    await reply.end()


@streaming("usage-cumulative")
async def usage_cumulative(reply: Reply) -> None:
    for count, token in enumerate(TOKENS, 1):
        await reply.event({**reply.piece(token), "usage": reply.usage(count)})
    await reply.event({**reply.piece(None, finish="stop"), "usage": reply.usage()})
    await reply.done()
    await reply.end()


@streaming("usage-bad")
async def usage_bad(reply: Reply) -> None:
    await reply.tokens()
    bad = {"prompt_tokens": -3, "completion_tokens": "many"}
    await reply.event({**reply.piece(None, finish="stop"), "usage": bad})
    await reply.done()
    await reply.end()


# ---------------------------------------------------------------- framing (C09–C14)


@streaming("malformed-sse")
async def malformed_sse(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await reply.data(b'data: {"choices": [{"index": 0, "te\n\n')
    await send_stream(reply, TOKENS)


@streaming("unknown-field")
async def unknown_field(reply: Reply) -> None:
    await reply.data(b"mood: sunny\ngarbage without a colon\n\n")
    await send_stream(reply, TOKENS)


@streaming("not-a-chunk")
async def not_a_chunk(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await reply.data(b"data: 42\n\n")
    await send_stream(reply, TOKENS)


def _ok_bytes(reply: Reply) -> list[bytes]:
    """The events of a correct answer as JSON, without their frames."""
    pieces = [reply.piece(token) for token in TOKENS] + [reply.piece(None, finish="stop")]
    return [json.dumps(piece, ensure_ascii=False).encode() for piece in pieces] + [b"[DONE]"]


def framed(name: str, frame: Callable[[list[bytes]], list[bytes]]) -> None:
    """Add a mode that sends the correct answer in the frames of ``frame``; each item is one write."""

    @streaming(name)
    async def respond(reply: Reply) -> None:
        for write in frame(_ok_bytes(reply)):
            await reply.data(write)
            await asyncio.sleep(0)
        await reply.end()


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
    """Split inside every character of more than one byte."""
    cuts = [at for at, byte in enumerate(event) if byte & 0xC0 == 0x80]
    return [event[start:end] for start, end in zip([0, *cuts], [*cuts, len(event)], strict=True)]


def escaped(name: str, texts: Sequence[bytes]) -> None:
    """Add a mode whose texts are the contents of JSON strings, sent without escaping."""

    async def respond(reply: Reply) -> None:
        if reply.request.stream:
            await reply.stream_head()
            for text in texts:
                event = json.dumps(reply.piece("@@")).encode().replace(b"@@", text)
                await reply.data(b"data: " + event + b"\n\n")
            await reply.event(reply.piece(None, finish="stop"))
            await reply.done()
            await reply.end()
        else:
            await reply.body(json.dumps(reply.whole(["@@"])).encode().replace(b"@@", b"".join(texts)))

    MODES[name] = respond


escaped("split-surrogate", [rb"a\ud83d", rb"\ude00b"])
escaped("lone-surrogate", [rb"a\ud83d", rb"b"])
escaped("nul", [rb"a\u0000", rb"b"])
escaped("invalid-utf8", [b"a", b"\xff\xfe"])


# ---------------------------------------------------------------- time (C19, C22–C25)


@streaming("stop-then-endless")
async def stop_then_endless(reply: Reply) -> None:
    await reply.tokens(["The answer is 4", reply.request.options.get("marker", "<eob>")])
    await _endless(reply)


@streaming("never-ends")
async def never_ends(reply: Reply) -> None:
    await _endless(reply)


async def _endless(reply: Reply) -> None:
    for token in cycle(["on ", "and "]):
        await reply.event(reply.piece(token))
        await asyncio.sleep(reply.request.number("ms", 5) / 1000)


@mode("slow-ttfb")
async def slow_ttfb(reply: Reply) -> None:
    await asyncio.sleep(reply.request.number("ms", 300) / 1000)
    await send_ok(reply)


@streaming("stall-midstream")
async def stall_midstream(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await reply.hang()


@streaming("pause-resume")
async def pause_resume(reply: Reply) -> None:
    await reply.tokens(_first(reply))
    await asyncio.sleep(reply.request.number("ms", 200) / 1000)
    await reply.tokens(TOKENS[len(_first(reply)) :])
    await reply.event(reply.piece(None, finish="stop"))
    await reply.done()
    await reply.end()


@streaming("keepalive-only")
async def keepalive_only(reply: Reply) -> None:
    while True:
        await reply.data(b": ping\n\n")
        await asyncio.sleep(0.02)


@streaming("empty-deltas")
async def empty_deltas(reply: Reply) -> None:
    while True:
        await reply.event(reply.piece(""))
        await asyncio.sleep(0.02)


@streaming("huge-line")
async def huge_line(reply: Reply) -> None:
    for _ in range(80):
        await reply.data(b"data: " + b"x" * 64 * 1024)


# ---------------------------------------------------------------- shapes (C31)


@streaming("reasoning")
async def reasoning(reply: Reply) -> None:
    await reply.event(
        reply.envelope([{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}], chunk=True)
    )
    await send_stream(reply, TOKENS)


@mode("tool-calls")
async def tool_calls(reply: Reply) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    if not reply.request.stream:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        await reply.json(reply.envelope([{"index": 0, "message": message, "finish_reason": "tool_calls"}]))
        return
    await reply.stream_head()
    first = {**call, "index": 0, "function": {"name": "add", "arguments": ""}}
    for fragment in (
        first,
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": " 1}"}},
    ):
        await reply.event(
            reply.envelope([{"index": 0, "delta": {"tool_calls": [fragment]}, "finish_reason": None}], chunk=True)
        )
    await reply.event(reply.piece(None, finish="tool_calls"))
    await reply.done()
    await reply.end()


@mode("odd-index")
async def odd_index(reply: Reply) -> None:
    """A choice that was not requested."""
    if not reply.request.stream:
        await reply.json(reply.whole([TEXT, "LEAK"]))
        return
    await reply.stream_head()
    await reply.event(reply.piece("a", 0))
    await reply.event(reply.piece("LEAK", 5))
    await send_stream(reply, TOKENS)


@mode("flood")
async def flood(reply: Reply) -> None:
    """``pieces`` events of 60 kB (default: without end), also for a request without ``stream``, as fast as possible."""
    await reply.stream_head()
    piece = "a" * 60_000
    for _ in range(int(reply.request.number("pieces", 1e18))):
        await reply.event(reply.piece(piece))
    await send_stream(reply, ())


@mode("huge-usage")
async def huge_usage(reply: Reply) -> None:
    """A token count that does not fit into 63 bits."""
    usage = {**reply.usage(), reply.request.options["name"]: 2**63}
    if not reply.request.stream:
        await reply.json(reply.whole([TEXT], usage=usage))
        return
    await reply.stream_head()
    await reply.tokens()
    await reply.event(reply.piece(None, finish="stop"))
    await reply.event(reply.envelope([], chunk=True, usage=usage))
    await reply.done()
    await reply.end()


@streaming("null-choices")
async def null_choices(reply: Reply) -> None:
    await reply.event({**reply.envelope([], chunk=True), "choices": None})
    await reply.tokens()
    await reply.event({**reply.envelope([], chunk=True), "choices": None})
    await reply.event(reply.piece(None, finish="stop"))
    await reply.done()
    await reply.end()


@mode("deep")
async def deep(reply: Reply) -> None:
    """Deeply nested JSON, in each place of an answer that the gateway reads or forwards."""
    where, depth = reply.request.options["where"], int(reply.request.number("depth", 100))
    nested = '{"a":' * depth + "1" + "}" * depth
    choice = '"index": 0, "finish_reason": null'
    content = '"content": "a"'
    lone = "\\ud83d" if where == "lone surrogate" else ""
    places = {
        "choices": f'{{"choices": {nested}}}',
        "logprobs": f'{{"choices": [{{{choice}, "delta": {{{content}}}, "logprobs": {nested}}}]}}',
        "delta": f'{{"choices": [{{{choice}, "delta": {{{content}, "x": {nested}}}}}]}}',
        "usage": f'{{"choices": [], "usage": {{"prompt_tokens": 1, "x": {nested}}}}}',
        "error": f'{{"error": {nested}}}',
        "error event": f'{{"error": {nested}}}',
        "extra": f'{{"choices": [{{{choice}, "delta": {{{content}}}, "x": {nested}}}]}}',
        "lone surrogate": f'{{"choices": [{{{choice}, "delta": {{{content}}}, "x": {nested}, "y": "{lone}"}}]}}',
    }
    body = places[where].encode()
    if not reply.request.stream:
        await reply.body(body.replace(b'"delta"', b'"message"'))
        return
    await reply.stream_head()
    event = b"event: error\n" if where == "error event" else b""
    await reply.data(event + b"data: " + body + b"\n\n")
    await reply.done()
    await reply.end()
