"""Where does a problem with a model's files belong? To the line that names them, as an operator looks for it."""

from __future__ import annotations

from gateway.config.files.yaml import spell
from gateway.config.snapshot import ModelSpec
from gateway.core.errors import Problem

NAMED_BY = {"embedded": "path", "scripted": "script"}
"""The setting that names a target's files."""


def locate(problem: Problem, model: ModelSpec, position: int) -> Problem:
    """What an engine, script or tokenizer says about itself, told of the model's target that asked for it."""
    target = model.targets[position]
    if problem.key == "tokenizer":
        where = spell(("models", model.name, "tokenizer"))
        return Problem(model.source, model.line, where, f"{problem.file}: {problem.message}")
    where = spell(("models", model.name, "targets", position))
    if problem.file == target.label:  # about the entry itself
        return Problem(model.source, target.line, f"{where}.{problem.key}", problem.message)
    return Problem(model.source, target.line, f"{where}.{NAMED_BY[target.speaks]}", str(problem))
