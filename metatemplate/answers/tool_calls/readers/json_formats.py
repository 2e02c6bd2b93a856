"""The formats whose calls are JSON: ``hermes``, ``json``, ``llama3_json`` and ``mistral``."""

from __future__ import annotations

import re
from collections.abc import Generator

from metatemplate.answers.stops.stop_search import StopSet
from metatemplate.answers.tool_calls.format import (
    Calls,
    Format,
    ParsedCall,
    Region,
    blank_to,
    end_with,
    skip_brackets,
    skip_value,
)
from metatemplate.answers.tool_calls.readers.json_calls import calls_in, one_object


def _json_format(
    marker: str = "", end: str = "", *, keys: tuple[str, ...] = ("arguments",), first: bool = False, separator: str = ""
) -> Format:
    """Return a format whose calls are objects with ``name`` and one of ``keys``, or a list of such objects.

    The calls are between ``marker`` and ``end``; with ``first``, at the beginning of the answer without a marker.
    """

    def rule(region: Region) -> Generator[None, None, int]:
        region.at = len(marker) if region.text == marker else 0
        yield from skip_value(region)
        return (yield from end_with(region, end))

    def read(text: str) -> Calls:
        return calls_in(text.removeprefix(marker).removesuffix(end), keys)

    return Format(
        rule=rule,
        read=read,
        markers=StopSet((marker,)),
        openers="{[" if first else "",
        separator=separator,
        failure_signs=(*filter(None, (marker,)), *(('"name"',) if first else ())),
    )


HERMES = _json_format("<tool_call>", "</tool_call>")
"""The format ``hermes``. Calls may be anywhere in the text. An end marker inside a string is part of it. A call is
complete even if only its end marker is missing."""
JSON = _json_format(first=True)
"""The format ``json``, for models that write calls without a marker. Other text and other JSON are content."""
LLAMA3_JSON = _json_format("<|python_tag|>", keys=("parameters", "arguments"), first=True, separator=";")
"""The format ``llama3_json``. Python code after the marker is content, not a call."""


# ---------------------------------------------------------------- mistral

MISTRAL_MARKER = "[TOOL_CALLS]"
MISTRAL_HEADER = re.compile(r"\s*([\w.-]{1,64})\s*(?:\[CALL_ID\]\w{1,64})?(?:\[ARGS\])?\s*")
MAX_HEADER = 256


def _mistral_rule(region: Region) -> Generator[None, None, int]:
    """Find the end of the region: the marker, a name if the calls are not a list, and one JSON value.

    If the value is missing, the region is only the marker.
    """
    region.at = len(MISTRAL_MARKER)
    while True:
        header = region.text[region.at : region.at + MAX_HEADER + 1]
        blanks = blank_to(header, 0)
        opening = blanks if header[blanks : blanks + 1] == "[" else header.find("{")
        if opening >= 0 or len(header) > MAX_HEADER:
            break
        yield
    if not 0 <= opening <= MAX_HEADER or (header[opening] == "{" and not MISTRAL_HEADER.fullmatch(header, 0, opening)):
        return len(MISTRAL_MARKER)
    region.at += opening
    yield from skip_brackets(region)
    return region.offset


def _read_mistral(text: str) -> Calls:
    body = text.removeprefix(MISTRAL_MARKER)
    if body.lstrip().startswith("["):
        return calls_in(body)
    header = MISTRAL_HEADER.match(body)
    return (ParsedCall(header[1], one_object(body[header.end() :])),) if header is not None else ()


MISTRAL = Format(
    rule=_mistral_rule, read=_read_mistral, markers=StopSet((MISTRAL_MARKER,)), failure_signs=(MISTRAL_MARKER,)
)
"""``[TOOL_CALLS]`` and a list of calls. Since tokenizer v11, each call is ``[TOOL_CALLS]add{"a": 1}`` or
``[TOOL_CALLS]add[CALL_ID]k3x9q2f7a[ARGS]{"a": 1}``. The call id that the model wrote is not kept."""
