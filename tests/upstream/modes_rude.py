"""Modes that copy the habits of real engines (``docs/spec/engines.md`` 2.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.upstream.modes_stream import play, say_ok, say_whole
from tests.upstream.talk import TEXT, TOKENS, Talk

Mode = Callable[[Talk], Awaitable[None]]

MODES: dict[str, Mode] = {}


def mode(name: str) -> Callable[[Mode], Mode]:
    def add(function: Mode) -> Mode:
        MODES[name] = function
        return function

    return add


@mode("rude-no-done")
async def rude_no_done(talk: Talk) -> None:
    """Finish and usage in the last content chunk, keys absent before, no ``[DONE]``."""
    if not talk.heard.stream:
        await say_whole(talk)
        return
    await talk.stream_head()
    for token in TOKENS[:-1]:
        piece = talk.piece(token)
        del piece["choices"][0]["finish_reason"]
        await talk.event(piece)
    await talk.event({**talk.piece(TOKENS[-1], finish="stop"), "usage": talk.usage()})
    await talk.end()


@mode("rude-stop-left-in")
async def rude_stop_left_in(talk: Talk) -> None:
    marker = talk.heard.options.get("marker", "<eob>")
    if talk.heard.stream:
        await talk.stream_head()
        await play(talk, ["7", marker])
    else:
        await talk.json(talk.whole(["7" + marker], usage=talk.usage(2)))


@mode("rude-no-usage")
async def rude_no_usage(talk: Talk) -> None:
    """Asking for usage in streams is ignored; whole answers have none either."""
    if not talk.heard.stream:
        await talk.json(talk.whole([TEXT]))
        return
    await talk.stream_head()
    await talk.tokens()
    await talk.event(talk.piece(None, finish="stop"))
    await talk.done()
    await talk.end()


@mode("rude-numeric-code")
async def rude_numeric_code(talk: Talk) -> None:
    await talk.error("400 Bad Request", "max_tokens must be at least 1, got 0.", type="BadRequestError", code=400)


@mode("rude-unknown-model")
async def rude_unknown_model(talk: Talk) -> None:
    await talk.error("404 Not Found", "The model `x` does not exist.", type="NotFoundError", param="model", code=404)


@mode("rude-detail")
async def rude_detail(talk: Talk) -> None:
    await talk.json({"detail": "prompt must be a string."}, "400 Bad Request")


@mode("rude-detail-list")
async def rude_detail_list(talk: Talk) -> None:
    """Validation errors in the shape of a web framework."""
    detail = [{"type": "missing", "loc": ["body", "prompt"], "msg": "Field required"}]
    await talk.json({"detail": detail}, "422 Unprocessable Entity")


@mode("rude-list-500")
async def rude_list_500(talk: Talk) -> None:
    if isinstance(talk.heard.body.get("prompt"), list):
        await talk.error("500 Internal Server Error", "")
    else:
        await say_ok(talk)


@mode("rude-n-ignored")
async def rude_n_ignored(talk: Talk) -> None:
    if talk.heard.stream:
        await talk.stream_head()
        await play(talk, [(0, token) for token in TOKENS])
    else:
        await talk.json(talk.whole([TEXT], usage=talk.usage()))


@mode("rude-pinned")
async def rude_pinned(talk: Talk) -> None:
    """transformers serve, asked for another model than the one it was started with."""
    detail = "Server is pinned to '/srv/models/demo'; requested 'm'."
    await talk.json({"detail": detail}, "400 Bad Request")


@mode("rude-usage-behind-the-stop")
async def rude_usage_behind_the_stop(talk: Talk) -> None:
    """transformers serve: the stop string is a chunk, then come finish and usage in one, and no ``[DONE]``."""
    if not talk.heard.stream:
        await talk.json(talk.whole(["42<eob>"], usage=talk.usage(3)))
        return
    await talk.stream_head()
    await talk.tokens(["4", "2", "<eob>"])
    await talk.event({**talk.piece("", finish="stop"), "usage": talk.usage(3)})
    await talk.end()


@mode("rude-stop-token-scored")
async def rude_stop_token_scored(talk: Talk) -> None:
    """llama-cpp-python: the stop string is cut from the text and stays in the log-probabilities."""
    tokens = ["4", "2", "<eob>"]
    scores = {"tokens": tokens, "token_logprobs": [-0.1, -0.2, -0.3], "top_logprobs": None, "text_offset": [0, 1, 2]}
    answer = talk.whole(["42"], usage=talk.usage(3))
    answer["choices"][0]["logprobs"] = scores
    await talk.json(answer)


@mode("rude-bos-echo")
async def rude_bos_echo(talk: Talk) -> None:
    """The engine's BOS shows as token 0 of an echoed prompt, unless it is switched off."""
    body = talk.heard.body
    first = ["<s>"] if body.get("add_special_tokens", True) else []
    tokens = [*first, *([str(body.get("prompt"))] if body.get("echo") else []), *TOKENS]
    if not body.get("echo"):
        tokens = list(TOKENS)
    known = [None, *[-0.5] * (len(tokens) - 1)]
    logprobs = {"tokens": tokens, "token_logprobs": known, "top_logprobs": None, "text_offset": [0] * len(tokens)}
    answer = talk.whole(["".join(tokens)], usage=talk.usage())
    answer["choices"][0]["logprobs"] = logprobs
    await talk.json(answer)


@mode("rude-traceback")
async def rude_traceback(talk: Talk) -> None:
    trace = 'Traceback (most recent call last):\n  File "/opt/engine/app.py", line 1, in run\nValueError: bad prompt'
    await talk.error("500 Internal Server Error", trace)


@mode("rude-traceback-400")
async def rude_traceback_400(talk: Talk) -> None:
    trace = 'Traceback (most recent call last):\n  File "/opt/engine/app.py", line 1, in run\nValueError: bad prompt'
    await talk.error("400 Bad Request", trace)


@mode("rude-plain-500")
async def rude_plain_500(talk: Talk) -> None:
    await talk.body(b"Internal Server Error", "500 Internal Server Error", "text/plain")


@mode("rude-cut-stream")
async def rude_cut_stream(talk: Talk) -> None:
    """Another request cut this one: no finish, ``[DONE]`` all the same, and the body breaks off."""
    if not talk.heard.stream:
        await say_whole(talk)
        return
    await talk.stream_head()
    await talk.tokens(TOKENS[:2])
    await talk.done()
    await talk.drop()


@mode("rude-stop-reason")
async def rude_stop_reason(talk: Talk) -> None:
    """vLLM's extra keys: which stop matched, and token ids on request."""
    if talk.heard.stream:
        await talk.stream_head()
        await play(talk, TOKENS, stop_reason="<eob>")
    else:
        answer = talk.whole([TEXT], usage=talk.usage())
        answer["choices"][0] |= {"stop_reason": "<eob>", "prompt_logprobs": [None, {"5": {"logprob": -1.0}}]}
        await talk.json(answer)
