"""Show what the answers of a run are: whole, cut, empty, looping, refused or failed; and their score.

RUN is an output file of gateway run, a file of recordings, or the name of a run in the recordings of gateway.yaml.
Each row has one class, the first that matches, so the classes sum to the rows. A
score is the mean over all rows, with an interval from 1000 bootstrap samples.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.options import (
    FILE_PATH,
    SCORES,
    CommandError,
    argument,
    config_option,
    flag,
    option,
    parameter,
    takes,
    verb,
)
from gateway.core.errors import InvalidValue

if TYPE_CHECKING:
    from gateway.evaluate.analysis.scores import RowScore

EXAMPLES = """Examples:
  gateway report answers.jsonl
  gateway report answers.jsonl --score exact              compare with the kept column "answer"
  gateway report answers.jsonl --score 'regex:(-?[0-9]+)' --answer target
  gateway report answers.jsonl --scores scores.jsonl      scores that another program has computed
  gateway report answers.jsonl --json | jq .classes
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options of ``gateway report``."""

    run: str = argument(metavar="RUN")
    """an output file of gateway run, a file of recordings, or a run's name"""
    score: str | None = option(SCORES)
    """compare each answer with a kept column; choice: the first single capital letter; regex: the first match, or its
    first group"""
    answer: str = option("COLUMN", default="answer")
    """the kept column with the expected text"""
    scores: Path | None = option("FILE", type=FILE_PATH)
    """a score for each row, one JSON object on each line: {"custom_id": "…", "score": 0.5}"""
    config: Path = parameter(config_option)
    as_json: bool = flag("--json")
    """print JSON instead of tables"""


@verb(__doc__, EXAMPLES)
@takes(ReportOptions)
def command(options: ReportOptions) -> int:
    """Print the report of a run."""
    if options.score is not None and options.scores is not None:
        raise CommandError("--score and --scores cannot be used together; remove one of them")
    run, config, as_json = options.run, options.config, options.as_json
    print_report(run, config, options.score, options.answer, options.scores, as_json=as_json)
    return 0


def print_report(
    run: str, config: Path, score: str | None, answer: str, scores: Path | None = None, *, as_json: bool = False
) -> None:
    """Print the report of a run on standard output. The arguments are those of the verb.

    Raises ``CommandError`` for a run without rows.
    """
    from gateway.evaluate.analysis.report import report_of
    from gateway.evaluate.reporting.lines import report_lines
    from gateway.evaluate.reporting.source import read_run, reading

    with reading() as files:
        report = report_of(read_run(files, run, config), row_score(score, answer, scores))
    if not report.rows:
        raise CommandError(f"{run} has no rows, so there is nothing to report; give a run with answered or failed rows")
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(*report_lines(report, score or str(scores)), sep="\n")


def row_score(score: str | None, column: str, scores: Path | None = None) -> RowScore | None:
    """Return the function that scores a row, for the options of a verb; None without a score.

    Raises ``CommandError`` for an unknown score.
    """
    from gateway.evaluate.analysis.scores import judge_of, read_scores, score_of

    if score is None:
        return None if scores is None else read_scores(scores)
    try:
        return partial(score_of, judge=judge_of(score), column=column)
    except InvalidValue as error:
        raise CommandError(error.message) from None
