"""The options of the verbs that show the scores of rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.cli.options import FILE_PATH, SCORES, option


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadScores:
    """The option for scores that were computed by another program."""

    scores: tuple[Path, ...] = option("PATH", type=FILE_PATH, multiple=True)
    """the scores of a harness: its file, or its output folder; PATH:NAME chooses a score by its name. Or a file with
    {"custom_id": "…", "score": 0.5} on each line. Of two runs, each may have its own"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions(ReadScores):
    """Where the scores of rows come from."""

    score: str | None = option(SCORES)
    """compare each answer with a kept column; choice: the first single capital letter; regex: the first match, or its
    first group"""
    answer: str = option("COLUMN", default="answer")
    """the kept column with the expected text"""
