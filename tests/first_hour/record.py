"""Writes what each mistake shows now into ``mistakes.yaml``: ``python -m tests.first_hour.record``.

The ratings stay. The mistakes with a new message are printed: read each as a newcomer, and correct its rating.
"""

from __future__ import annotations

import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from tests.first_hour.world import MISTAKES, Mistake, read_mistakes, serving, what_is_shown

HEADER = """\
# Mistakes of a first hour with the gateway, and what the person who makes them sees.
# The starting point is the project in world.py. `change` replaces text of its gateway.yaml, `files` adds files.
# `shows` is written by `python -m tests.first_hour.record`.
# `rating` answers "do I know now what to do?", for a newcomer: 2 yes; 1 only where it is; 0 neither.
"""


class _Writer(yaml.SafeDumper):
    """Writes texts of several lines as blocks, in the order of the fields."""


def _text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Writer.add_representer(str, _text)


def main() -> None:
    """Make every mistake, and write the file anew."""
    areas: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as served:
        for mistake in read_mistakes():
            with tempfile.TemporaryDirectory() as own:
                shown = what_is_shown(mistake, Path(own).resolve(), served)
            if shown != mistake.shows:
                print(f"--- {mistake.mistake} (rating {mistake.rating})\n{shown}")
            areas.setdefault(mistake.area, []).append(_entry(mistake, shown))
    text = yaml.dump(areas, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=10_000)
    MISTAKES.write_text(HEADER + text, encoding="utf-8")


def _entry(mistake: Mistake, shown: str) -> dict[str, Any]:
    """The fields that are not empty, with the input first and the rating last."""
    order = [field for field in fields(Mistake) if field.name not in ("area", "shows", "rating")]
    values = {field.name: (getattr(mistake, field.name), field.default) for field in order}
    given = {name: value for name, (value, default) in values.items() if value and value != default}
    return {**given, "shows": shown, "rating": mistake.rating}


if __name__ == "__main__":
    main()
