"""A client's reading of an answer: its text, its end, and whether its bytes are valid HTTP and SSE."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.serving import Gateway


@dataclass
class Read:
    """What came of one request."""

    status: int
    headers: dict[str, str]
    raw: bytes
    texts: dict[int, str] = field(default_factory=dict)
    finishes: dict[int, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    done: bool = False

    @property
    def code(self) -> str | None:
        return self.error["code"] if self.error else None

    @property
    def text(self) -> str:
        return self.texts.get(0, "")

    def deltas(self, index: int) -> list[dict[str, Any]]:
        """Those of one choice of a chat's stream."""
        bodies = [json.loads(event[6:]) for event in self.raw.decode().split("\n\n") if event.startswith("data: {")]
        choices = [choice for body in bodies for choice in body.get("choices", ())]
        return [choice["delta"] for choice in choices if choice["index"] == index]


def ask(gateway: Gateway, model: str, *, stream: bool = False, **fields: Any) -> Read:
    """One chat request, read to its end as strictly as a client may."""
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return post(gateway, "/v1/chat/completions", {"model": model, "stream": stream, **body})


def post(gateway: Gateway, path: str, body: dict[str, Any]) -> Read:
    answer = gateway.http.post(path, json=body)
    read = Read(answer.status_code, dict(answer.headers), answer.content)
    assert answer.headers["x-request-id"]
    assert gateway.wait_until_idle()  # the call has been counted
    if answer.headers["content-type"] == "text/event-stream":
        _read_stream(read)
    else:
        assert answer.headers["content-type"] == "application/json"
        _read_whole(read, answer.json())
    if read.error is not None:
        assert set(read.error) == {"message", "type", "param", "code"}
        assert isinstance(read.error["code"], str)
    return read


def _read_whole(read: Read, body: dict[str, Any]) -> None:
    read.error = body.get("error")
    for choice in body.get("choices", ()):
        said = choice["message"]["content"] if "message" in choice else choice["text"]
        read.texts[choice["index"]] = said
        read.finishes[choice["index"]] = choice["finish_reason"]
    read.usage = body.get("usage")


def _read_stream(read: Read) -> None:
    events = read.raw.decode().split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    read.done = True
    for event in events:
        assert event.startswith("data: ")
        body = json.loads(event[6:])
        if "error" in body:
            read.error = body["error"]
            assert event is events[-1], "something follows the error"
            continue
        read.usage = body.get("usage") or read.usage
        for choice in body["choices"]:
            index = choice["index"]
            assert index not in read.finishes, "text after the finish"
            said = choice["delta"].get("content") if "delta" in choice else choice["text"]
            if "delta" in choice and index not in read.texts:
                assert choice["delta"]["role"] == "assistant"
            read.texts[index] = read.texts.get(index, "") + (said or "")
            if choice["finish_reason"]:
                read.finishes[index] = choice["finish_reason"]
