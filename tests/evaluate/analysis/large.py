"""Times ``gateway report`` and ``gateway why`` on long runs: ``python -m tests.evaluate.analysis.large --rows 100000``.

Writes two runs with ``Recorder``, each an output file and its recordings. Every answer has 200 tokens, each an event of
its own; every fifth row of the second run has other tokens. Then each command runs in a process of its own, and the
table shows its seconds, the seconds of the processor, and its largest memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from gateway.config.snapshot import RecordingsSpec
from gateway.core.call import Call
from gateway.core.exchange import Exchange, RecordedExchange
from gateway.evaluate.running.output import recording_path
from gateway.storage.recorder import CallFacts, Recorder
from gateway.telemetry.record import Record
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.events import Delta, Event, Finish, Usage

TOKENS = 200
WORDS = ("the", "sum", "of", "both", "numbers", "is", "therefore", "12", "and", "so", "we", "add", "the", "next", "one")
EVERY = 5
"""Every how many rows the two runs differ."""


def _tokens(row: int, run: str) -> list[str]:
    """The answer to a row. It ends with the number of the row."""
    rng = random.Random(f"{row} {run if row % EVERY == 0 else ''}")
    return [f"{rng.choice(WORDS)} " for _ in range(TOKENS - 1)] + [str(row)]


def write_run(output: Path, rows: int) -> None:
    """Write the output file of a run and its recordings, unless they exist."""
    if output.exists():
        return
    path, run = recording_path(output), output.stem
    spec, recorder = RecordingsSpec(path=path, retention=1e12, max_size=sys.maxsize), Recorder(path, sys.exit)
    with output.open("wb") as file, samples_path(output).open("w") as samples:
        for row in range(rows):
            if recorder.is_full:
                recorder.flush().result()
            file.write(_write_row(recorder, spec, row, run))
            samples.write(_sample(row, run))
    recorder.close()


def samples_path(output: Path) -> Path:
    """The samples of a run, as lm-eval writes them."""
    return output.with_name(f"samples_{output.stem}")


def _sample(row: int, run: str) -> str:
    """The line of a row in the samples."""
    request = {"arg_0": [json.dumps([_message(row)])], "arg_1": {}}
    answer, score = "".join(_tokens(row, run)), float(row % 3 == 0)
    known = {"doc_id": row, "filter": "none", "metrics": ["acc"], "acc": score}
    return json.dumps({**known, "arguments": {"gen_args_0": request}, "resps": [[answer]]}) + "\n"


def _message(row: int) -> dict[str, str]:
    return {"role": "user", "content": f"Question {row}: " + "what is the sum of these numbers? " * 10}


def _write_row(recorder: Recorder, spec: RecordingsSpec, row: int, run: str) -> bytes:
    """Record a row, and return its line of the output file."""
    tokens, message = _tokens(row, run), _message(row)
    question = message["content"]
    call = Call("chat", "m", f"req_{row}", dialogue=Dialogue((Message("user", question, raw=message),)))
    recording = recorder.begin("full", CallFacts("default", "p1", "t1", run, f"row-{row}", call), spec)
    sent = Exchange(
        "completions",
        call.request_id,
        (f"<u>{question}</u>\n<a>",),
        stops=("</a>",),
        params={"temperature": 0, "seed": 1},
    )
    end: list[Event] = [Finish(0, "stop"), Usage(100, TOKENS)]
    events = [*[Delta(0, token) for token in tokens], *end]
    moments = [(0.01 * at, event) for at, event in enumerate(events)]
    recording.exchanges.append(RecordedExchange(sent, time.time(), moments, list(events)))
    recording.notices = ["default_parameter: max_tokens=2048"]
    recording.end(
        Record(call.request_id, "chat", "m", "ok", 200, False, 1.0, template="t", target="m/0", stop_cuts=("engine",))
    )
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "".join(tokens)}}
    usage = {"prompt_tokens": 100, "completion_tokens": TOKENS, "total_tokens": 100 + TOKENS}
    body = {"object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    return (
        json.dumps(
            {
                "id": f"batch_{call.request_id}",
                "custom_id": f"row-{row}",
                "error": None,
                "row": {"answer": str(row)},
                "response": {"status_code": 200, "request_id": call.request_id, "body": body},
                "gateway": {
                    "line": row + 1,
                    "seconds": 1.0,
                    "retries": 0,
                    "model": "m",
                    "template": "t@sha256:t1",
                    "prompt_sha256": "h",
                    "target": "m/0",
                    "attempts": 1,
                    "notices": recording.notices,
                },
            }
        ).encode()
        + b"\n"
    )


def measured(*arguments: str) -> tuple[float, float, float]:
    """Run a command. Returns its seconds, the seconds of the processor, and its largest memory in MB."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "gateway", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, arguments
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def commands(a: Path, b: Path) -> Iterator[tuple[str, ...]]:
    """Yield the commands that are timed: on the recordings, and on the output files with the recordings beside them."""
    yield "report", str(recording_path(a))
    yield "report", str(a), "--score", "contains"
    yield "why", str(recording_path(a)), str(recording_path(b))
    yield "why", str(a), str(b), "--score", "contains"
    scores = [("--scores", str(samples_path(output))) for output in (a, b)]
    yield "report", str(recording_path(a)), *scores[0]
    yield "why", str(recording_path(a)), str(recording_path(b)), *scores[0], *scores[1]


def main() -> None:
    """Write two runs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="the folder for the runs, which are kept and used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runs = [folder / "a.jsonl", folder / "b.jsonl"]
        with ProcessPoolExecutor() as processes:  # this process stays small: its memory counts for the commands too
            list(processes.map(write_run, runs, [options.rows] * len(runs)))
        for output in runs:
            size = recording_path(output).stat().st_size / 1e6
            print(f"{output.name}: {output.stat().st_size / 1e6:.0f} MB, its recordings {size:.0f} MB", flush=True)
        for arguments in commands(*runs):
            seconds, processor, memory = measured(*arguments)
            shown = " ".join([Path(one).name for one in arguments])
            print(f"{seconds:6.1f} s {processor:6.1f} s {memory:6.0f} MB  gateway {shown}", flush=True)


if __name__ == "__main__":
    main()
