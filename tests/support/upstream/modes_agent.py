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
