"""Show what the answers of a run are: whole, cut, empty, looping, refused or failed; and their score.

RUN is an output file of gateway run, a file of recordings, or the name of a run in the recordings of gateway.yaml.
Each row has one class, the first that matches, so the classes sum to the rows. A
score is the mean over all rows, with an interval from 1000 bootstrap samples.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.cli.options import (
    CommandError,
    argument,
    config_option,
    flag,
    parameter,
    takes,
    verb,
)
from gateway.cli.score_options import ScoreOptions

EXAMPLES = """Examples:
  gateway report answers.jsonl
  gateway report answers.jsonl --score exact              compare with the kept column "answer"
  gateway report answers.jsonl --score 'regex:(-?[0-9]+)' --answer target
  gateway report answers.jsonl --scores scores.jsonl      scores that another program has computed
  gateway report nightly --scores out                     the scores of a harness, in its output folder
  gateway report answers.jsonl --json | jq .classes
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(ScoreOptions):
    """The options of ``gateway report``."""

    run: str = argument(metavar="RUN")
    """an output file of gateway run, a file of recordings, or a run's name"""
    config: Path = parameter(config_option)
    as_json: bool = flag("--json")
    """print JSON instead of tables"""


@verb(__doc__, EXAMPLES)
@takes(ReportOptions)
def command(options: ReportOptions) -> int:
    """Print the report of a run."""
    print_report(options)
    return 0


def print_report(options: ReportOptions, since: float = 0.0) -> None:
    """Print the report of a run on standard output.

    ``since``: files of a harness that were last changed before this time do not count. Raises ``CommandError`` for a
    run without rows.
    """
    from gateway.evaluate.analysis.report import report_of
    from gateway.evaluate.reporting.lines import report_lines
    from gateway.evaluate.reporting.source import read_scored, reading, row_score, scores_of

    run, score = options.run, options.score
    with reading() as files:
        (path,) = scores_of([run], options.scores, score)
        rows, found = read_scored(files, run, options.config, path, row_score(score, options.answer), since)
        if found and found.scores.has_several():
            rows = [replace(row, points=None) for row in rows]
        report = report_of(rows)
    if not report.rows:
        raise CommandError(f"{run} has no rows, so there is nothing to report; give a run with answered or failed rows")
    if options.as_json:
        print(json.dumps({**report.as_json(), **({} if found is None else {"harness": found.as_json()})}, indent=2))
    else:
        name = score or (", ".join(found.scores.labels) if found else str(path))
        print(*report_lines(report, name), *(found.lines() if found else ()), sep="\n")
