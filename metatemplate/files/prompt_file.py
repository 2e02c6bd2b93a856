"""Reads and checks the files of dataset prompts, and renders their examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from metatemplate.datasets.answer_columns import note_on_answer, possible_answers
from metatemplate.datasets.spec import PromptSpec
from metatemplate.datasets.validation import parse_prompt
from metatemplate.errors import TemplateFailure
from metatemplate.files.problems import SpecError
from metatemplate.files.reader import AddProblem, Files, FolderFiles, digest, digest_of


def read_prompt(files: Files, path: Path, name: str, add_problem: AddProblem) -> PromptSpec | None:
    """Read the dataset prompt of a file and render its examples. Returns None if the file has problems."""
    document = files.document(path, add_problem)
    if document is None:
        return None
    at_file = partial(document.refuse, ("train_file",))
    beside = FolderFiles(path.parent, lambda found, _: files.read(found, at_file), files.looked_at)
    try:
        spec = parse_prompt(document.value, name=name, rows=partial(_rows, beside))
        own = files.contents[path] or b""
        if answers := possible_answers(spec):
            files.notes.append(document.problem(("output_column",), note_on_answer(answers)))
        return replace(spec, digest=(digest_of({"": own, **beside.read}) if beside.read else digest(own))[:12])
    except SpecError as error:
        for problem in error.problems:
            document.refuse(problem.path, problem.message)
        return None


def _rows(beside: FolderFiles, name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the rows of a JSON Lines file. Raises ``TemplateFailure`` if the file is missing or not valid."""
    data = beside.fetch(name)
    if data is None:
        raise TemplateFailure(f"no file {name} next to this file")
    rows: list[Mapping[str, Any]] = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            form = "write one JSON object on each line" + (", not a table" if name.endswith(".csv") else "")
            raise TemplateFailure(f"{name}, line {number}, is not JSON ({error.msg}); {form}") from None
        if not isinstance(row, dict):
            raise TemplateFailure(f"{name}, line {number}, must be a JSON object with one value for each column")
        rows.append(row)
    return tuple(rows)
