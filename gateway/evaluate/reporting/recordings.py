"""List the recorded calls, the latest first, or show one call: its prompt, its answer and its attempts.

The calls are those of the file recordings.path in gateway.yaml, or of --file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import (
    CommandError,
    argument,
    flag,
    option,
    print_note,
    takes,
    verb,
)
from gateway.cli.terminal import format_table
from gateway.evaluate.reporting.selection import CallSelection
from metatemplate.values.words import escape, printable, suggest

EXAMPLES = """Examples:
  gateway recordings --last 20
  gateway recordings --model demo --failed
  gateway recordings --run nightly-7 --json | jq .request_id
  gateway recordings req_855adafc5f75f917390e93f7248e5776
"""
LISTED = (
    "time",
    "request_id",
    "endpoint",
    "model",
    "key",
    "run",
    "outcome",
    "duration",
    "prompt_tokens",
    "completion_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingsOptions(CallSelection):
    """The options of ``gateway recordings``."""

    request_id: str | None = argument(metavar="[REQUEST_ID]", required=False)
    """the call to show"""
    failed: bool = flag()
    """only calls without an answer"""
    last: int = option("N", type=click.IntRange(min=1), default=10)
    """the maximum number of calls"""
    as_json: bool = flag("--json")
    """print JSON instead of a table: one object for each call"""


@verb(__doc__, EXAMPLES)
@takes(RecordingsOptions)
def command(options: RecordingsOptions) -> int:
    """Print the calls, or one call with its exchanges."""
    from gateway.evaluate.reporting.source import reading
    from gateway.storage.recordings import open_recording

    request_id = options.request_id
    if request_id is not None and Path(request_id).exists():
        raise CommandError(f"{request_id} is a file, and no id of a call; use --file {request_id}")
    filters = options.filters | ({} if request_id is None else {"request_id": request_id})
    path = options.path
    with reading(), closing(open_recording(path)) as opened:
        calls = [dict(call) for call in opened.find_calls(filters, failed=options.failed, last=options.last)]
        if request_id is not None:
            if not calls:
                raise CommandError(
                    f"{path} has no call {request_id}; gateway recordings --file {path} --last 20 lists its calls"
                )
            for call in calls:
                call["exchanges"] = [dict(one) for one in opened.exchanges_of(call["id"])]
        if options.as_json:
            print("".join([f"{json.dumps(call)}\n" for call in calls]), end="")
        elif request_id is None:
            rows = [[_cell(name, call.get(name)) for name in LISTED] for call in calls]
            print(*format_table([LISTED, *rows]), sep="\n")
        else:
            print(*[line for call in calls for line in _call_lines(**call)], sep="\n")
        if not calls and filters:
            wanted = [f"{key}={value}{suggest(value, opened.known_values(key))}" for key, value in filters.items()]
            print_note(f"{path} has no call with {' and '.join(wanted)}")
    return 0


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if name == "time":
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{value:.3f}" if isinstance(value, float) else printable(str(value))


def _call_lines(exchanges: list[dict[str, Any]], **call: Any) -> Iterator[str]:
    """Yield the lines about one call."""
    from gateway.config.remedies import remedies
    from gateway.evaluate.analysis.recordings import failure_of
    from gateway.storage.recordings import readable_prompts

    for name, value in {**call, "error": failure_of(call)}.items():
        if name != "id" and value not in (None, "", []):
            yield f"{name:<18}{_shown(name, value)}"
        if name == "error" and (remedy := remedies().get(call["outcome"])):
            yield f"{'what to do':<18}{remedy}"
    for number, exchange in enumerate(exchanges, 1):
        yield ""
        yield f"exchange {number} of {len(exchanges)}"
        for name in ("params", "stops", "stop_token_ids", "bos", "prompt_sha256", "prompt_ids"):
            if exchange.get(name) not in (None, "", [], {}):
                yield f"{name:<18}{_shown(name, exchange[name])}"
        for prompt in readable_prompts(exchange):
            yield "prompt"
            yield from _text_lines(prompt)
        for message in exchange["messages"] or ():
            yield f"message of {printable(str(message.get('role')))}"
            yield from _text_lines(message.get("content"))
        for choice in exchange.get("answer") or ():
            yield f"answer {choice['index']}, finish_reason {choice['finish_reason'] or 'none'}"
            for field, value in (choice.get("fields") or {}).items():
                yield f"  {printable(field)}: {_shown(field, value)}"
            yield from _text_lines(choice["text"])


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list | dict):
        return printable(json.dumps(value, ensure_ascii=False))
    return f"{value:.4f}" if isinstance(value, float) and name != "time" else _cell(name, value)


def _text_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a text, escaped and indented; another value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    for line in text.split("\n"):
        yield f"  {escape(line)}"
