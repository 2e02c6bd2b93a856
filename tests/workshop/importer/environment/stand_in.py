"""An environment whose package ``mmengine`` loads configs without imports of other packages."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.serving import write_files

MMENGINE = """
import types

class Config:
    def fromfile(path):
        names = {"__file__": path}
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), names)
        found = Config()
        found._cfg_dict = Values({key: value for key, value in names.items() if not key.startswith("__")})
        return found

class Values(dict):
    to_dict = dict.copy
"""
"""The part of mmengine that the program uses, for configs without imports of other packages."""


def stand_in(folder: Path) -> Path:
    """Write the package, and return the Python that finds it."""
    write_files(folder, {"site/mmengine/__init__.py": "", "site/mmengine/config.py": MMENGINE})
    return wrapper(folder, f"PYTHONPATH='{folder / 'site'}' exec '{sys.executable}' \"$@\"")


def wrapper(folder: Path, line: str) -> Path:
    """Write a program of one line, and return its path."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path
