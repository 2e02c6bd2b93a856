"""``--scores``: the scores of a harness, and of own lines, in ``gateway report``, ``why`` and ``view``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.evaluate.scores.test_join import QUESTIONS
from tests.evaluate.scores.test_read import SAMPLES
from tests.support.serving import ROOT, write_files
from tests.viewer.test_view import client, viewing

CONFIG = """\
models:
  demo: {template: sft-demo, targets: [{speaks: embedded, path: model}]}
  judge: {template: sft-demo, targets: [{speaks: embedded, path: model}]}
"""
CALLS = {"right": ("demo", {}), "cut": ("demo", {"max_tokens": 1}), "judge": ("judge", {})}
A, B = "a.recording.sqlite", "b.recording.sqlite"
WRONG = "{} has the scores of one run; give --scores twice, for A and for B, or --score for the kept column of B"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recorded runs of the six sums, the second one with cut answers and calls of a judge, and their scores."""
    folder = tmp_path_factory.mktemp("scores")
    write_files(folder, {"gateway.yaml": CONFIG, "model": ROOT / "demo/model"})
    for name, kinds in (("a", ("right",)), ("b", ("cut", "judge"))):
        rows = [
            {
                "model": CALLS[kind][0],
                "messages": [{"role": "user", "content": text}],
                "answer": "136",
                "temperature": 0,
                **CALLS[kind][1],
            }
            for kind in kinds
            for text in (QUESTIONS if kind != "judge" else ["Is 136 right?"])
        ]
        (folder / f"{name}.data.jsonl").write_text("\n".join(map(json.dumps, rows)))
        ended = command(folder, "run", f"{name}.data.jsonl", "--keep", "answer", "--out", f"{name}.jsonl")
        assert ended.returncode == 0, ended.stderr
    shutil.copytree(SAMPLES / "lm-eval-chat", folder / "out-a")
    (folder / "out-b").mkdir()
    for file in (folder / "out-a").iterdir():
        text = file.read_text().replace('"exact_match": 1.0', '"exact_match": 0.0')
        (folder / "out-b" / file.name).write_text(re.sub(r'\[\["(.)\d*"', r'[["\1"', text))
    ids = [json.loads(line)["custom_id"] for line in (folder / "a.jsonl").read_text().splitlines()]
    own = [json.dumps({"custom_id": one, "score": 0.5}) for one in ids]
    (folder / "own.jsonl").write_text("\n".join(own))
    return folder


