"""Modes with the deviations of real engines (``docs/spec/engines.md`` 2.1)."""

from __future__ import annotations

from tests.support.upstream.modes import mode
from tests.support.upstream.modes_stream import send_ok, send_stream, send_whole
from tests.support.upstream.reply import TEXT, TOKENS, Reply


@mode("quirk-no-done")
async def quirk_no_done(reply: Reply) -> None:
    """Finish and usage in the last content chunk, keys absent before, no ``[DONE]``."""
    if not reply.request.stream:
        await send_whole(reply)
        return
    await reply.stream_head()
    for token in TOKENS[:-1]:
        piece = reply.piece(token)
        del piece["choices"][0]["finish_reason"]
        await reply.event(piece)
    await reply.event({**reply.piece(TOKENS[-1], finish="stop"), "usage": reply.usage()})
    await reply.end()


@mode("quirk-stop-left-in")
async def quirk_stop_left_in(reply: Reply) -> None:
    marker = reply.request.options.get("marker", "<eob>")
    if reply.request.stream:
        await reply.stream_head()
        await send_stream(reply, ["7", marker])
    else:
        await reply.json(reply.whole(["7" + marker], usage=reply.usage(2)))


@mode("quirk-no-usage")
async def quirk_no_usage(reply: Reply) -> None:
    """``stream_options.include_usage`` is ignored; whole answers have no usage either."""
    if not reply.request.stream:
        await reply.json(reply.whole([TEXT]))
        return
    await reply.stream_head()
    await reply.tokens()
    await reply.event(reply.piece(None, finish="stop"))
    await reply.done()
    await reply.end()


@mode("quirk-numeric-code")
async def quirk_numeric_code(reply: Reply) -> None:
    await reply.error("400 Bad Request", "max_tokens must be at least 1, got 0.", type="BadRequestError", code=400)


@mode("quirk-unknown-model")
async def quirk_unknown_model(reply: Reply) -> None:
    await reply.error("404 Not Found", "The model `x` does not exist.", type="NotFoundError", param="model", code=404)


@mode("quirk-detail")
async def quirk_detail(reply: Reply) -> None:
    await reply.json({"detail": "prompt must be a string."}, "400 Bad Request")


@mode("quirk-detail-list")
async def quirk_detail_list(reply: Reply) -> None:
    """Validation errors in the shape of a web framework."""
    detail = [{"type": "missing", "loc": ["body", "prompt"], "msg": "Field required"}]
    await reply.json({"detail": detail}, "422 Unprocessable Entity")


@mode("quirk-list-500")
async def quirk_list_500(reply: Reply) -> None:
    if isinstance(reply.request.body.get("prompt"), list):
        await reply.error("500 Internal Server Error", "")
    else:
        await send_ok(reply)


@mode("quirk-n-ignored")
async def quirk_n_ignored(reply: Reply) -> None:
    if reply.request.stream:
        await reply.stream_head()
        await send_stream(reply, [(0, token) for token in TOKENS])
    else:
        await reply.json(reply.whole([TEXT], usage=reply.usage()))


@mode("quirk-pinned")
async def quirk_pinned(reply: Reply) -> None:
    """transformers serve, when a request names another model than the one it was started with."""
    detail = "Server is pinned to '/srv/models/demo'; requested 'm'."
    await reply.json({"detail": detail}, "400 Bad Request")


@mode("quirk-usage-behind-the-stop")
async def quirk_usage_behind_the_stop(reply: Reply) -> None:
    """transformers serve: the stop string is a chunk, then come finish and usage in one, and no ``[DONE]``."""
    if not reply.request.stream:
        await reply.json(reply.whole(["42<eob>"], usage=reply.usage(3)))
        return
    await reply.stream_head()
    await reply.tokens(["4", "2", "<eob>"])
    await reply.event({**reply.piece("", finish="stop"), "usage": reply.usage(3)})
    await reply.end()


@mode("quirk-stop-token-scored")
async def quirk_stop_token_scored(reply: Reply) -> None:
    """llama-cpp-python: the stop string is removed from the text but not from the log-probabilities."""
    tokens = ["4", "2", "<eob>"]
    scores = {"tokens": tokens, "token_logprobs": [-0.1, -0.2, -0.3], "top_logprobs": None, "text_offset": [0, 1, 2]}
    answer = reply.whole(["42"], usage=reply.usage(3))
    answer["choices"][0]["logprobs"] = scores
    await reply.json(answer)


@mode("quirk-bos-echo")
async def quirk_bos_echo(reply: Reply) -> None:
    """The engine's BOS is token 0 of an echoed prompt, unless the request switches it off."""
    body = reply.request.body
    first = ["<s>"] if body.get("add_special_tokens", True) else []
    tokens = [*first, *([str(body.get("prompt"))] if body.get("echo") else []), *TOKENS]
    if not body.get("echo"):
        tokens = list(TOKENS)
    known = [None, *[-0.5] * (len(tokens) - 1)]
    logprobs = {"tokens": tokens, "token_logprobs": known, "top_logprobs": None, "text_offset": [0] * len(tokens)}
    answer = reply.whole(["".join(tokens)], usage=reply.usage())
    answer["choices"][0]["logprobs"] = logprobs
    await reply.json(answer)


@mode("quirk-traceback")
async def quirk_traceback(reply: Reply) -> None:
    trace = 'Traceback (most recent call last):\n  File "/opt/engine/app.py", line 1, in run\nValueError: bad prompt'
    await reply.error("500 Internal Server Error", trace)


@mode("quirk-traceback-400")
async def quirk_traceback_400(reply: Reply) -> None:
    trace = 'Traceback (most recent call last):\n  File "/opt/engine/app.py", line 1, in run\nValueError: bad prompt'
    await reply.error("400 Bad Request", trace)


@mode("quirk-plain-500")
async def quirk_plain_500(reply: Reply) -> None:
    await reply.body(b"Internal Server Error", "500 Internal Server Error", "text/plain")


@mode("quirk-cut-stream")
async def quirk_cut_stream(reply: Reply) -> None:
    """Another request cancelled this one: no finish, then ``[DONE]``, and the body is incomplete."""
    if not reply.request.stream:
        await send_whole(reply)
        return
    await reply.stream_head()
    await reply.tokens(TOKENS[:2])
    await reply.done()
    await reply.drop()


@mode("quirk-stop-reason")
async def quirk_stop_reason(reply: Reply) -> None:
    """vLLM's extra keys: the stop that matched, and log-probabilities of the prompt."""
    if reply.request.stream:
        await reply.stream_head()
        await send_stream(reply, TOKENS, stop_reason="<eob>")
    else:
        answer = reply.whole([TEXT], usage=reply.usage())
        answer["choices"][0] |= {"stop_reason": "<eob>", "prompt_logprobs": [None, {"5": {"logprob": -1.0}}]}
        await reply.json(answer)


@mode("quirk-provider")
async def quirk_provider(reply: Reply) -> None:
    """An aggregator's answer: every chunk names the provider that answers."""
    if not reply.request.stream:
        await reply.json({**reply.whole([TEXT], usage=reply.usage()), "provider": "Deep; Infra"})
        return
    await reply.stream_head()
    for piece in (*[reply.piece(token) for token in TOKENS], reply.piece(None, finish="stop")):
        await reply.event({**piece, "provider": "Deep; Infra"})
    await reply.usage_event()
    await reply.done()
    await reply.end()


@mode("names-customer")
async def names_customer(reply: Reply) -> None:
    """An error whose message names a customer that the request does not name."""
    await reply.error("404 Not Found", "the model is not known to carol@example.com")
