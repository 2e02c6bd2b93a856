"""List the recorded calls, the latest first, or show one call: its prompt, its answer and its attempts.

The calls are those of the file recordings.path in gateway.yaml, or of --file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import FILE_PATH, CommandError, config_option, print_note, verb
from gateway.cli.terminal import format_table
from metatemplate.values.words import escape, printable, suggest

EXAMPLES = """Examples:
  gateway recordings --last 20
  gateway recordings --model demo --failed
  gateway recordings --run nightly-7 --json | jq .request_id
  gateway recordings req_855adafc5f75f917390e93f7248e5776
"""
LISTED = (
    "time", "request_id", "endpoint", "model", "key", "run", "outcome", "duration", "prompt_tokens",
    "completion_tokens",
)  # fmt: skip


@verb(__doc__, EXAMPLES)
@click.argument("request_id", required=False, metavar="[REQUEST_ID]", help="the call to show")
@click.option("--model", metavar="MODEL", help="only calls of this model")
@click.option("--key", metavar="KEY", help="only calls of the client key with this name")
@click.option("--run", metavar="RUN", help="only calls of this run")
@click.option("--failed", is_flag=True, help="only calls without an answer")
@click.option("--last", type=click.IntRange(min=1), default=10, metavar="N", help="the maximum number of calls")
@click.option("--file", type=FILE_PATH, metavar="FILE", help="the file of recordings")
@config_option()
@click.option("--json", "as_json", is_flag=True, help="print one JSON object for each call")
def command(
    request_id: str | None, failed: bool, last: int, file: Path | None, config: Path, as_json: bool, **columns: str
) -> int:
    """Print the calls, or one call with its exchanges."""
    from gateway.evaluate.reporting.source import reading, recordings_path
    from gateway.storage.recordings import exchanges_of, find_calls, known_values, open_recording

    if request_id is not None and Path(request_id).exists():
        raise CommandError(f"{request_id} is a file, and no id of a call; use --file {request_id}")
    filters = {name: value for name, value in {**columns, "request_id": request_id}.items() if value is not None}
    path = recordings_path(config) if file is None else file
    if not path.exists():
        raise CommandError(f"{path}: no such file")
    with reading(), closing(open_recording(path)) as database:
        calls = [dict(call) for call in find_calls(database, filters, failed=failed, last=last)]
        if request_id is None:
            _print_list(calls, as_json=as_json)
            if not calls and filters:
                wanted = [
                    f"{key}={value}{suggest(value, known_values(database, key))}" for key, value in filters.items()
                ]
                print_note(f"{path} has no call with {' and '.join(wanted)}")
            return 0
        if not calls:
            raise CommandError(
                f"{path} has no call {request_id}; gateway recordings --file {path} --last 20 lists its calls"
            )
        for call in calls:
            exchanges = exchanges_of(database, call["id"])
            if as_json:
                print(json.dumps({**call, "exchanges": [dict(one) for one in exchanges]}))
            else:
                print(*_call_lines(call, [dict(one) for one in exchanges]), sep="\n")
    return 0


def _print_list(calls: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for call in calls:
            print(json.dumps(call))
        return
    rows = [[_cell(name, call.get(name)) for name in LISTED] for call in calls]
    print(*format_table([LISTED, *rows]), sep="\n")


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if name == "time":
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{value:.3f}" if isinstance(value, float) else printable(str(value))


def _call_lines(call: dict[str, Any], exchanges: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines about one call."""
    for name, value in call.items():
        if name != "id" and value not in (None, "", []):
            yield f"{name:<18}{_shown(name, value)}"
    for number, exchange in enumerate(exchanges, 1):
        yield ""
        yield f"exchange {number} of {len(exchanges)}"
        for name in ("params", "stops", "stop_token_ids", "bos", "prompt_sha256", "prompt_ids"):
            if exchange.get(name) not in (None, "", [], {}):
                yield f"{name:<18}{_shown(name, exchange[name])}"
        for prompt in exchange["prompts"] or ():
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
    return _cell(name, value)


def _text_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a text, escaped and indented; another value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    for line in text.split("\n"):
        yield f"  {escape(line)}"
