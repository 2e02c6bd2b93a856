"""Command-line arguments, errors and notes that several verbs share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.core.errors import Problem

if TYPE_CHECKING:  # `gateway --help` does not import the configuration's modules
    from gateway.config.snapshot import Snapshot


class CommandError(Exception):
    """Raised if a verb cannot do what the command line asks. The message is printed on standard error."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def add_config(parser: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    """Add the option ``--config``."""
    parser.add_argument("--config", type=Path, default=Path("gateway.yaml"), metavar="FILE",
                        help="the configuration (default: ./gateway.yaml)")  # fmt: skip


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add ``--config``, and ``MODEL`` and ``--template``. Exactly one of the last two is required."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("model", nargs="?", metavar="MODEL", help="a configured model")
    group.add_argument("--template", metavar="FILE|NAME", help="a template instead of a model; needs no configuration")
    add_config(parser)


def add_conversation(parser: argparse.ArgumentParser) -> None:
    """Add the option ``-m``, a message of the conversation."""
    parser.add_argument(
        "-m",
        "--message",
        action="append",
        type=_message,
        metavar="ROLE:TEXT",
        help="one message, such as user:hello; may be repeated. "
        "Without -m, JSON is read from standard input: a list of messages, or a chat request",
    )


def _message(text: str) -> dict[str, str]:
    role, colon, content = text.partition(":")
    if not colon or not role.strip():
        raise argparse.ArgumentTypeError(f"expected ROLE:TEXT, such as user:hello, not {text!r}")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise argparse.ArgumentTypeError("the text is not valid UTF-8")
    return {"role": role.strip(), "content": content}


def read_conversation(messages: Sequence[dict[str, str]] | None) -> dict[str, Any]:
    """Return the body of a chat request without ``model``. The body is made from ``-m`` or read from standard input."""
    if messages:
        return {"messages": messages}
    if sys.stdin.isatty():
        raise CommandError('no conversation; give -m "user:hello", or JSON messages on standard input', 1)
    import orjson  # as strict as the HTTP endpoints: no NaN, no lone surrogate, UTF-8 only

    try:
        body = orjson.loads(sys.stdin.buffer.read())
    except ValueError as error:
        what = 'give JSON such as [{"role": "user", "content": "hello"}], or a message with -m "user:hello"'
        raise CommandError(f"standard input is not JSON ({error}); {what}", 1) from None
    if isinstance(body, list):
        return {"messages": body}
    if isinstance(body, dict):
        return body
    raise CommandError("standard input must contain a JSON list of messages, or a chat request", 1)


def load_snapshot(config: Path) -> Snapshot:
    """Load the configuration. Raises ``ConfigError`` with every problem."""
    from gateway.config.load import load

    return load(config, os.environ)


def print_problems(problems: Sequence[Problem]) -> None:
    """Print one line for each problem, and then the number of problems, on standard error."""
    print(*problems, f"{len(problems)} problem{'s' if len(problems) != 1 else ''}", sep="\n", file=sys.stderr)


def print_notes(snapshot: Snapshot, notes: Iterable[Problem]) -> None:
    """Print ``notes`` on standard error, and a note about models that every worker loads."""
    workers = snapshot.server.workers
    embedded = [
        name
        for name, model in snapshot.models.items()
        if any(BACKEND_KINDS[target.speaks].in_process for target in model.targets)
    ]
    if workers > 1 and embedded:
        print(f"note: each of the {workers} workers loads its own copy of {', '.join(embedded)} (embedded)",
              file=sys.stderr)  # fmt: skip
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
