"""The log probabilities of a prompt, as three kinds of servers send them. Each character is one token.

Options: ``size`` is the number of characters of a token (1); ``bos`` is ``shown`` (a token of the answer), ``hidden``
(only counted) or absent; ``end`` is ``text`` (one more token with text), ``token`` (an end token without text) or
``none`` (an end token that is not listed); ``fault`` is one of ``FAULTS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.upstream.modes import mode
from tests.support.upstream.reply import Reply

FAULTS = (
    "no-echo",
    "no-logprobs",
    "null-inside",
    "one-short",
    "no-usage",
    "no-list",
    "two-entries",
    "not-numbers",
    "two-choices",
)


def logprob(token: str) -> float:
    """The log probability of a token, the same everywhere; a number that adds up without rounding."""
    return -sum([ord(character) % 8 + 1 for character in token]) / 8


def rendered(body: Mapping[str, Any]) -> str:
    """The text that the server makes of a chat request."""
    turns = [f"[{message['role']}]{message['content']};" for message in body["messages"]]
    if body.get("continue_final_message"):
        turns[-1] = turns[-1].removesuffix(";")
    return "".join(turns) + ("[assistant]" if body.get("add_generation_prompt", True) else "")


@mode("scores")
async def scores(reply: Reply) -> None:
    request = reply.request
    fault, bos, end = (request.options.get(name, "") for name in ("fault", "bos", "end"))
    body = request.body
    prompt = rendered(body) if request.endpoint == "chat" else str(body["prompt"])
    if body.get("add_special_tokens") is False:
        bos = ""
    size = int(request.number("size", 1))
    parts = [prompt[at : at + size] for at in range(0, len(prompt), size)]
    tokens = [*(["<s>"] if bos == "shown" else []), *parts]
    known: list[float | None] = [None, *map(logprob, tokens[1:])]
    if fault == "null-inside":
        known[2] = None
    if fault == "one-short":
        tokens, known = tokens[:-1], known[:-1]
    generated = {"text": ["!"], "token": ["</s>"], "none": []}[end or "text"]
    written = "!" if end in ("", "text") else ""
    counts = {"prompt_tokens": len(parts) + (bos in ("shown", "hidden")), "completion_tokens": len(generated)}
    answer = reply.whole([written] * (2 if fault == "two-choices" else 1), "length")
    if fault != "no-usage":
        answer["usage"] = {**counts, "total_tokens": sum(counts.values())}
    choice = answer["choices"][0]
    if body.get("echo") and fault != "no-echo":
        choice["text"] = prompt + written
        tokens, known = [*tokens, *generated], [*known, *[-0.5] * len(generated)]
    elif "logprobs" in body:
        tokens, known = generated, [-0.5] * len(generated)
    if "logprobs" in body and fault != "no-logprobs":
        choice["logprobs"] = {"tokens": tokens, "token_logprobs": known, "top_logprobs": None}
    if "prompt_logprobs" in body and fault != "no-list":
        rows: Any = [None if value is None else entry(token, value) for token, value in zip(tokens, known, strict=True)]
        if fault == "two-entries":
            rows[1] |= {"7": {"logprob": -0.1}}
        if fault == "not-numbers":
            rows = dict(enumerate(rows))
        (answer if request.endpoint == "chat" else choice)["prompt_logprobs"] = rows
    await reply.json(answer)


def entry(token: str, value: float) -> dict[str, Any]:
    """One token in vLLM's ``prompt_logprobs``."""
    return {str(sum(map(ord, token))): {"logprob": value, "rank": 1, "decoded_token": token}}
