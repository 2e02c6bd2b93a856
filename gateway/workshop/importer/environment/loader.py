"""Loads a config with the Python of another environment, and returns its plain values.

The config is executed, with the rights of the user. So this is only done where the user names that Python.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from gateway.workshop.importer.python.values import NameReference, PythonExpression, Unsupported
from gateway.workshop.importer.source import Source

PROGRAM = Path(__file__).with_name("program.py")
SECONDS = 60.0
"""The time limit of loading a config, with the start of Python and the import of mmengine."""
MAX_MEMORY = 4 * 1024**3
"""The limit of the memory that the process may write to, in bytes. Importing torch takes about one GiB of it."""


class ConfigNotLoaded(Exception):
    """The config was not loaded. The message gives the reason."""


def load_config(python: Path, source: Source, *, seconds: float = SECONDS) -> dict[str, Any]:
    """Return the values of a config by name. Raises ``ConfigError`` if the config cannot be loaded."""
    try:
        (row,) = run_program(python, [Path(source.path)], seconds)
        return names_of(row, source)
    except ConfigNotLoaded as error:
        raise source.refuse(0, f"{python} did not load the config: {error}") from None


def run_program(python: Path, paths: Sequence[Path], seconds: float) -> list[dict[str, Any]]:
    """Run the program for some configs, and return a row for each. Raises ``ConfigNotLoaded``."""
    with TemporaryFile() as result:
        try:
            process = subprocess.Popen(
                [python, PROGRAM, str(MAX_MEMORY), *paths],
                stdin=subprocess.DEVNULL,
                stdout=result,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigNotLoaded(f"it cannot be started ({error.strerror})") from None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ConfigNotLoaded(f"it took longer than {seconds:g} s and was stopped") from None
        finally:
            with suppress(ProcessLookupError):  # all processes of the group have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        result.seek(0)
        lines = result.read().splitlines()
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError:
        rows = []
    if len(rows) != len(paths):
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise ConfigNotLoaded(f"it {ended} without the values; it must be a Python 3.8 or later")
    return rows


def names_of(row: Any, source: Source) -> dict[str, Any]:
    """Return the values of a row of the program by name. Raises ``ConfigNotLoaded`` if the row has none."""
    if "missing" in row:
        raise ConfigNotLoaded(
            f"it cannot import mmengine ({row['missing']}); install that with its pip install mmengine"
        )
    if "error" in row:
        raise ConfigNotLoaded(row["error"])
    found: dict[str, Any] = {}
    entries: dict[str, Any] = {}  # an entry of two lists stays one object, so that the dataset is imported once
    for name, value in zip(row["names"]["keys"], row["names"]["values"], strict=True):
        if not isinstance(value, list):
            found[name] = _value(value, name, source)
            continue
        found[name] = []
        for number, entry in enumerate(value):
            text = json.dumps(entry)
            if text not in entries:
                entries[text] = _value(entry, f"{name}[{number}]", source)
            found[name].append(entries[text])
    return found


def _value(value: Any, path: str, source: Source) -> Any:
    """Return a value of the program as the importers read it. ``path``: the keys that lead to it."""
    if isinstance(value, list):
        return [_value(one, f"{path}[{number}]", source) for number, one in enumerate(value)]
    if isinstance(value, str):
        return value if _is_whole(value) else _object("an incomplete character", path, source)
    if not isinstance(value, dict):
        return value
    if "name" in value:
        return NameReference(value["name"], 0, source, key=path)
    if "object" in value:
        return _object(f"an object of the class {value['object']}", path, source)
    if not all(isinstance(key, int) or _is_whole(key) for key in value["keys"]):
        return _object("a key with an incomplete character", path, source)
    entries = zip(value["keys"], value["values"], strict=True)
    return {key: _value(one, f"{path}.{key}", source) for key, one in entries}


def _object(text: str, path: str, source: Source) -> PythonExpression:
    return Unsupported(text, 0, source, key=path)


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
