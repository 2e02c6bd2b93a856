"""A harness, unmodified, inside ``gateway with``: its own score, and what the gateway prints."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.engines.engine import MODEL, offline
from tests.support.harnesses.cells import prepare, run_command
from tests.support.harnesses.client import Client, Job
from tests.support.serving import ROOT, write_files

TEMPLATE = (ROOT / "meta_templates/sft-demo.yaml").read_text(encoding="utf-8").partition("examples:")[0]
CONFIG = f"models:\n  demo: {{template: sums, policy: eval, targets: [{{speaks: embedded, path: {MODEL}}}]}}\n"
SCORE = re.compile(r"^score \(.*\): ([\d.]+) \(.* over all (\d+) rows$", re.MULTILINE)
"""The line of a report with the mean of the rows' scores and the number of rows."""
OWN = {"OPENAI_BASE_URL", "OPENAI_API_KEY"}
"""Variables that ``gateway with`` sets itself."""


def with_arguments(client: Client, tokenizer: str, programs: str, run: str, more: Sequence[str] = ()) -> list[str]:
    """The arguments of ``gateway`` around a client's command, which ends with ``more``."""
    job = Job("{base_url}", "{model}", tokenizer, programs)
    needed = [f"{name}={value}" for name, value in client.environment_of(job).items() if name not in OWN]
    command = [*(["env", *needed] if needed else []), *client.command(job), *more]
    return ["with", "--run", run, "--scores", client.scores, "--", *command]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a harness in ``gateway with``, in a folder of its own."""

    recording: Path
    scores: Path
    own: float
    """The score that the harness wrote."""
    output: str
    """The output of both, with the gateway's report at its end."""

    @property
    def report(self) -> str:
        """The gateway's report."""
        return self.output[self.output.rindex("class ") :]

    @property
    def reported(self) -> tuple[float, int]:
        """The score and the number of rows in the report."""
        found = SCORE.findall(self.output)
        if len(found) != 1:
            raise ValueError(f"{len(found)} lines with a score:\n{self.output[-3000:]}")
        return float(found[0][0]), int(found[0][1])


def run_with(
    client: Client,
    programs: Path,
    folder: Path,
    *more: str,
    wrong: int = 0,
    edit: tuple[str, str] = ("", ""),
    template: str = TEMPLATE,
) -> Run:
    """Run a client's command with ``more`` arguments in ``folder``, which is emptied first.

    The first ``wrong`` expected answers are wrong. ``edit``: a text of the client's first file, and the text in its
    place. ``RuntimeError``: the command failed.
    """
    prepare(client, folder, wrong)
    write_files(folder, {"gateway.yaml": CONFIG, "meta_templates/sums.yaml": template})
    old, new = edit
    if old:
        file = folder / client.files[0]
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old} in {file}"
        file.write_text(text.replace(old, new), encoding="utf-8")
    words = with_arguments(client, str(MODEL), str(programs), folder.name, more)
    environment = offline(str(folder / "cache")) | {"PYTHONPATH": str(ROOT), "PWD": str(folder)}
    output, ended = run_command([sys.executable, "-m", "gateway", *words], folder, environment, client.seconds)
    if ended:
        raise RuntimeError(f"{ended}\n{output[-3000:]}")
    recording = folder / f"{folder.name}.recording.sqlite"
    return Run(recording, folder / client.scores, client.score(folder, output), output)
