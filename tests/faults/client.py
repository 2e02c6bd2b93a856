"""A client that reads an answer and checks that its bytes are valid HTTP and SSE."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.serving import Gateway


@dataclass
class Response:
    """The response to one request."""

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
        """The deltas of one choice of a chat stream."""
        bodies = [json.loads(event[6:]) for event in self.raw.decode().split("\n\n") if event.startswith("data: {")]
        choices = [choice for body in bodies for choice in body.get("choices", ())]
        return [choice["delta"] for choice in choices if choice["index"] == index]


def send_chat(gateway: Gateway, model: str, *, stream: bool = False, **fields: Any) -> Response:
    """Send a chat request, and read and check its response to the end."""
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return post(gateway, "/v1/chat/completions", {"model": model, "stream": stream, **body})


def post(gateway: Gateway, path: str, body: dict[str, Any]) -> Response:
    answer = gateway.http.post(path, json=body)
    response = Response(answer.status_code, dict(answer.headers), answer.content)
    assert answer.headers["x-request-id"]
    assert gateway.wait_until_idle()  # until the metrics of the call are recorded
    if answer.headers["content-type"] == "text/event-stream":
        _read_stream(response)
    else:
        assert answer.headers["content-type"] == "application/json"
        _read_whole(response, answer.json())
    if response.error is not None:
        assert set(response.error) == {"message", "type", "param", "code"}
        assert isinstance(response.error["code"], str)
    return response


def _read_whole(response: Response, body: dict[str, Any]) -> None:
    response.error = body.get("error")
    for choice in body.get("choices", ()):
        said = choice["message"]["content"] if "message" in choice else choice["text"]
        response.texts[choice["index"]] = said
        response.finishes[choice["index"]] = choice["finish_reason"]
    response.usage = body.get("usage")


def _read_stream(response: Response) -> None:
    events = response.raw.decode().split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    response.done = True
    for event in events:
        assert event.startswith("data: ")
        body = json.loads(event[6:])
        if "error" in body:
            response.error = body["error"]
            assert event is events[-1], "something follows the error"
            continue
        response.usage = body.get("usage") or response.usage
        for choice in body["choices"]:
            index = choice["index"]
            assert index not in response.finishes, "text after the finish"
            said = choice["delta"].get("content") if "delta" in choice else choice["text"]
            if "delta" in choice and index not in response.texts:
                assert choice["delta"]["role"] == "assistant"
            response.texts[index] = response.texts.get(index, "") + (said or "")
            if choice["finish_reason"]:
                response.finishes[index] = choice["finish_reason"]
