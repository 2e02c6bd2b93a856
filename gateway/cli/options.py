"""What several verbs share: the configuration they read, the conversation they are given."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import Snapshot
from gateway.core.errors import CONFIG_FAILED, ConfigError, GatewayError, Problem


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config``."""
    parser.add_argument("--config", type=Path, default=Path("gateway.yaml"), metavar="FILE",
                        help="the configuration (default: ./gateway.yaml)")  # fmt: skip


def add_conversation(parser: argparse.ArgumentParser) -> None:
    """``-m role:text`` or JSON on standard input."""
    parser.add_argument(
        "-m",
        "--message",
        action="append",
        default=[],
        metavar="ROLE:TEXT",
        help="one message, such as user:hello; may be repeated. "
        "Without -m, JSON is read from standard input: a list of messages, or a chat request",
    )


def load_snapshot(args: argparse.Namespace) -> Snapshot | None:
    """The configuration; None after its problems have been printed."""
    from gateway.config.load import load

    try:
        return load(args.config, os.environ)
    except ConfigError as error:
        print_problems(error)
        return None


def print_problems(error: ConfigError) -> None:
    """One line a problem on standard error, the count last."""
    for problem in error.problems:
        print(problem, file=sys.stderr)
    number = len(error.problems)
    print(f"{number} problem{'s' if number != 1 else ''}", file=sys.stderr)


def note_copies(snapshot: Snapshot) -> None:
    """Say on standard error which models lie in memory once for each worker."""
    number = snapshot.server.workers
    names = [
        name
        for name, model in snapshot.models.items()
        if any(BACKEND_KINDS[target.speaks].in_process for target in model.targets)
    ]
    if number > 1 and names:
        print(f"note: each of the {number} workers loads its own copy of {', '.join(names)} (embedded)",
              file=sys.stderr)  # fmt: skip


def note_files(notes: Iterable[Problem]) -> None:
    """Say on standard error what is no mistake, and a person should know of."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def read_conversation(args: argparse.Namespace) -> dict[str, Any]:
    """A chat request's body without its model. Raises ``SystemExit`` with a sentence if there is none."""
    if args.message:
        return {"messages": [_message(text) for text in args.message]}
    if sys.stdin.isatty():
        raise SystemExit('no conversation: give -m "user:hello", or JSON messages on standard input')
    import orjson  # as strict as the HTTP side: no NaN, no lone surrogate, UTF-8 only

    try:
        given = orjson.loads(sys.stdin.buffer.read())
    except ValueError as error:
        raise SystemExit(f"standard input is not JSON: {error}") from None
    if isinstance(given, list):
        return {"messages": given}
    if isinstance(given, dict):
        return given
    raise SystemExit("standard input must hold a list of messages or a chat request")


class NotFound(Exception):
    """No model or template of that name."""


def fail(error: NotFound | GatewayError) -> int:
    """Say on standard error what is wrong; the exit code for it."""
    if isinstance(error, NotFound | ConfigError):
        print(error, file=sys.stderr)
        return CONFIG_FAILED if isinstance(error, ConfigError) else 2
    where = f"{error.param}: " if error.param and error.param not in error.message else ""
    print(f"{error.code}: {where}{error.message}", file=sys.stderr)
    return 1


def _message(text: str) -> dict[str, str]:
    role, colon, content = text.partition(":")
    if not colon or not role.strip():
        raise SystemExit(f"-m takes ROLE:TEXT, such as user:hello, not {text!r}")
    if not text.isprintable() and any("\ud800" <= c <= "\udfff" for c in text):
        raise SystemExit("-m holds bytes that are not UTF-8")
    return {"role": role.strip(), "content": content}
