"""A model behind an agent: it calls one function for each turn, then it says what the last function returned."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.upstream.modes import mode
from tests.support.upstream.reply import Reply, Request

RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
"""A result in the prompt of the template ``chatml-tools``."""


@mode("agent")
async def call_functions(reply: Reply) -> None:
    """The calls of the option ``calls``, a JSON list of pairs (name, arguments); then the last line of the last result.

    The model calls only functions that the request has. A chat answer has ``tool_calls``, a completion writes each call
    as text.
    """
    request = reply.request
    results, calls = results_of(request), json.loads(request.options["calls"])
    if len(results) == len(calls):
        text = f"It printed {results[-1].strip().splitlines()[-1]}."
        await answer(reply, {"content": text}, text, "stop")
        return
    name, arguments = calls[len(results)]
    if name not in functions_of(request):
        await reply.error("400 Bad Request", f"the request has no function {name}")
        return
    call = {"name": name, "arguments": arguments}
    function = {"name": name, "arguments": json.dumps(arguments)}
    tool_calls = [{"index": 0, "id": f"call_{len(results)}", "type": "function", "function": function}]
    text = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    await answer(reply, {"tool_calls": tool_calls}, text, "tool_calls" if request.endpoint == "chat" else "stop")


def results_of(request: Request) -> list[str]:
    """The results of the functions that were called so far."""
    if request.endpoint == "completions":
        return RESULT.findall(request.prompts[0])
    return [str(message["content"]) for message in request.body["messages"] if message["role"] == "tool"]


def functions_of(request: Request) -> set[str]:
    """The names of the functions in a request, or in its prompt."""
    if request.endpoint == "completions":
        return set(re.findall(r'"function": \{"name": "(\w+)"', request.prompts[0]))
    return {tool["function"]["name"] for tool in request.body["tools"]}


async def answer(reply: Reply, delta: dict[str, Any], text: str, finish: str) -> None:
    """A stream with one piece of content: ``delta`` for a chat, ``text`` for a completion."""
    await reply.stream_head()
    piece = reply.piece(text)
    if reply.request.endpoint == "chat":
        piece["choices"][0]["delta"] = {"role": "assistant", **delta}
    await reply.event(piece)
    await reply.event(reply.piece(None, 0, finish))
    await reply.usage_event(5)
    await reply.done()
    await reply.end()


@mode("thinking-agent")
async def think_and_call(reply: Reply) -> None:
    """A model that thinks of the question in each turn, calls ``add`` twice in sequence, and then answers.

    It says how many of its thoughts it has read. The ids of its calls are the same in every conversation. A completion
    has thought and call as text, for a template like ``chatml-tools``.
    """
    request = reply.request
    number, question = len(results_of(request)), question_of(request)
    thought, arguments = f"Turn {number} of {question}", json.dumps({"a": number, "b": 1.0})
    said = f"{json.dumps(request.body).count('Turn ')} thoughts."
    call = {"index": 0, "id": f"functions.add:{number}", "type": "function"}
    call["function"] = {"name": "add", "arguments": arguments}
    text = "" if number == 2 else f'\n<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'
    deltas: list[dict[str, Any]] = [{"role": "assistant", "reasoning_content": thought}]
    deltas += [{"content": said}, *([{"tool_calls": [call]}] if number < 2 else [])]
    if request.endpoint == "completions":
        deltas = [{"content": f"<think>\n{thought}"}, {"content": f"\n</think>\n\n{said}"}, {"content": text}]
    finish = "tool_calls" if request.endpoint == "chat" and number < 2 else "stop"
    if not request.stream:
        whole = reply.whole(["".join([one.get("content", "") for one in deltas])], finish, usage=reply.usage())
        if request.endpoint == "chat":
            message = whole["choices"][0]["message"]
            message |= {name: one[name] for one in deltas for name in one if name != "content"}
        await reply.json(whole)
        return
    await reply.stream_head()
    for delta in deltas:
        piece = reply.piece(delta.get("content"))
        if request.endpoint == "chat":
            piece["choices"][0]["delta"] = delta
        await reply.event(piece)
    await reply.event(reply.piece(None, 0, finish))
    await reply.usage_event()
    await reply.done()
    await reply.end()


def question_of(request: Request) -> str:
    """The first message of a user."""
    if request.endpoint == "completions":
        return str(request.prompts[0]).partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    return next(str(message["content"]) for message in request.body["messages"] if message["role"] == "user")
