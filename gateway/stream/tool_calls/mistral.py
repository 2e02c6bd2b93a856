"""``mistral``: ``[TOOL_CALLS]`` and a list of calls; or, since tokenizer v11, a name and its arguments.

Three ways to write the same::

    [TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]
    [TOOL_CALLS]add{"a": 1}
    [TOOL_CALLS]add[CALL_ID]k3x9q2f7a[ARGS]{"a": 1}

The last two are repeated with their marker for each further call. The model's own call id is not kept, because the
gateway assigns ids.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from gateway.stream.stop_search import StopSet
from gateway.stream.tool_calls.format import Calls, Format, ParsedCall
from gateway.stream.tool_calls.json_calls import calls_in, object_to
from gateway.stream.tool_calls.region import Region, blank_to, skip_brackets

MARKER = "[TOOL_CALLS]"
HEADER = re.compile(r"\s*([\w.-]{1,64})\s*(?:\[CALL_ID\]\w{1,64})?(?:\[ARGS\])?\s*")
MAX_HEADER = 256


def _rule(region: Region) -> Generator[None, None, int]:
    """The marker, a name if the calls are not a list, and one JSON value; without a value the marker alone."""
    region.at = len(MARKER)
    while True:
        header = region.text[region.at : region.at + MAX_HEADER + 1]
        blanks = blank_to(header, 0)
        opening = blanks if header[blanks : blanks + 1] == "[" else header.find("{")
        if opening >= 0 or len(header) > MAX_HEADER:
            break
        yield
    if not 0 <= opening <= MAX_HEADER or (header[opening] == "{" and not HEADER.fullmatch(header, 0, opening)):
        return len(MARKER)
    region.at += opening
    yield from skip_brackets(region)
    return region.offset


def _read(text: str) -> Calls | None:
    body = text.removeprefix(MARKER)
    if body.lstrip().startswith("["):
        return calls_in(body)
    header = HEADER.match(body)
    if header is None:
        return None
    try:
        end = object_to(body, header.end())
    except ValueError:
        return None
    return (ParsedCall(header[1], body[header.end() : end]),) if end == len(body) else None


MISTRAL = Format(rule=_rule, read=_read, markers=StopSet((MARKER,)), failure_signs=(MARKER,))