def output(folder: Path, *arguments: str) -> str:
    ended = command(folder, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode()


def test_a_report_has_the_score_of_the_harness_and_what_belongs_to_no_row(folder: Path) -> None:
    assert output(folder, "report", A, "--scores", "out-a").endswith(
        "\nscore (lm-eval exact_match): 0.833 (0.500 to 1.000) over all 6 rows\n"
    )
    printed = output(folder, "report", B, "--scores", "out-b")
    assert "cut by length  6     100.0%" in printed
    assert printed.endswith(" over all 6 rows\nno row is whole\ncalls that belong to no row: 1 of judge\n")
    report = json.loads(output(folder, "report", B, "--scores", "out-b", "--json"))
    assert report["harness"]["calls_without_row"] == {"judge": 1}


def test_the_folder_of_a_harness_may_have_the_name_of_the_run(folder: Path) -> None:
    shutil.copytree(folder / "out-a", folder / "a")
    assert "score (lm-eval exact_match): 0.833" in output(folder, "report", "a", "--scores", "a")
    shutil.rmtree(folder / "a")


def test_several_tasks_have_the_mean_of_each(folder: Path) -> None:
    shutil.copytree(folder / "out-a", folder / "tasks")
    (sample,) = (folder / "tasks").iterdir()
    lines = sample.read_text().replace('"exact_match": 1.0', '"exact_match": 0.0').splitlines()
    sample.with_name(sample.name.replace("sums", "half")).write_text("\n".join(lines[:3]))
    printed = output(folder, "report", A, "--scores", "tasks")
    assert "score (lm-eval exact_match): 0.556 (0.222 to 0.889) over all 9 rows\n" in printed
    assert "\nlm-eval:half: 0.000 over 3 rows\nlm-eval:sums: 0.833 over 6 rows\n" in printed
    assert printed.endswith("\nrows without a recorded call: 3\n")
    harness = json.loads(output(folder, "report", A, "--scores", "tasks", "--json"))["harness"]
    assert harness["tasks"]["lm-eval:half"] == {"rows": 3, "mean": 0.0}


def test_scores_of_several_names_have_no_common_mean(folder: Path) -> None:
    shutil.copytree(folder / "tasks", folder / "names")
    half = next((folder / "names").glob("*half*"))
    half.write_text(
        half.read_text().replace("exact_match", "perplexity").replace('"perplexity": 0.0', '"perplexity": 9')
    )
    printed = output(folder, "report", A, "--scores", "names")
    assert "score (" not in printed
    assert printed.endswith(
        "\n\nno mean of several scores; --scores PATH:NAME chooses one: lm-eval perplexity, lm-eval exact_match\n"
        "lm-eval:half: 9.000 over 3 rows\nlm-eval:sums: 0.833 over 6 rows\nrows without a recorded call: 3\n"
    )
    printed = output(folder, "report", A, "--scores", "names:exact_match")
    assert "score (lm-eval exact_match): 0.833 (0.500 to 1.000) over all 6 rows\n" in printed
    assert "\nrows of tasks without this score, which do not count: 3\n" in printed
    ended = command(folder, "why", A, A, "--scores", "names", "--scores", "names")
    assert (ended.returncode, b"choose one with --scores PATH:NAME" in ended.stderr) == (2, True)


def test_rows_with_another_answer_are_counted_if_it_is_not_all_of_them(folder: Path) -> None:
    (folder / "mixed").mkdir()
    for file in (folder / "out-a").iterdir():
        (folder / "mixed" / file.name).write_text(file.read_text().replace('[["136"]]', '[["137"]]'))
    printed = output(folder, "report", A, "--scores", "mixed")
    assert printed.endswith("\nrows with another answer than the recorded one, as in the scores of another run: 1\n")


def test_rows_without_a_call_stay_in_the_denominator(folder: Path) -> None:
    """The promptfoo sample has other ids, so its rows are joined by their texts."""
    (folder / "one.jsonl").write_text((folder / "a.data.jsonl").read_text().splitlines()[0])
    assert command(folder, "run", "one.jsonl", "--keep", "answer", "--out", "c.jsonl").returncode == 0
    printed = output(folder, "report", "c.recording.sqlite", "--scores", str(SAMPLES / "promptfoo/out.json:score"))
    assert "failed  5     83.3%" in printed
    assert "score (promptfoo score): 0.833 (0.500 to 1.000) over all 6 rows\n" in printed
    assert printed.endswith(
        "\nrows without a recorded call: 5\n"
        "rows with another answer than the recorded one, as in the scores of another run: 1\n"
        "other scores, for --scores PATH:NAME: success\n"
    )


def test_two_runs_are_compared_by_the_scores_of_each(folder: Path) -> None:
    ended = command(folder, "why", A, B, "--scores", "out-a", "--scores", "out-b")
    printed = ended.stdout.decode()
    assert printed.startswith("6 rows in both runs, 6 with another answer or score\n"), printed
    assert "parameters                6     -0.833\n" in printed
    assert ended.stderr == f"note: {B}: calls that belong to no row: 1 of judge\n".encode()
    row = output(folder, "why", A, B, "--scores", "out-a", "--scores", "out-b", "--row", "lm-eval:sums/0")
    assert row.startswith("  parameters: max_tokens ")
    missing = command(folder, "why", A, B, "--scores", "out-a", "--scores", "out-b", "--row", "lm-eval:sums/9")
    assert b"--row lm-eval:sums/9: no run has this row" in missing.stderr
    assert missing.stderr.count(b"note: ") == 1


def test_a_proof_counts_the_answers_of_a(folder: Path) -> None:
    printed = output(folder, "why", A, B, "--scores", "out-a", "--scores", "out-b", "--prove", "demo")
    assert "rows that differ  answers of A\nparameters              6          6                 +1.000" in printed, (
        printed
    )


def test_scores_of_a_and_the_kept_column_of_b(folder: Path) -> None:
    ended = command(folder, "why", A, "a.jsonl", "--scores", "out-a", "--score", "exact")
    assert b"the score changed by -0.667" in ended.stdout, ended.stdout + ended.stderr


def test_one_file_of_own_lines_has_the_scores_of_both_runs(folder: Path) -> None:
    assert "score (own.jsonl): 0.500 (0.500 to 0.500)" in output(folder, "report", "a.jsonl", "--scores", "own.jsonl")
    assert output(folder, "why", "a.jsonl", "a.jsonl", "--scores", "own.jsonl").startswith(
        "6 rows in both runs, 0 with another answer or score"
    )


def test_calls_without_an_own_line_are_counted_and_failed_rows_are_0(folder: Path) -> None:
    ended = command(folder, "report", "b.jsonl", "--scores", "own.jsonl")
    assert b"score (own.jsonl): 0.500 (0.500 to 0.500) over all 6 rows\n" in ended.stdout
    assert ended.stderr == b"note: own.jsonl: calls without a line: 1 of judge\n"
    failed = (folder / "b.jsonl").read_text().replace('"status_code":200', '"status_code":500')
    (folder / "failed.jsonl").write_text(failed)
    assert "0.429 (0.286 to 0.500) over all 7 rows" in output(folder, "report", "failed.jsonl", "--scores", "own.jsonl")


def test_the_pages_have_the_scores(folder: Path) -> None:
    scores = ("--scores", "out-a", "--scores", "out-b")
    with viewing(folder, A, "a.jsonl", *scores) as (_, url), client(url) as browser:
        browser.get(url)
        report = browser.get("/viewer/runs/report.json", params={"run": A}).json()["report"]
        assert report["score"]["all_rows"]["mean"] == pytest.approx(5 / 6)
        why = browser.get("/viewer/runs/why.json", params={"a": A, "b": "a.jsonl"}).json()["why"]
        assert why["difference"]["mean"] == pytest.approx(-5 / 6)
        row = browser.get("/viewer/runs/row.json", params={"run": A, "row": "lm-eval:sums/0"}).json()
        assert row["columns"][0]["answers"][0]["text"]["same"] == "136"


def test_the_pages_compare_two_scores_of_one_run(folder: Path) -> None:
    shutil.copytree(folder / "out-a", folder / "again")
    (sample,) = (folder / "again").iterdir()
    sample.write_text(sample.read_text().replace('"exact_match": 1.0', '"exact_match": 0.0'))
    with viewing(folder, A, A, "--scores", "out-a", "--scores", "again") as (_, url), client(url) as browser:
        browser.get(url)
        names = {"a": f"{A} (out-a)", "b": f"{A} (again)"}
        why = browser.get("/viewer/runs/why.json", params=names).json()["why"]
        assert why["difference"]["mean"] == pytest.approx(-5 / 6)
        sample.write_text(sample.read_text().replace('"exact_match": 0.0', '"exact_match": 1.0'))
        why = browser.get("/viewer/runs/why.json", params=names).json()["why"]
        assert why["difference"]["mean"] == pytest.approx(1 / 6)


WRONG_OPTIONS = {
    "other questions": (
        ("report", A, "--scores", str(SAMPLES / "lm-eval-filters")),
        "no call of a.recording.sqlite has the text, or the id, of a row in ",
    ),
    "one harness for two runs": (("why", A, B, "--scores", "out-a"), WRONG.format("out-a")),
    "the scores of another run": (
        ("why", A, B, "--scores", "out-b", "--scores", "out-a"),
        "no answer in out-a is one of b.recording.sqlite; give the scores of this run",
    ),
    "three": (
        ("why", A, B, *["--scores", "out-a"] * 3),
        "too many scores: give each run one, with --score or --scores",
    ),
    "both ways": (
        ("report", A, "--scores", "out-a", "--score", "exact"),
        "too many scores: give each run one, with --score or --scores",
    ),
    "no such file": (("report", A, "--scores", "nosuch:acc"), "nosuch:acc: No such file or directory"),
    "no such score": (("report", A, "--scores", "out-a:acc"), "no row has a score acc; the scores are exact_match"),
    "an empty name": (("report", A, "--scores", "out-a:"), "out-a:: No such file or directory"),
    "own lines with a name": (
        ("report", "a.jsonl", "--scores", "own.jsonl:x"),
        "own.jsonl:x: own lines have one score without a name; give own.jsonl",
    ),
    "a recording": (("report", A, "--scores", A), f"{A}: no scores of a known harness; give lm-eval's samples"),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_wrong_scores_are_refused(case: str, folder: Path) -> None:
    arguments, message = WRONG_OPTIONS[case]
    ended = command(folder, *arguments)
    assert (ended.returncode, message in ended.stderr.decode()) == (2, True), ended.stderr
