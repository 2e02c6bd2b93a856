"""Make, list and revoke client keys.

A new key is printed once, on standard error, and is not stored. Its entry contains only the digest of the key: it is
printed on standard output, or added to the key file of the configuration with --write. A running gateway applies a
changed key file within a few seconds, if no file of its configuration has a problem. All other lines of the key file
stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from gateway.cli.options import CommandError, check_config_exists, config_option, print_note, verb

if TYPE_CHECKING:
    from gateway.config.snapshot import KeySpec

EXAMPLES = """Examples:
  gateway keys new ci-runner --write           the key goes to the terminal, the entry to the key file
  gateway keys new ci-runner >> keys.yaml      the same without a configuration
  gateway keys list
  gateway keys revoke ci-runner
"""


@verb(__doc__, EXAMPLES)
@click.argument("action", type=click.Choice(["new", "list", "revoke"]), help="what to do")
@click.argument("name", required=False, metavar="[NAME]", help="the name of the key's entry; for new and revoke")
@click.option("--write", is_flag=True, help="new: add the entry to the key file of the configuration")
@click.option("--json", "as_json", is_flag=True, help="list: print JSON instead of a table")
@config_option()
def command(
    action: Literal["new", "list", "revoke"], name: str | None, write: bool, as_json: bool, config: Path
) -> int:
    """Do one action, with the key file that the configuration names."""
    if (name is None) != (action == "list"):
        fault = "needs the NAME of a key" if name is None else "takes no NAME"
        raise click.UsageError(f"keys {action} {fault}", click.get_current_context())
    _check_options(action, write=write)
    if name is None:
        _list(config, as_json=as_json)
    elif action == "new":
        _new(name, config if write else None)
    else:
        _revoke(name, config)
    return 0


def _check_options(action: str, *, write: bool) -> None:
    """Raise ``UsageError`` for an option that the action does not have."""
    accepted = {"new": ["write", "config"] if write else ["write"], "list": ["as_json", "config"], "revoke": ["config"]}
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and isinstance(option, click.Option) and option.name not in accepted[action]:
            without = " without --write" if action == "new" and option.name == "config" else ""
            raise click.UsageError(f"keys {action} takes no {option.opts[0]}{without}", context)


def _new(name: str, config: Path | None) -> None:
    """Print a new key on standard error. ``config``: the configuration whose key file gets the entry, or None."""
    from gateway.config.files.key_file import with_entry
    from gateway.config.schema.kinds import KEY_NAME

    if not KEY_NAME.fullmatch(name):
        raise CommandError(
            'the name of a key must have 1 to 64 letters, digits, ".", "_", "@" or "-", '
            "and begin with a letter or a digit"
        )
    key = f"gk_{secrets.token_hex(3)}_{secrets.token_urlsafe(32)}"
    entry = f'{name}:\n  sha256: "{hashlib.sha256(key.encode()).hexdigest()}"\n  models: ["*"]\n'
    if config is None:
        print(entry, end="")
    else:
        print(f"added {name} to {_edit(config, lambda text: with_entry(text, name, entry))}")
    print(f"key for {name}, shown only once: {key}", file=sys.stderr)


def _list(config: Path, *, as_json: bool) -> None:
    """Print one row for each key."""
    from gateway.cli.terminal import format_table
    from gateway.config.sections.keys import expiry_state
    from metatemplate.values.words import utc

    now, keys = time.time(), _read(config)[1]
    rows: list[dict[str, Any]] = [
        {
            "name": key.name,
            "models": key.models,
            "expires": None if key.expires is None else utc(key.expires),
            "state": expiry_state(key, now),
        }
        for key in keys
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = [[row["name"], ", ".join(row["models"]), row["expires"] or "never", row["state"]] for row in rows]
    print(*format_table([["name", "models", "expires", "state"], *table]), sep="\n")


def _revoke(name: str, config: Path) -> None:
    """Remove the entry of a key."""
    from gateway.config.files.key_file import without_entry

    print(f"removed {name} from {_edit(config, lambda text: without_entry(text, name))}")


def _read(config: Path) -> tuple[Path, Sequence[KeySpec]]:
    from gateway.config.load import configured_keys

    check_config_exists(config)
    return configured_keys(config)


def _edit(config: Path, change: Callable[[str], str]) -> Path:
    """Change the text of the key file, and return its path."""
    from gateway.config.files.key_file import MODE, CannotEdit, edit
    from gateway.config.load import read_configuration

    file, _ = _read(config)
    try:
        before = edit(file, change)
    except CannotEdit as error:
        raise CommandError(f"{file} {error}") from None
    except OSError as error:
        raise CommandError(f"{file} cannot be written ({error.strerror or error})") from None
    if before not in (None, MODE):
        print_note(
            f"{file} had the mode {before:04o} and has {MODE:04o} now; only the file's owner can read it, so the "
            "gateway must run as this user"
        )
    if read_configuration(config, os.environ).problems:
        print_note(
            "the configuration has problems (gateway check); a running gateway that finds them too keeps its previous "
            "keys until they are corrected"
        )
    return file
