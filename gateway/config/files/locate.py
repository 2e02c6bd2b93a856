"""Assigning a problem with a model's files to the line of ``gateway.yaml`` that names them."""

from __future__ import annotations

from gateway.config.files.yaml import dotted
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import ModelSpec
from gateway.core.errors import Problem


def locate(problem: Problem, model: ModelSpec, position: int) -> Problem:
    """Return the problem of an engine, script or tokenizer with the place of the target that names it."""
    target = model.targets[position]
    if problem.key == "tokenizer":
        where = dotted(("models", model.name, "tokenizer"))
        return Problem(model.source, model.line, where, f"{problem.file}: {problem.message}")
    where = dotted(("models", model.name, "targets", position))
    if problem.file == target.label:  # a problem with the entry itself
        return Problem(model.source, target.line, f"{where}.{problem.key}", problem.message)
    return Problem(model.source, target.line, f"{where}.{BACKEND_KINDS[target.speaks].file_setting}", str(problem))
