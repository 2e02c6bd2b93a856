"""An OpenAI-compatible server for the demo model: a forward pass in numpy, and nothing of the gateway's code.

It stands for a well-behaved engine: ``/v1/completions`` with strings, lists and token ids, ``n``, ``stop``, ``echo``,
``logprobs`` and usage in streams; ``/v1/chat/completions`` in the format that the model was trained on.

    python -m tests.support.engines.numpy_server --model demo/model --port 9201 [--delay SECONDS_PER_TOKEN]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

Array = np.ndarray[Any, np.dtype[np.float32]]
MARKS = {"system": ("<SYSTEM>: ", "<eosys>\n"), "user": ("<HUMAN>: ", "<eoh>\n"), "assistant": ("<BOT>: ", "<eob>\n")}
"""The text around a message, by role: the format of the demo model's training data."""


class Refused(Exception):
    """A request that is answered with an error: message, status, code and param as OpenAI has them."""

    def __init__(self, message: str, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), dtype=np.float32)


def read_safetensors(path: Path) -> dict[str, Array]:
    """The f16 tensors of a file, as f32."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    head.pop("__metadata__", None)
    return {
        name: np.frombuffer(data, np.float16, int(np.prod(row["shape"])), 8 + size + row["data_offsets"][0])
        .reshape(row["shape"])
        .astype(np.float32)
        for name, row in head.items()
    }


class Llama:
    """The demo model: a Llama with as many key heads as query heads and tied embeddings."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.weights = read_safetensors(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.layers, self.heads, self.head = (
            config[key] for key in ("num_hidden_layers", "num_attention_heads", "head_dim")
        )
        self.epsilon, self.context, self.end = (
            config[key] for key in ("rms_norm_eps", "max_position_embeddings", "eos_token_id")
        )
        theta = config["rope_parameters"]["rope_theta"]
        angles = np.outer(np.arange(self.context), theta ** (-np.arange(0, self.head, 2) / self.head))
        self.cosines = np.tile(np.cos(angles), 2).astype(np.float32)
        self.sines = np.tile(np.sin(angles), 2).astype(np.float32)

    def forward(self, ids: list[int], cache: list[tuple[Array, Array]]) -> Array:
        """Log-probabilities of the next token behind each of ``ids``; ``cache`` holds keys and values per layer."""
        weights, new, half = self.weights, len(ids), self.head // 2
        old = cache[0][0].shape[1] if cache else 0
        cosines, sines = self.cosines[old : old + new], self.sines[old : old + new]
        mask = np.triu(np.full((new, old + new), -np.inf, np.float32), old + 1)

        def rotated(x: Array) -> Array:
            turned: Array = np.concatenate([-x[..., half:], x[..., :half]], -1)
            return x * cosines + turned * sines

        def normed(x: Array, name: str) -> Array:
            return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * weights[name])

        x = weights["model.embed_tokens.weight"][ids]
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            h = normed(x, at + "input_layernorm.weight")
            query, key, value = (
                (h @ weights[f"{at}self_attn.{name}_proj.weight"].T)
                .reshape(new, self.heads, self.head)
                .transpose(1, 0, 2)
                for name in "qkv"
            )
            query, key = rotated(query), rotated(key)
            if old:
                key = np.concatenate([cache[layer][0], key], 1)
                value = np.concatenate([cache[layer][1], value], 1)
                cache[layer] = (key, value)
            else:
                cache.append((key, value))
            scores = np.exp(log_softmax(query @ key.transpose(0, 2, 1) / np.sqrt(self.head) + mask))
            seen = (scores @ value).transpose(1, 0, 2).reshape(new, self.heads * self.head)
            x = x + seen @ weights[at + "self_attn.o_proj.weight"].T
            h = normed(x, at + "post_attention_layernorm.weight")
            gate = h @ weights[at + "mlp.gate_proj.weight"].T
            up = h @ weights[at + "mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[at + "mlp.down_proj.weight"].T
        return log_softmax(normed(x, "model.norm.weight") @ weights["model.embed_tokens.weight"].T)

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


@dataclass
class Choice:
    """One choice as it grows: its text up to ``sent`` has gone out in a stream."""

    index: int
    prompt: list[int]
    echoed: str = ""
    text: str = ""
    sent: int = 0
    reason: str | None = None
    tokens: int = 0
    told: int = 0
    """How many log-probabilities have gone out in a stream."""
    logprobs: dict[str, list[Any]] = field(
        default_factory=lambda: {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    )


@dataclass(frozen=True)
class Job:
    """A request's fields, checked."""

    model: Llama
    body: dict[str, Any]
    chat: bool
    delay: float

    @property
    def stops(self) -> list[str]:
        given = self.body.get("stop") or []
        return [*([given] if isinstance(given, str) else given), *(["<eob>"] if self.chat else [])]

    @property
    def top(self) -> int | None:
        """How many log-probabilities a token comes with; None: none are wanted."""
        if self.chat:
            return self.body.get("top_logprobs") or 0 if self.body.get("logprobs") else None
        return self.body.get("logprobs")

    def choices(self) -> Iterator[Choice]:
        """The choices to make, prompt by prompt."""
        index = itertools.count()
        for prompt in self._prompts():
            text = isinstance(prompt, str)
            ids = self.model.tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
            if len(ids) >= self.model.context:
                raise Refused(
                    f"This model's maximum context length is {self.model.context} tokens, your prompt has {len(ids)}.",
                    code="context_length_exceeded",
                )
            echoed = (prompt if text else self.model.text(ids)) if self.body.get("echo") else ""
            for _ in range(self.body.get("n") or 1):
                yield Choice(next(index), ids, str(echoed))

    def _prompts(self) -> list[str | list[int]]:
        if self.chat:
            said = (
                "".join(MARKS[m["role"]][0] + _content(m) + MARKS[m["role"]][1]) for m in self.body.get("messages", ())
            )
            return ["".join(said) + MARKS["assistant"][0]]
        prompt = self.body.get("prompt")
        if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
            return [prompt]
        if isinstance(prompt, list) and prompt:
            return prompt
        raise Refused("prompt must be a string, a list of strings or token ids", param="prompt")

    async def grow(self, choice: Choice) -> AsyncIterator[str]:
        """Generate one choice; yields the text that may go out, the last piece once ``reason`` is set."""
        model, cache = self.model, list[tuple[Array, Array]]()
        rows = model.forward(choice.prompt, cache)
        if choice.echoed:
            if self.top is not None:  # the BOS in front of a string prompt is not shown
                hidden = int(isinstance(self.body["prompt"], str))
                for place, token in enumerate(choice.prompt[hidden:], hidden):
                    self._note(choice, token, None if place == hidden else rows[place - 1])
            yield choice.echoed
        given = self.body.get("max_completion_tokens" if self.chat else "max_tokens", self.body.get("max_tokens"))
        limit = min(16 if given is None else given, model.context - len(choice.prompt))
        temperature = self.body.get("temperature", 1.0)
        rng = np.random.default_rng(self.body.get("seed"))
        row, made = rows[-1], list[int]()
        while choice.reason is None:
            if len(made) == limit:
                choice.reason = "length"
                break
            token = int(row.argmax())
            if temperature > 1e-6:
                weights = np.exp(log_softmax(row / temperature)).astype(np.float64)
                token = int(rng.choice(len(weights), p=weights / weights.sum()))
            if token == model.end:
                choice.reason = "stop"
                break
            made.append(token)
            choice.tokens += 1
            choice.text = model.text(made)
            cut = min((at for at in map(choice.text.find, self.stops) if at >= 0), default=-1)
            if cut >= 0:
                choice.text, choice.reason = choice.text[:cut], "stop"
                break
            if self.top is not None:
                self._note(choice, token, row)
            held = max((n for s in self.stops for n in range(1, len(s)) if choice.text.endswith(s[:n])), default=0)
            ready = choice.text[: len(choice.text) - held].rstrip("\ufffd")
            if len(ready) > choice.sent:
                piece, choice.sent = ready[choice.sent :], len(ready)
                yield piece
            row = model.forward([token], cache)[-1]
            await asyncio.sleep(self.delay)
        yield choice.text[choice.sent :]

    def _note(self, choice: Choice, token: int, row: Array | None) -> None:
        """Add a token's log-probability; ``row`` None: the first token has none."""
        notes, name = choice.logprobs, self.model.text([token])
        notes["text_offset"].append(len("".join(notes["tokens"])))
        notes["tokens"].append(name)
        notes["token_logprobs"].append(None if row is None else float(row[token]))
        best = [] if row is None else np.argsort(-row)[: max(self.top or 0, 1)].tolist()
        notes["top_logprobs"].append(None if row is None else {self.model.text([i]): float(row[i]) for i in best})

    def shown(self, choice: Choice, text: str, *, delta: bool) -> dict[str, Any]:
        """A choice of a whole answer, or of a stream's chunk."""
        row: dict[str, Any] = {"index": choice.index, "finish_reason": choice.reason, "logprobs": None}
        if self.top is not None:
            notes = {key: values[choice.told :] for key, values in choice.logprobs.items()}
            choice.told = len(choice.logprobs["tokens"])
            row["logprobs"] = _chat_logprobs(notes) if self.chat else notes
        if self.chat:
            return row | {"delta" if delta else "message": {"role": "assistant", "content": text}}
        return row | {"text": text}


def _content(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _chat_logprobs(notes: dict[str, list[Any]]) -> dict[str, Any]:
    def row(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}

    rows = zip(notes["tokens"], notes["token_logprobs"], notes["top_logprobs"], strict=True)
    return {"content": [row(t, p) | {"top_logprobs": [row(*pair) for pair in top.items()]} for t, p, top in rows]}


class Server:
    """The routes; ``name`` is the one model that is served."""

    def __init__(self, model: Llama, name: str, delay: float) -> None:
        self.model, self.name, self.delay = model, name, delay
        self.count = itertools.count(1)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/v1/completions", self.complete, methods=["POST"]),
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
            ],
            exception_handlers={Refused: self.refuse},
        )

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        card = {"id": self.name, "object": "model", "created": 0, "owned_by": "local"}
        return JSONResponse({"object": "list", "data": [{**card, "max_model_len": self.model.context}]})

    async def refuse(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return JSONResponse({"error": error.error}, error.status)

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        if body.get("model") != self.name:
            raise Refused(f"The model `{body.get('model')}` does not exist.", 404, "model_not_found", "model")
        chat = request.url.path == "/v1/chat/completions"
        job = Job(self.model, body, chat, self.delay)
        choices = list(job.choices())
        kind = ("chat.completion" if chat else "text_completion") + (".chunk" if chat and body.get("stream") else "")
        base = {"id": f"cmpl-{next(self.count)}", "object": kind, "created": 0, "model": self.name}
        if body.get("stream"):
            return StreamingResponse(self.stream(job, base, choices), media_type="text/event-stream")
        rows = []
        for choice in choices:
            async for _ in job.grow(choice):
                pass
            rows.append(job.shown(choice, choice.echoed + choice.text, delta=False))
        return JSONResponse({**base, "choices": rows, "usage": usage(choices, body.get("n") or 1)})

    async def stream(self, job: Job, base: dict[str, Any], choices: list[Choice]) -> AsyncIterator[str]:
        for choice in choices:
            async for text in job.grow(choice):
                yield f"data: {json.dumps({**base, 'choices': [job.shown(choice, text, delta=True)]})}\n\n"
        if (job.body.get("stream_options") or {}).get("include_usage"):
            counted = usage(choices, job.body.get("n") or 1)
            yield f"data: {json.dumps({**base, 'choices': [], 'usage': counted})}\n\n"
        yield "data: [DONE]\n\n"


def usage(choices: list[Choice], n: int) -> dict[str, int]:
    """The counts of one request; a prompt counts once, however many choices it has."""
    asked, made = sum(len(choice.prompt) for choice in choices[::n]), sum(choice.tokens for choice in choices)
    return {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the demo model on 127.0.0.1.")
    parser.add_argument("--model", type=Path, default=Path("demo/model"))
    parser.add_argument("--name", default="tiny")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to wait after each token")
    given = parser.parse_args()
    app = Server(Llama(given.model), given.name, given.delay).app()
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
