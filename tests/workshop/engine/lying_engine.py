"""An engine on loopback that does what a request tells it, or lies in one way that a test chooses.

The logits are random numbers of the last tokens, so answers are cheap, long and repeatable. The tokenizer is the
demo's, and the chat template is that of ``sft-demo``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from metatemplate.tokenizer import Tokenizer
from tests.support.engines.numpy_server import MARKS
from tests.support.serving import ROOT, run_uvicorn

TOKENIZER = Tokenizer(ROOT / "demo" / "model")
LETTERS = [
    one for one in range(20, 386) if TOKENIZER.detokenize([one]).isascii() and TOKENIZER.detokenize([one]).strip()
]
"""The tokens of which answers are made: each has a text of its own."""
DIGITS = [TOKENIZER.tokenize(digit, False)[0] for digit in "79"]
"""Two tokens whose logits are the same everywhere, so that a bias for both makes one token repeat."""
OWNERS = {"vllm": "vllm", "llamacpp": "llamacpp", "openai": "local"}

Body = Mapping[str, Any]


@dataclass
class LyingEngine:
    """One engine. ``kind`` decides what it tells about prompts: ``vllm`` and ``llamacpp`` ids, ``openai`` counts."""

    kind: str = "vllm"
    lie: str = ""
    key: str = ""
    weights: int = 7
    usage: bool = True
    """Whether answers have usage."""
    refused: int = 0
    """The number of conversations after the first that ``/tokenize`` refuses."""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    """The path and the body of each request so far."""
    drift: float = 0.0
    """The difference of all log probabilities from those of an engine without drift."""

    # ---------------------------------------------------------------- the model

    def logits(self, ids: list[int]) -> np.ndarray[Any, Any]:
        drawn = np.random.default_rng([self.weights, len(ids), *ids[-2:]]).normal(0, 1.5, 386)
        found = np.full(386, -np.inf)
        found[LETTERS] = drawn[LETTERS]
        found[DIGITS] = (-1.0, 0.0)
        return found

    def pick(self, ids: list[int], made: list[int], body: Body, rng: np.random.Generator) -> int:
        """The next token, by the fields of the request that the engine does not ignore."""

        def given(name: str, default: Any) -> Any:
            return default if name == self.lie else body.get(name) or default

        row = self.logits(ids + made)
        for name, bias in given("logit_bias", {}).items():
            row[int(name)] = np.nan_to_num(row[int(name)], neginf=0.0) + bias
        for one in set(made):
            row[one] -= given("frequency_penalty", 0.0) * made.count(one)
            row[one] /= given("repetition_penalty", given("repeat_penalty", 1.0))
        temperature = body.get("temperature", 1.0)
        if self.lie == "temperature" or (not temperature and self.lie != "noise"):
            return int(row.argmax())
        row = row / (temperature or 1.0)
        chances = np.exp(row - row.max())
        chances /= chances.sum()
        order = np.argsort(-chances)
        kept = (np.cumsum(chances[order]) - chances[order] < given("top_p", 1.0)) & (
            chances[order] >= given("min_p", 0.0) * chances.max()
        )
        kept[max(given("top_k", 386), 1) if given("top_k", 386) > 0 else 386 :] = False
        left = order[kept]
        return int(rng.choice(left, p=chances[left] / chances[left].sum()))

    def answer(self, ids: list[int], body: Body, choice: int, *, streamed: bool) -> tuple[list[int], str, str]:
        """The tokens, the text and the finish reason of one choice."""
        seed = {"seed": None, "one seed": 1}.get(self.lie, body.get("seed"))
        rng = np.random.default_rng(None if seed is None or self.lie == "noise" else [seed, choice])
        made, text = list[int](), ""
        limit = body.get("max_tokens", 16) + (self.lie == "max_tokens") + 6 * (self.lie == "six more")
        constraint = body.get("structured_outputs") or body.get("json_schema")
        if "response_format" in body:
            constraint = body["response_format"]["json_schema"]["schema"]
        if constraint and self.lie != "schema":
            (word,) = constraint.get("json", constraint)["enum"]
            return TOKENIZER.tokenize(json.dumps(word), False)[:limit], json.dumps(word), "stop"
        stops = body.get("stop") or [] if self.lie != "stop" else []
        while len(made) < limit:
            made.append(self.pick(ids, made, body, rng))
            text = TOKENIZER.detokenize(made)
            if made[-1] in (body.get("stop_token_ids") or []) and self.lie != "stop_token_ids":
                return made, TOKENIZER.detokenize(made[:-1]), "stop"
            found = [(text.find(stop), stop) for stop in stops if stop in text]
            if found:
                at, stop = min(found)
                late = len(stop) if self.lie == "stop kept" else int(self.lie == "late stop" and streamed)
                return made, text[: at + late], "length" if self.lie == "stop reason" else "stop"
        if self.lie == "stream text" and streamed:
            text = text[:-1] + "?"
        return made, text, "length"

    # ---------------------------------------------------------------- prompts

    def prompt(self, body: Body, *, chat: bool) -> list[int]:
        """The ids that the engine makes of a request."""
        if chat:
            mark = "<HUMAN>:" if self.lie == "template" else MARKS["user"][0]
            parts = [
                (mark if one["role"] == "user" else MARKS[one["role"]][0]) + one["content"] + MARKS[one["role"]][1]
                for one in body["messages"]
            ]
            text = "".join(parts) + MARKS["assistant"][0]
            return [1] * (self.lie == "chat bos") + TOKENIZER.tokenize(text, True)
        prompt = body["prompt"]
        if isinstance(prompt, list):
            return [1] * (self.lie == "ids bos") + prompt
        return [1] * (self.lie == "string bos") + TOKENIZER.tokenize(prompt, body.get("add_special_tokens", True))

    def scores(self, ids: list[int]) -> list[float]:
        """The log probability of each id but the first, by a model whose vocabulary is everywhere possible."""
        rows = [np.random.default_rng([self.weights, at, ids[at - 1]]).normal(0, 2, 386) for at in range(1, len(ids))]
        return [
            float(row[one] - np.log(np.exp(row).sum())) - self.drift for row, one in zip(rows, ids[1:], strict=True)
        ]

    # ---------------------------------------------------------------- HTTP

    async def complete(self, request: Request) -> Response:
        body, chat = await request.json(), "chat" in request.url.path
        if self.lie == "strings only" and isinstance(body.get("prompt"), list):
            return JSONResponse({"error": {"message": "prompt must be a string"}}, 400)
        ids = self.prompt(body, chat=chat)
        stream = bool(body.get("stream"))
        number = 1 if self.lie == "n" else body.get("n", 1)
        choices, made_tokens = list[dict[str, Any]](), 0
        for index in range(number):
            made, text, reason = self.answer(ids, body, index, streamed=stream)
            made_tokens += len(made)
            choice: dict[str, Any] = {"index": index, "finish_reason": reason, "text": text, "made": made}
            if body.get("return_token_ids") and self.kind == "vllm":
                choice |= {"token_ids": made, "prompt_token_ids": ids}
            if body.get("prompt_logprobs") is not None and self.kind == "vllm":
                rows = [{str(one): {"logprob": score}} for one, score in zip(ids[1:], self.scores(ids), strict=True)]
                choice["prompt_logprobs"] = [None, *rows]
            if body.get("echo") and self.kind == "openai" and isinstance(body["prompt"], str):
                choice |= {"text": body["prompt"] + text, "logprobs": self.echoed(ids, made)}
            choices.append(choice)
        made_tokens += self.lie == "usage" or (self.lie == "stream usage" and stream)
        usage = {"prompt_tokens": len(ids), "completion_tokens": made_tokens, "total_tokens": len(ids) + made_tokens}
        if stream:
            return StreamingResponse(self.events(choices[0], usage, chat=chat), media_type="text/event-stream")
        shown = [self.shown(choice, choice.pop("text"), chat=chat, key="message") for choice in choices]
        return JSONResponse({"object": "x", "choices": shown, **({"usage": usage} if self.usage else {})})

    def echoed(self, ids: list[int], made: list[int]) -> dict[str, Any]:
        texts = [TOKENIZER.detokenize([one]) for one in ids[1:] + made]
        values = [None, *self.scores(ids[1:]), *[-1.0 for _ in made]]
        return {"tokens": texts, "token_logprobs": values, "top_logprobs": None, "text_offset": None}

    def shown(self, choice: dict[str, Any], text: str, *, chat: bool, key: str) -> dict[str, Any]:
        rest = {name: value for name, value in choice.items() if name not in ("made", "text")}
        return {**rest, **({key: {"role": "assistant", "content": text}} if chat else {"text": text})}

    async def events(self, choice: dict[str, Any], usage: dict[str, int], *, chat: bool) -> AsyncIterator[str]:
        """One event for each token, as far as its text is in the answer."""
        text, sent = choice["text"], 0
        for number in range(1, len(choice["made"]) + 1):
            end = min(len(TOKENIZER.detokenize(choice["made"][:number])), len(text))
            end = len(text) if number == len(choice["made"]) else end
            piece, sent = text[sent:end], end
            last = number == len(choice["made"])
            row = self.shown(
                {"index": 0, "finish_reason": choice["finish_reason"] if last else None}, piece, chat=chat, key="delta"
            )
            yield f"data: {json.dumps({'object': 'x', 'choices': [row]})}\n\n"
        if self.usage:
            yield f"data: {json.dumps({'object': 'x', 'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        asked = [path for path, sent in self.requests if path == "/tokenize" and "messages" in sent]
        if 1 < len(asked) <= 1 + self.refused:
            return JSONResponse({"error": {"message": "roles must alternate"}}, 400)
        if self.kind == "llamacpp":
            return JSONResponse({"tokens": self.prompt({"prompt": body["content"]}, chat=False)})
        return JSONResponse({"tokens": self.prompt(body, chat="messages" in body)})

    async def template(self, request: Request) -> Response:
        text = TOKENIZER.detokenize(self.prompt(await request.json(), chat=True)[1:])
        return JSONResponse({"prompt": text})

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": [{"id": "tiny", "object": "model", "owned_by": OWNERS[self.kind]}]})

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": "1.2", "build_info": "b12"})

    def app(self) -> Starlette:
        post = {"/v1/completions": self.complete, "/v1/chat/completions": self.complete}
        if self.kind != "openai":
            post["/tokenize"] = self.tokenize
        if self.kind == "llamacpp":
            post["/apply-template"] = self.template
        if self.lie == "no completions":
            del post["/v1/completions"]
        get = {"/v1/models": self.models, "/version" if self.kind == "vllm" else "/props": self.version}
        rows = [
            *[(path, way, "POST") for path, way in post.items()],
            *[(path, way, "GET") for path, way in get.items()],
        ]
        routes = [Route(path, self.recorded(way), methods=[method]) for path, way, method in rows]
        missing = Route("/{path:path}", self.recorded(self.missing), methods=["GET", "POST"])
        return Starlette(routes=[*routes, missing])

    async def missing(self, request: Request) -> Response:
        return JSONResponse({"error": {"message": "no such path"}}, 404)

    def recorded(self, way: Any) -> Any:
        async def respond(request: Request) -> Response:
            body = await request.json() if request.method == "POST" else None
            self.requests.append((request.url.path, body))
            if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
                return JSONResponse({"error": {"message": "a key is needed"}}, 401)
            if self.lie in ("hangs", "hangs later") and (self.lie == "hangs" or len(self.requests) > 5):
                while (await request.receive())["type"] != "http.disconnect":
                    pass
            if self.lie == "html":
                return HTMLResponse("<html>a proxy</html>")
            if self.lie.isdigit():
                return JSONResponse({"error": {"message": "no"}}, int(self.lie))
            response: Response = await way(request)
            return response

        return respond


@contextmanager
def served(engine: LyingEngine) -> Iterator[str]:
    """Serve an engine on loopback; yields its address up to ``/v1``."""
    with run_uvicorn(engine.app()) as port:
        yield f"http://127.0.0.1:{port}/v1"
