"""The reader ``channels``: messages with a channel and a recipient, the form of OpenAI's harmony.

A message is ``start``, perhaps a recipient, a channel, ``message``, a text, and ``end`` or ``call``. A message to
``functions.NAME`` is a call. The text of the channel ``analysis`` is reasoning; the first such message of an answer is
read as the template's ``thinking`` and never reaches this reader. All other text is content, without the headers.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from metatemplate.answers.stops.stop_search import StopSet
from metatemplate.answers.tool_calls.format import (
    NAME,
    Format,
    Found,
    ParsedCall,
    Region,
    Thought,
    ToolSchemas,
    one_of,
    skip_header,
    skip_one,
    skip_past,
)
from metatemplate.answers.tool_calls.readers.json_calls import one_object

RECIPIENT = re.compile(rf"to=(?:functions\.)?(?P<name>{NAME})")


def channels_format(*, start: str, channel: str, constrain: str, message: str, end: str, call: str) -> Format:
    """Return a format with these special tokens. ``start`` includes the role, and the prompt ends with it."""
    header = re.compile(rf"(?:{re.escape(start)}\s*)*(?:[^<]|{one_of((channel, constrain))})*{re.escape(message)}")

    def rule(region: Region) -> Generator[None, None, int]:
        marker = region.text
        region.at, begins = len(marker), channel
        if marker == end:
            region.whole = True
            yield
            return len(end)
        if marker == start:
            begins = start
            while begins == start:
                begins = yield from skip_one(region, ("to=", channel, start))
        if not begins or not (yield from skip_header(region, header)):
            return len(marker)
        region.whole = True
        head = "".join(region.pieces)[: region.offset]
        if not RECIPIENT.search(head) and f"{channel}analysis" not in head:
            return region.offset
        mark = yield from skip_past(region, (call, end, start))
        return region.offset - (len(start) if mark == start else 0)

    def read(text: str, tools: ToolSchemas) -> Found:
        head = header.match(text)
        if head is None and text != end:
            raise ValueError("a message has no text")
        recipient, body = RECIPIENT.search(head[0] if head else ""), text[head.end() if head else 0 :]
        if recipient is None:
            return (Thought(body.removesuffix(end)),)
        arguments = one_object(body.strip().removesuffix(end).removesuffix(call).strip())
        return (ParsedCall(recipient["name"], arguments),)

    return Format(
        rule=rule,
        read=read,
        markers=StopSet((start, channel, end)),
        prefix=start,
        channels=True,
        failure_signs=("to=",),
        sign=rf"{re.escape(channel)}\w+ to=functions\.|to=functions\.{NAME}\s?{re.escape(channel)}",
    )
